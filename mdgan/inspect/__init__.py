"""Shows, scores and checks dataset files, schemas, timelines and trained generators."""
