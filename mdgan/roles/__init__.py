"""Who does what, when: the server's loop, the host's loop, and the standalone baseline."""
