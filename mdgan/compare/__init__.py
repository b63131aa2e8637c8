"""Several configurations trained on the same data and seeds, and put side by side."""
