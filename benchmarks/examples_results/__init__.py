"""What the examples show of the five papers' figures and tables."""
