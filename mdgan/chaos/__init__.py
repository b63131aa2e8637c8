"""Faults played on purpose on a run's processes, and how the run survived."""
