"""The report of one or several runs: one HTML file that needs nothing but a browser.

`numbers/` computes, `figures/` draws with matplotlib, `page/` writes HTML, `compose.py` puts them
together, and `build.py` reads runs and writes the file.
"""
