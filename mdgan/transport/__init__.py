"""Links that carry messages between the server and its hosts, and report hosts that are lost.

Links between machines are gRPC, which has TLS with certificates at both ends, pings and limits.
gRPC's threads do not survive a fork, so a process imports gRPC after its last fork. A launcher that
has a question to a server before it forks asks from a child process.
"""

import os

# gRPC's core writes every mistake of a stranger to the standard error; mdgan logs one line instead.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
