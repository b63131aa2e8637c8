"""What every family shares: membership, waiting, checkpoints, scores, saying goodbye."""
