"""Scores of a generator: distances to real data in the features of an extractor.

The server needs no sample of a worker: workers send sums over their samples (`real_statistics`),
and scores that compare sample with sample use held-out samples.
"""
