"""The baseline: one process that holds all data."""
