"""DP-MERF: every worker sends one sum of random features, and the server trains on that alone."""
