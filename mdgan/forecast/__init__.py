"""What a run will take, before machines are rented for it: time, bytes, memory, the bottleneck."""
