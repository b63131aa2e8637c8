"""Starts ranks: checks everything first, then forks processes, or runs in this one."""
