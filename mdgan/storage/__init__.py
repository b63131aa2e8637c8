"""What outlasts a process: checkpoints on disk, who may write them, and writing beside training."""
