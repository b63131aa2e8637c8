"""What outlasts a process: checkpoints, which server may write them, and how they are written."""
