"""What Python programs and notebooks use: `train`, `compare`, `evaluate`, `Run`, `Data`.

Nothing trains in the user's process, which may have threads, a GPU in use and handlers of signals
of its own: a child process does what the command line does, and tells of it by typed events.
"""
