"""What Python programs and notebooks use: `train`, `compare`, `evaluate`, `Run`, `Data`.

Nothing trains in the user's process, which may have its own threads, signal handlers and a GPU in
use. A child process does what the command line does, and reports its progress as typed events.
"""
