"""Compares synthetic tables of mdgan and of CTGAN, by classifiers and by SDMetrics."""
