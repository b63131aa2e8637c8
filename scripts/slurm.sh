#!/usr/bin/env bash
# A run on a Slurm cluster. The first task is the server, each other one a host with one worker.
#
#   sbatch scripts/slurm.sh --dataset digits --iterations 5000          a server and 4 workers
#   sbatch --nodes 11 scripts/slurm.sh --dataset mnist                  a server and 10 workers
#   run=/shared/mine sbatch --partition gpu --gpus-per-task 1 scripts/slurm.sh --device cuda
#
# What follows the script's name are flags of `mdgan train`; flags of sbatch stand before it.
# When a node goes, or with `scontrol requeue JOB`, Slurm starts the job again, on other nodes if need
# be, and training goes on from its newest checkpoint. docs/clusters.md tells more.
#SBATCH --job-name mdgan
#SBATCH --nodes 5
#SBATCH --ntasks-per-node 1
#SBATCH --requeue
#SBATCH --open-mode append
#SBATCH --output mdgan-%j.log
set -euo pipefail

run=${run:-runs/slurm-$SLURM_JOB_ID}    # the run's folder, on a file system that all nodes share
credentials=${credentials:-$run.cred}   # the certificate that all tasks share; made if it is not there
mdgan=${mdgan:-mdgan}                   # the program; .venv/bin/mdgan of the folder, if it is there
if [ "$mdgan" = mdgan ] && [ -x .venv/bin/mdgan ]; then
    mdgan=.venv/bin/mdgan
fi

mkdir -p "$(dirname "$credentials")"
[ -e "$credentials" ] || "$mdgan" credentials new "$credentials"

# A site may tell srun to end all tasks when one fails; mdgan goes on without a worker that is lost.
# With `sbatch --no-kill`, it goes on without a worker's node as well.
exec srun --no-kill --kill-on-bad-exit=0 "$mdgan" train --resume-or-start "$run" \
    --credentials "$credentials" "$@"
