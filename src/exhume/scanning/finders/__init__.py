"""One file per kind of finding, each with a `find` that reads an inventory. `registry.py` lists them."""
