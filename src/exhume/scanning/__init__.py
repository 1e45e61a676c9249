"""What in an artefact is training data, or leads to it, without any attack: seconds, and nothing is run.

`inventory.py` lists and opens what is there, `finders/` has one file per kind of finding, `registry.py` lists them,
`scan.py` puts the findings in order and says what they come to.
"""
