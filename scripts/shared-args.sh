#!/usr/bin/env bash
# Arguments of both run-distributed.sh and run-standalone.sh (Darmanger and Gombas, appendix B.1).
# Change them here, or override any from the environment: batch_size=32 scripts/run-standalone.sh
# An empty value leaves the choice to the dataset file.

dataset=${dataset:-digits}
datasets_dir=${datasets_dir:-}          # a folder with your own dataset files
data_dir=${data_dir:-}                  # where the data lies; {rank} stands for the worker's rank
iterations=${iterations:-}
batch_size=${batch_size:-}
kappa=${kappa:-}
local_steps=${local_steps:-}
generator_loss=${generator_loss:-}
discriminator_loss=${discriminator_loss:-}
generator_optimizer=${generator_optimizer:-}            # such as adam:lr=2e-4,beta1=0.5
discriminator_optimizer=${discriminator_optimizer:-}
device=${device:-cpu}                   # cpu, cuda, mps or auto
threads=${threads:-}
seed=${seed:-}
sample_interval=${sample_interval:-}
log_interval=${log_interval:-}
eval_interval=${eval_interval:-}        # iterations between two scores; 0 for none
extractor=${extractor:-}                # classifier, inception, or your own file
inception_weights=${inception_weights:-}
out=${out:-}                            # the folder of the run
python=${python:-}                      # the interpreter; .venv's, else python3

shared_names=(dataset datasets_dir data_dir iterations batch_size kappa local_steps generator_loss
    discriminator_loss generator_optimizer discriminator_optimizer device threads seed
    sample_interval log_interval eval_interval extractor inception_weights out)

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [ -z "$python" ]; then
    python=python3
    [ -x "$repository/.venv/bin/python" ] && python=$repository/.venv/bin/python
fi

# So that the scripts work from any folder, installed or not.
export PYTHONPATH=$repository${PYTHONPATH:+:$PYTHONPATH}

# keys_of NAME...: the same as flags_of, for settings that have a key but no flag.
keys_of() {
    local name
    for name in "$@"; do
        [ -n "${!name}" ] && flags+=(--set "$name=${!name}")
    done
    return 0
}

# flags_of NAME...: fills the array `flags` with --name value for every variable that has a value.
flags=()
flags_of() {
    local name
    for name in "$@"; do
        [ -n "${!name}" ] && flags+=("--${name//_/-}" "${!name}")
    done
    return 0
}
