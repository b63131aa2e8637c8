"""Synthetic tables of mdgan and of CTGAN, judged by classifiers and by SDMetrics."""
