"""The server's wing of the engine."""
