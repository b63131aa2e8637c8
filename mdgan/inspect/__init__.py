"""Tools that look at data sets and at what was trained."""
