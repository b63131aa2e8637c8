"""A bundle of what a run made, for strangers: written, signed, and checked offline."""
