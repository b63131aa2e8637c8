#!/usr/bin/env bash
# Runs the standalone baseline (Darmanger and Gombas, appendix B.2):
#
#   scripts/run-standalone.sh
#   batch_size=100 scripts/run-standalone.sh --out runs/baseline
#
# An environment variable, or a flag of `mdgan standalone`, overrides any argument in shared-args.sh.
set -euo pipefail

# shellcheck source=scripts/shared-args.sh
source "$(dirname "${BASH_SOURCE[0]}")/shared-args.sh"
flags_of "${shared_names[@]}"
exec "$python" -m mdgan standalone "${flags[@]}" "$@"
