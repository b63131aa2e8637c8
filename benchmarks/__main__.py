"""Measures most tables of docs/performance.md, in the page's order, and draws the page's picture.

The table of flags that save elsewhere has commands of its own: see `benchmarks/results/speed.md`.

    make bench                                     # all, on an idle machine: two hours
    python -m benchmarks versus picture            # some, by the names of their modules

Shows what each prints, and keeps it in build/bench/NAME.txt. One that fails, or that cannot be
measured here, does not stop the others; the exit status is then 1.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import click

_VERSUS, _SCALING = "benchmarks/results/versus.json", "benchmarks/results/scaling.json"
_PEERS = "--repeats 3 --only 2 --rounds"
COMMANDS = {
    "savings": ["benchmarks.savings"],
    "bandwidth": ["benchmarks.bandwidth"],
    "versus": [f"benchmarks.versus --rounds 2 --json {_VERSUS}"],
    "scaling": [f"benchmarks.scaling --json {_SCALING}"],
    "picture": [f"benchmarks.picture {_VERSUS} {_SCALING} docs/performance.png"],
    "peers": [
        f"benchmarks.peers {_PEERS} 8 --work 10:1:iid",
        f"benchmarks.peers {_PEERS} 8 --work 20:1:iid",
        f"benchmarks.peers {_PEERS} 10 --work 100:0.1:iid",
    ],
    "local_iteration": ["benchmarks.local_iteration --rounds 150"],
    "data_parallel": [
        "benchmarks.data_parallel --batch-sizes 10,64 --workers 2 --weak-only",
        "benchmarks.data_parallel --dataset digits --batch-sizes 10 --iterations 1500 --workers 2 "
        "--weak-only",
    ],
    "planning": ["benchmarks.planning"],
    "private_runs": ["benchmarks.private_runs"],
    "pipeline": ["benchmarks.pipeline"],
}
"""By name: the modules that measure the tables of a section, and their arguments."""

OUTPUT = Path("build/bench")


def measure(name: str) -> bool:
    """Runs the commands of one section, and keeps what they print; whether all ended with 0."""
    begin = time.monotonic()
    with (OUTPUT / f"{name}.txt").open("w", encoding="utf-8") as kept:
        for command in COMMANDS[name]:
            print(f"\npython -m {command}", flush=True)
            with subprocess.Popen(
                [sys.executable, "-m", *command.split()],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            ) as process:
                for line in process.stdout or ():
                    print(line, end="", flush=True)
                    kept.write(line)
            if process.returncode:
                print(f"{name} ended with status {process.returncode}", flush=True)
                return False
    print(f"{name}: {time.monotonic() - begin:.0f} s", flush=True)
    return True


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(COMMANDS)))
def main(names: tuple[str, ...]) -> None:
    """Measures most tables of docs/performance.md, or those with NAMES."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    left = list(names or COMMANDS)
    if not names and os.geteuid() != 0:
        left.remove("bandwidth")
        print("bandwidth is left out: it limits links, which needs root")
    failed = [name for name in left if not measure(name)]
    if failed:
        raise click.ClickException(f"not measured: {', '.join(failed)}")


if __name__ == "__main__":
    main()
