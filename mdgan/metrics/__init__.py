"""How good a generator is: distances and scores in the features of an extractor.

Real samples are never needed where the generator is: workers send sums over theirs
(`real_statistics`), and what compares sample with sample uses held-out ones.
"""
