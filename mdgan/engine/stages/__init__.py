"""The stages that an answer passes on its way from a worker's learner to the algorithm's rule.

On the host: clip and noise (`privacy/`, inside the learner, before anything leaves it), mask,
codec. On the server: codec, mask, screen, the search for attackers and free riders (`suspects.py`),
and the algorithm's rule.
"""
