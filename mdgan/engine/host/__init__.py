"""The hosts' wing of the engine."""
