"""What people see of a run while it goes on: progress, the live view, timelines, pictures."""
