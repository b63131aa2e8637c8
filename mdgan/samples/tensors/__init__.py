"""Samples of any other shape: volumes, series, plain tensors."""
