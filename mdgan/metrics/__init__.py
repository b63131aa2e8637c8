"""How good a generator is: distances and scores in the features of an extractor.

The server never needs the workers' samples: workers send sums over theirs (`real_statistics`), and
scores that compare sample with sample use held-out samples.
"""
