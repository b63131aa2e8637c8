"""What happens to answers between learners and the rule that combines them.

An answer passes these in order: clip and noise (`privacy/`, inside the learner, before anything
leaves it), mask, codec, the wire; then codec, mask, screen, what looks for attackers and free
riders (`suspects.py`), and the algorithm's rule.
"""
