"""Tables: every worker sends noisy counts of how often pairs of values occur in one row."""
