"""The algorithms: one folder each; `contract.py` says what one must supply."""
