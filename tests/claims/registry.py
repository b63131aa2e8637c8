"""`@claim` says which promise of which page a test tries to make false."""

import pytest

claim = pytest.mark.claim
"""`@claim("no-sample-leaves", "The sentence, word for word.")` stands on the test.

The page has the anchor `<a id="claim-no-sample-leaves"></a>` before the sentence. A test may stand
for several promises, and several tests for one. `pytest -m claim` runs them all, and
`python -m tests.claims` holds pages and tests against each other.
"""
