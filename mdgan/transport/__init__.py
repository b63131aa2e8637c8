"""Who can talk to whom, and who is gone. Only this room knows torch.distributed."""
