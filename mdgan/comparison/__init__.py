"""Trains several configurations with the same data and seeds, and puts them side by side."""
