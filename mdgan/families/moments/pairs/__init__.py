"""Tables: every worker tells how often two columns have which values together, with noise."""
