"""Files as people publish them, read without running anything that is in them.

A reader hands back `contents.Contents`: arrays that are mapped and not loaded, objects with their members, and plain
values. Nothing is unpickled, no class that a file names is imported, and no path that a file names is opened unless it
lies beside it. Whatever does not agree with itself is refused in one line.
"""
