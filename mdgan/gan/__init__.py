"""The mathematics that families share; knows no network, no flag and no file."""
