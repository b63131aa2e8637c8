"""The numbers behind the figures of a report, computed from what runs recorded."""
