"""The report of one or several runs: one HTML file that needs nothing but a browser.

`catalogue.py` has one entry a figure: its words, the numbers that it draws and how it draws them.
`numbers/` computes, `figures/` draws with matplotlib, `glance.py` says what a run's card says,
`templates/` is the page, `compose.py` puts all of it together, and `build.py` reads runs and writes
the file.
"""
