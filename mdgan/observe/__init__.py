"""What people see of a run: its folder, the progress line, pictures."""
