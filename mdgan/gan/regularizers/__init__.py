"""What keeps discriminators from learning their samples by heart, one file each."""
