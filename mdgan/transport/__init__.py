"""Carries messages between processes, and tells which are gone."""
