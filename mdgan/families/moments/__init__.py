"""DP-MERF: every worker tells one sum of random features, and the server trains on that alone."""
