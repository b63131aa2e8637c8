#!/usr/bin/env bash
# Starts a run on a Slurm cluster. The first task is the server, each other task a host with a worker.
#
#   sbatch scripts/slurm.sh --dataset digits --iterations 5000          a server and 4 workers
#   sbatch --nodes 11 scripts/slurm.sh --dataset mnist                  a server and 10 workers
#   run=/shared/mine sbatch --partition gpu --gpus-per-task 1 scripts/slurm.sh --device cuda
#
# Flags of sbatch stand before the script's name, flags of `mdgan train` after it.
# When a node fails, or with `scontrol requeue JOB`, Slurm starts the job again, on other nodes if
# needed, and training continues from its newest checkpoint. docs/clusters.md tells more.
#SBATCH --job-name mdgan
#SBATCH --nodes 5
#SBATCH --ntasks-per-node 1
#SBATCH --requeue
#SBATCH --open-mode append
#SBATCH --output mdgan-%j.log
set -euo pipefail

run=${run:-runs/slurm-$SLURM_JOB_ID}    # the run's folder, on a file system that all nodes share
credentials=${credentials:-$run.cred}   # the certificate that all tasks share; made if it does not exist
mdgan=${mdgan:-mdgan}                   # the program; .venv/bin/mdgan of this folder if it exists
if [ "$mdgan" = mdgan ] && [ -x .venv/bin/mdgan ]; then
    mdgan=.venv/bin/mdgan
fi

mkdir -p "$(dirname "$credentials")"
[ -e "$credentials" ] || "$mdgan" credentials new "$credentials"

# A site may tell srun to end all tasks when one fails; mdgan continues without a lost
# worker. With `sbatch --no-kill` it continues without the worker's node as well.
exec srun --no-kill --kill-on-bad-exit=0 "$mdgan" train --resume-or-start "$run" \
    --credentials "$credentials" "$@"
