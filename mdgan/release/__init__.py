"""A bundle of what a run made, for those who trust nobody: written, signed, and checked offline."""
