"""Compares private synthetic tables of mdgan at several sites with those of central mechanisms."""
