"""The folder of a run and what it holds."""
