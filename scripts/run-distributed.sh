#!/usr/bin/env bash
# Starts some ranks of a distributed run on this machine (Darmanger and Gombas, appendix B.3):
#
#   scripts/run-distributed.sh 0..4                        everything here
#   export master_addr=10.0.0.1 credentials=run.cred       on every VM, with the same file
#   scripts/run-distributed.sh 0,1,2                       on the first, whose address that is
#   scripts/run-distributed.sh 3..4                        on the second
#
# An environment variable, or a flag of `mdgan train` after the ranks, overrides any argument below or
# in shared-args.sh. Every machine needs the same arguments.
set -euo pipefail

world_size=${world_size:-5}             # the server and the workers
algorithm=${algorithm:-}                # mdgan, fl-gan, fegan, paragan, …
participation=${participation:-}        # fraction of the workers that train at a time
round_iterations=${round_iterations:-}  # iterations in a round of fl-gan and fegan
swap_interval=${swap_interval:-}        # iterations between two swaps; 0 for never
swap=${swap:-}                          # pairs, means or derangement
partition=${partition:-}                # iid, sorted, …; none if each machine has its own data
master_addr=${master_addr:-127.0.0.1}   # the address of rank 0; after a comma those of its standbys
master_port=${master_port:-}            # the port of rank 0; 29500 if some ranks are elsewhere
network_interface=${network_interface:-}
credentials=${credentials:-}            # a file of `mdgan credentials`; needed if others reach master_addr
workers_per_host=${workers_per_host:-}  # workers that share one process
connect_timeout=${connect_timeout:-}    # seconds to wait for the other machines

if [ $# -lt 1 ] || [[ $1 == -* ]]; then
    echo 'usage: run-distributed.sh RANKS [FLAG...], for example: run-distributed.sh 0..4' >&2
    exit 2
fi
ranks=$1
shift

# shellcheck source=scripts/shared-args.sh
source "$(dirname "${BASH_SOURCE[0]}")/shared-args.sh"
flags_of "${shared_names[@]}" world_size algorithm participation round_iterations swap_interval \
    swap partition master_addr master_port credentials workers_per_host ranks
keys_of network_interface connect_timeout
exec "$python" -m mdgan train "${flags[@]}" "$@"
