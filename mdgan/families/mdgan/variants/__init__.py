"""Iterations and groups of workers that differ from `algorithm.py`, each asked for by a flag."""
