"""Regularisers, which keep discriminators from learning their samples by heart, one file each."""
