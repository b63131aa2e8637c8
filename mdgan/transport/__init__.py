"""Links between processes: who can talk to whom, and who is gone."""

import os

# gRPC's core writes to the standard error whatever a stranger does wrong; mdgan tells it in a line.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
