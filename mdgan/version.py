"""The version of the program, at the bottom: what every room may import."""

__version__ = "1.0.0"

SERIES = ".".join(__version__.split(".")[:2])
"""Machines take part in one run if their versions agree this far: see `docs/stability.md`."""
