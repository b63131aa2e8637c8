"""Measures what NVFlare's tunnel costs: iterations a second of a job and of plain TLS links.

    pip install 'mdgan[nvflare]'
    python -m benchmarks.nvflare_cost [--turns 3] [--iterations 600] [--config FILE]

Starts NVFlare's try-out with a server and three sites. In each turn it runs a study as NVFlare's
job, then the same study with `mdgan train --ranks 0` and three `mdgan join` on this machine, over
loopback TLS. Prints each figure, medians and their ratio. Run it on an otherwise idle machine.
"""

import json
import re
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from tests.poc import Poc, started
from tests.processes import MDGAN, finish, free_port, start

_SPEED = re.compile(r"done: .*?\(([\d.]+) it/s\)")


@click.command()
@click.option("--turns", default=3, show_default=True)
@click.option("--iterations", default=600, show_default=True)
@click.option("--config", type=Path, help="More settings of the study.")
def main(turns: int, iterations: int, config: Path | None) -> None:
    """Runs both in turns, and prints their speeds."""
    changes = json.loads(config.read_text()) if config else {}
    changes |= {"iterations": iterations, "eval_interval": 0, "sample_interval": 0}
    changes |= {"checkpoint_interval": 0}
    speeds: dict[str, list[float]] = {"job": [], "join": []}
    with tempfile.TemporaryDirectory() as folder, started(Path(folder)) as poc:
        for turn in range(turns):
            status, log, _ = poc.run_job(f"turn{turn}", **changes, seed=turn)
            assert status == "FINISHED:COMPLETED", log
            speeds["job"].append(speed(log))
            speeds["join"].append(speed_of_join(poc, turn))
            print(*(f"{name} {each[-1]:.1f} it/s" for name, each in speeds.items()), sep=" | ")
    job, join = (statistics.median(each) for each in speeds.values())
    print(
        f"medians: {job:.1f} and {join:.1f} it/s; the tunnel has {job / join:.2f} times the speed"
    )


def speed(output: str) -> float:
    """Iterations a second, from the last line of a run's output."""
    (number,) = _SPEED.findall(output)
    return float(number)


def speed_of_join(poc: Poc, turn: int) -> float:
    """Runs the study of a turn without NVFlare; returns iterations a second."""
    link = ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    shown = ["--config", f"turn{turn}.json", *link, "--ranks", "0", "--out", f"alone{turn}"]
    server = start([*MDGAN, "train", *shown, "--credentials", "authority/server.cred"], poc.folder)
    hosts = [
        start([*MDGAN, "join", *link, "--credentials", f"authority/site-{n}.cred"], poc.folder)
        for n in (1, 2, 3)
    ]
    ended: Sequence[object] = [finish(each) for each in hosts]
    done = finish(server)
    assert done.status == 0, (done, ended)
    return speed(done.output)


if __name__ == "__main__":
    main()
