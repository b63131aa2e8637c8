"""Differential privacy of the data of each worker."""
