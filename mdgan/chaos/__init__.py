"""Faults played on purpose on a run's processes, and what became of the run."""
