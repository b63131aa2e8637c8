"""Measurements of speed, memory, traffic and quality; each module says how to run it."""
