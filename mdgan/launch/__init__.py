"""Starts the ranks of a run: checks everything first, then forks processes or runs in this one.

Before it forks, the launcher starts no thread and touches no GPU. It alone holds one end of a pipe
to the ranks, so the ranks notice when the launcher ends.
"""
