"""Looks at what is there: dataset files, plans, timelines, trained generators."""
