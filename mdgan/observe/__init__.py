"""Shows and records a run while it goes on: progress, live view, timelines, pictures, trackers."""
