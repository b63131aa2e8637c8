"""Links between processes: who can talk to whom, and who is gone.

Links between machines are gRPC, which has TLS with certificates at both ends, pings and limits. Its
threads do not survive a fork, so gRPC is imported after the fork. What a launcher asks a server
before it forks, it asks in a fork of its own.
"""

import os

# gRPC's core writes to the standard error whatever a stranger does wrong; mdgan tells it in a line.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
