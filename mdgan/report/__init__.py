"""The report of one or several runs: one HTML file that a browser shows without a network.

`catalogue.py` has one entry a figure; a new figure is one more entry there.
"""
