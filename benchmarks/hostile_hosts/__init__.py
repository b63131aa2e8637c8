"""Twenty hostile hosts of forty; see `__main__`."""
