"""Measures which broken mechanisms `mdgan audit` contradicts: in how many runs of each.

    python -m benchmarks.audit_power [--runs 20] [--epsilons 1,3,8] [--only TEXT] [--workers 4]
        [--canaries 100] [--steps 60]

Each worker of a run has 300 digits, and what `mdgan train` would give it: a budget with its own
ledger, a plan for the stated ε, and canaries. There is no server. A worker of `mdgan` trains a
small discriminator with DP-SGD; one of `moments` computes its one message. To break a mechanism,
this program replaces one function, as a programmer's mistake might change it. Then it reads the
canaries' files as the audit does.
"""

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import torch
from torch import nn

from benchmarks.broken_mechanisms import CPU, MECHANISMS, NOW, Broken, Places
from mdgan.audit.bound import bound_of_run
from mdgan.data import dataset_file
from mdgan.data.shard import Shard
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.families.mdgan.worker import Worker
from mdgan.families.moments.build import draw_features
from mdgan.families.moments.host import SumTeller
from mdgan.families.moments.settings import FeatureSettings, MomentsSettings
from mdgan.gan.build import make_discriminator_learner
from mdgan.privacy.budget import Budget, make_half, open_budget
from mdgan.privacy.canaries import CANARIES
from mdgan.privacy.contents import Contents
from mdgan.privacy.real_half import PoissonHalf
from mdgan.records.audit import Bound

SAMPLES, DELTA, BATCH = 300, 1e-4, 32


def discriminator() -> nn.Module:
    """A network with 6,241 weights that judges 8 × 8 pixels."""
    layers = nn.Linear(64, 80), nn.LeakyReLU(0.2), nn.Dropout(0.2), nn.Linear(80, 12)
    return nn.Sequential(nn.Flatten(), *layers, nn.LeakyReLU(0.2), nn.Linear(12, 1))


@contextmanager
def in_place(places: list[Places]) -> Iterator[None]:
    """Replaces the right functions by broken ones inside the block."""
    with ExitStack() as stack:
        for owner, name, function in places:
            stack.enter_context(patch.object(owner, name, function))
        yield


def learner(rank: int, shard: Shard, settings: Any, budget: Budget) -> Worker:
    """Makes a worker of `mdgan` that trains with DP-SGD."""
    half = make_half(shard, rank, settings, budget)
    assert half is not None
    return make_discriminator_learner(
        *(Worker, rank, discriminator, settings.training, half, CPU), real_half=half
    )


def take_steps(shards: Mapping[int, Shard], settings: Any, budgets: Mapping[int, Budget]) -> None:
    """Lets one worker after another take all of its steps."""
    for rank, shard in shards.items():
        NOW["rank"] = rank
        worker = learner(rank, shard, settings, budgets[rank])
        assert isinstance(worker.real_half, PoissonHalf)
        while not worker.real_half.over:
            worker.learn_real_half()
            worker.real_half.taken()
            worker.drop_real_half()


def tell(shards: Mapping[int, Shard], budgets: Mapping[int, Budget]) -> None:
    """Lets each worker of `moments` compute its one message."""
    features = draw_features(FeatureSettings(), (1, 8, 8), 10, 0)
    for rank, shard in shards.items():
        NOW["rank"] = rank
        SumTeller(shard, features, budgets[rank], 1).tell()


def audited(
    algorithm: str,
    broken: Broken,
    epsilon: float,
    canaries: int,
    steps: int,
    shards: Mapping[int, Shard],
) -> Bound:
    """Runs one broken mechanism, and returns the audit's bound on its ε."""
    kind: Any = MomentsSettings if algorithm == "moments" else MDGANSettings
    privacy = {"dp_epsilon": epsilon, "dp_delta": DELTA, "audit_canaries": canaries}
    more = {} if algorithm == "moments" else {"batch_size": BATCH, "iterations": steps}
    settings = kind.read({**privacy, **more})
    with tempfile.TemporaryDirectory() as name, in_place(broken()):
        folder, budgets = Path(name), dict[int, Budget]()
        for rank, shard in shards.items():
            budget = open_budget(rank, len(shard), settings, folder, partial(Contents.of, shard))
            assert budget is not None
            assert budget.canaries is not None
            budget.canaries.open(folder / CANARIES / f"{rank}.json")
            budgets[rank] = budget
        if algorithm == "moments":
            tell(shards, budgets)
        else:
            take_steps(shards, settings, budgets)
        for budget in budgets.values():
            budget.close()
        bound = bound_of_run(folder, DELTA, epsilon)
        assert bound is not None
        return bound


def digits(folder: Path, workers: int) -> dict[int, Shard]:
    """A shard of digits for each worker."""
    whole = dataset_file.load("digits", None).open(folder)
    places = torch.arange(workers * SAMPLES).view(workers, SAMPLES)
    return {
        rank + 1: Shard(whole, indices, torch.Generator().manual_seed(rank))
        for rank, indices in enumerate(places)
    }


@click.command()
@click.option("--runs", default=20, show_default=True)
@click.option("--epsilons", default="1,3,8", show_default=True)
@click.option("--only", default="", help="Try only mechanisms whose names begin with this.")
@click.option("--algorithm", default="mdgan,moments", show_default=True)
@click.option("--canaries", default=100, show_default=True, help="Canaries of each worker.")
@click.option("--steps", default=60, show_default=True, help="Steps of each worker of mdgan.")
@click.option("--workers", default=4, show_default=True)
def main(
    runs: int, epsilons: str, only: str, algorithm: str, canaries: int, steps: int, workers: int
) -> None:
    """Prints how many runs of each mechanism are contradicted, by ε, and by what."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        shards = digits(Path(name), workers)
        for kind in algorithm.split(","):
            for mechanism, broken in MECHANISMS[kind].items():
                if not mechanism.startswith(only):
                    continue
                for epsilon in map(float, epsilons.split(",")):
                    begin = time.perf_counter()
                    bounds = [
                        audited(kind, broken, epsilon, canaries, steps, shards) for _ in range(runs)
                    ]
                    wrong = sum(one.contradicts for one in bounds)
                    guessed = sum((one.surely or 0) > one.stated for one in bounds)
                    shown = next((one for one in bounds if one.contradicts), bounds[-1])
                    took = (time.perf_counter() - begin) / runs
                    click.echo(
                        f"{kind:8} {mechanism:32} ε = {epsilon:<4g} contradicted {wrong:3} of "
                        f"{runs} (by guesses {guessed:3}; {took:.1f} s)  {shown}"
                    )


if __name__ == "__main__":
    main()
