"""Looks at what is there: dataset files, timelines, trained generators."""
