"""Rows of a table: the schema that all sites agree on, and how rows become tensors and back."""
