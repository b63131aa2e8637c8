"""Pictures, read from files."""
