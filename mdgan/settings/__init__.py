"""Declares settings, and reads each once, from flags and files, into a typed value."""
