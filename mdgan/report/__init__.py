"""The report of one or several runs: one HTML file that needs nothing but a browser.

`catalogue.py` has one entry a figure; a new figure is one more entry there.
"""
