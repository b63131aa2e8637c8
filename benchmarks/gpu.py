"""Checks a GPU: runs every test that needs one, then prints iterations a second beside the CPU's.

    python -m benchmarks.gpu

Ends with status 2 where there is no GPU, with 1 if a test or a training fails, else with 0.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

_DIGITS = "--dataset digits --world-size 11 --workers-per-host 10 --iterations 500"
_PICTURES = "--dataset cifar10_noise --datasets-dir benchmarks/datasets --world-size 11 "
_PICTURES += "--workers-per-host 10 --batch-size 32"
TRAININGS = {
    "digits, CPU": f"{_DIGITS} --device cpu",
    "digits": f"{_DIGITS} --device cuda",
    "digits, all at once": f"{_DIGITS} --device cuda --vectorize",
    "32×32×3, CPU": f"{_PICTURES} --device cpu --iterations 20",
    "32×32×3": f"{_PICTURES} --device cuda --iterations 200",
    "32×32×3, all at once": f"{_PICTURES} --device cuda --iterations 200 --vectorize",
    "32×32×3, bf16": f"{_PICTURES} --device cuda --iterations 200 --precision bf16",
    "32×32×3, compiled": f"{_PICTURES} --device cuda --iterations 200 --set compile=true",
}
_QUIET = "--transport memory --sample-interval 0 --eval-interval 0 --checkpoint-interval 0"
_RATE = re.compile(r"\(([0-9.,]+) it/s\)")
_MOST_SECONDS = 120


def iterations_per_second(flags: str, folder: Path) -> str:
    """The rate that a training prints at its end, or why it printed none."""
    command = [sys.executable, "-m", "mdgan", "train", *flags.split(), *_QUIET.split()]
    try:
        ended = subprocess.run(
            [*command, "--out", str(folder)],
            capture_output=True,
            text=True,
            timeout=_MOST_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"failed: took more than {_MOST_SECONDS} s"
    rates = _RATE.findall(ended.stdout + ended.stderr)
    if ended.returncode or not rates:
        return f"failed: {(ended.stderr.strip().splitlines() or ['no rate'])[-1]:.100}"
    return str(rates[-1])


def main() -> int:
    """Runs the tests and the trainings, and returns the exit status."""
    if not torch.cuda.device_count():
        print("gpu-check: no CUDA GPU found here", file=sys.stderr)
        return 2
    tests = subprocess.run([sys.executable, "-m", "pytest", "-m", "gpu", "-q"])
    print(f"\n{torch.cuda.get_device_name()}\n{'training':<24}iterations/s", flush=True)
    failed = tests.returncode != 0
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, flags) in enumerate(TRAININGS.items()):
            rate = iterations_per_second(flags, Path(folder) / str(number))
            failed |= rate.startswith("failed")
            print(f"{name:<24}{rate}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
