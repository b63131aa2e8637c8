"""The mathematics that all families share. It uses no network, no flag and no file."""
