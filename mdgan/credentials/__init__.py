"""Certificates of a run: makes, reads, checks and revokes them, for both ends of every link.

The library `cryptography` does all cryptography; this package adds names, files and messages.
"""
