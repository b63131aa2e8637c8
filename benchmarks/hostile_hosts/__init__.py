"""Trains with forty hosts of which twenty are hostile; see `__main__`."""
