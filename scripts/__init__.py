"""Programs for those who develop mdgan."""
