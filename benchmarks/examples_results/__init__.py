"""Compares the examples with the five papers' figures and tables."""
