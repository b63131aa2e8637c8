"""The algorithms: a folder each; `contract.py` is the interface that each implements."""
