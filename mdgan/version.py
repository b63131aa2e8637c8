"""The version of the program, at the bottom: what every room may import."""

__version__ = "0.7.0"
