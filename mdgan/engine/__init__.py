"""The code that all families share: membership, waiting, checkpoints, scores, ending a run."""
