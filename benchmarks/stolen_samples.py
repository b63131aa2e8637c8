"""Steals samples as a server or another worker of MD-GAN that lies could, and counts them.

    python -m benchmarks.stolen_samples [--attacker server|swap] [--discriminator D] [--moments M]
                                        [--dp-epsilon E] [--iterations I] [--seeds S]

Four workers share 1,438 digits. One of them, the victim, runs mdgan's own code with batches of 10,
and is asked nothing that a server may not ask: each iteration once, one batch to judge and one to
train on, and swaps as often as by default (`--swap-interval`). What the attacker chooses are the
batches and what comes in a swap: a discriminator that is a trap.

* `dropout` (the discriminator of `digits`): the first layer is zero, all of its units are open, and
  what it becomes is a sum of the samples, weighed by dropout's masks. These follow from the run's
  seed, so the attacker knows them, and ten answers give ten samples.
* `plain` (one hidden layer): ten units open one after another as a sample is brighter. What two
  neighbours differ in is the sum of the samples between.
* `conv` (that of `--architecture dcgan`): all pixels pass the convolution, and only samples on one
  side of a plane, a tenth of them, move the last layer. Another plane comes with each swap.
* `--attacker swap`: a worker that hands a trap (`dropout`) to another one, and gets it back in the
  next swap, learns the same from weights alone. It sees no answers.

With `--moments own` a swap brings weights alone and the optimizer keeps what it had: a first trap
then has it learn moments of the attacker's choice.

A sample is stolen to within t if a guess is nowhere further from it than t (pixels are in [-1, 1]).
The ratio is the median, over all guesses, of the distance to the nearest of the victim's samples in
parts of that to the nearest of as many samples that no worker has: 0 for theft, about 1 for guesses
that know nothing of the victim's samples.
"""

import argparse
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.traps import BinThief, GateThief, MaskThief, Question, State, SwapThief, Thief
from mdgan.data import dataset_file
from mdgan.data.partition import partition
from mdgan.data.shard import Shard
from mdgan.families.mdgan.build import make_worker
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.build import Build, Models
from mdgan.gan.labels import Samples
from mdgan.gan.randomness import generator_for
from mdgan.models import dcgan
from mdgan.privacy.budget import open_budget
from mdgan.privacy.contents import Contents

NUM_WORKERS, VICTIM, BATCH_SIZE, LEVELS = 4, 1, 10, 16
SWAP_EVERY = {"server": 36, "swap": 20}
"""An epoch of the victim, as by default; what `mdgan train --help` has in its examples."""
CLOSE = (1e-3, 1e-2)
DELTA = 1e-4


class Bench(NamedTuple):
    """A victim and what is known of it.

    Attributes:
        real: its samples, [n, C, H, W].
        strange: samples that no worker has, [m, C, H, W].
        public: samples like the victim's, which the attacker has.
    """

    settings: MDGANSettings
    models: Models
    victim: Worker
    real: Tensor
    strange: Tensor
    public: Tensor


def plain() -> nn.Module:
    """The discriminator of the README's example."""
    layers = nn.Linear(64, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1)
    return nn.Sequential(nn.Flatten(), *layers)


def bench(
    discriminator: str, seed: int, iterations: int, epsilon: float | None, folder: Path
) -> Bench:
    """Worker 1 of four on digits."""
    file = dataset_file.load("digits", None)
    builds: Mapping[str, Build] = {
        "dropout": file.models.discriminator,
        "plain": plain,
        "conv": dcgan.make((1, 8, 8), 0, 16)[1],
    }
    models = replace(file.models, discriminator=builds[discriminator])
    given = {"world_size": NUM_WORKERS + 1, "batch_size": BATCH_SIZE}
    settings = MDGANSettings.read({**given, "seed": seed, "iterations": iterations}, file.defaults)
    source, held_out = file.open(Path()), file.open_held_out(Path())
    mine, others, *_ = partition(source.labels, settings.data.partition, NUM_WORKERS, seed)
    shard, budget, trained = Shard(source, mine, generator_for(seed, 1)), None, settings
    if epsilon is not None:
        trained = settings.but(dp_epsilon=epsilon, dp_delta=DELTA)
        budget = open_budget(VICTIM, len(mine), trained, folder, lambda: Contents.of(shard))
    victim = make_worker(VICTIM, trained, models, shard, torch.device("cpu"), budget)
    real, strange = source.images(mine), held_out.images(torch.arange(len(held_out)))
    return Bench(settings, models, victim, real, strange, source.images(others))


class Loot:
    """What was stolen of a victim."""

    def __init__(self, real: Tensor, strange: Tensor) -> None:
        num = min(len(real), len(strange))
        self._real, self._strange = real, strange[:num]
        self._nearest = torch.full((len(real),), torch.inf)
        self._ratios = torch.empty(0)

    def add(self, guesses: Tensor) -> None:
        """Counts guesses, [n, C, H, W]."""
        if not len(guesses):
            return
        off = (guesses[:, None] - self._real[None]).flatten(2).abs().amax(2)
        self._nearest = torch.minimum(self._nearest, off.amin(0))
        members, strange = (
            torch.cdist(guesses.flatten(1), others.flatten(1)).amin(1)
            for others in (self._real[: len(self._strange)], self._strange)
        )
        self._ratios = torch.cat([self._ratios, members / strange.clamp(1e-9)])

    @property
    def ratio(self) -> float:
        """The median of how far a guess is from the victim's samples, in parts of from others."""
        return float(self._ratios.median())

    def stolen(self, within: float) -> int:
        """How many samples of the victim a guess is nowhere further from than that."""
        return int((self._nearest <= within).sum())

    def __str__(self) -> str:
        num = len(self._nearest)
        counts = ", ".join(f"{self.stolen(each)} to {each:g}" for each in CLOSE)
        return f"of {num}: {counts}; {len(self._ratios)} guesses, ratio {self.ratio:.2f}"


def thief_of(discriminator: str, own: Bench, moments: str, patience: int) -> Thief:
    """The server's trap for a discriminator."""
    common = own.settings, own.models, VICTIM, LEVELS
    if discriminator == "dropout":
        return MaskThief(*common, own_moments=moments == "own", tries=1 if patience else 8)
    if discriminator == "plain":
        return BinThief(*common, own.public)
    return GateThief(*common, own.public, patience)


def rob(own: Bench, thief: Thief, iterations: int, moments: str = "given") -> Loot:
    """A server asks a worker something in each iteration, and has it take a trap in each swap."""
    loot, every = Loot(own.real, own.strange), SWAP_EVERY["server"]
    for number in range(1, iterations + 1):
        asked = thief.ask()
        own.victim.learn(Samples(asked.train))
        loot.add(thief.hear(own.victim.feedback(Samples(asked.judge)).feedback))
        if number % every == 0:
            given = thief.trap()
            if moments == "own":
                kept: State = own.victim.discriminator.state().to_dict()
                given = {n: t for n, t in given.items() if n.startswith("model.")}
                given |= {n: t for n, t in kept.items() if n.startswith("optimizer.")}
            own.victim.take(given)
    return loot


def rob_by_swaps(own: Bench, iterations: int) -> Loot:
    """A worker gives a trap in every second swap, and gets it back in the next one."""
    loot, every = Loot(own.real, own.strange), SWAP_EVERY["swap"]
    thief, has_trap = SwapThief(own.settings, own.models, VICTIM, LEVELS), False
    draw = torch.Generator().manual_seed(own.settings.training.seed)
    for number in range(1, iterations + 1):
        generated = torch.rand(2, BATCH_SIZE, *own.models.shape, generator=draw) * 2 - 1
        thief.iteration(asked := Question(*generated))
        own.victim.learn(Samples(asked.train))
        own.victim.feedback(Samples(asked.judge))
        if number % every == 0:
            if has_trap:
                loot.add(thief.look(own.victim.discriminator.state()["model.1.weight"]))
            else:
                own.victim.take(thief.trap())
            has_trap = not has_trap
    return loot


def main() -> None:
    """Prints a line for each seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--attacker", choices=("server", "swap"), default="server")
    parser.add_argument("--discriminator", choices=("dropout", "plain", "conv"), default="dropout")
    parser.add_argument("--moments", choices=("given", "own"), default="given")
    parser.add_argument("--dp-epsilon", type=float)
    parser.add_argument("--iterations", type=int, default=3000)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # moments of weights that a trap leaves alone
    for seed in range(given.seeds):
        with tempfile.TemporaryDirectory() as folder:
            own = bench(
                *(given.discriminator, seed, given.iterations, given.dp_epsilon, Path(folder))
            )
            if given.attacker == "swap":
                loot = rob_by_swaps(own, given.iterations)
            else:
                patience = 0 if given.dp_epsilon is None else SWAP_EVERY["server"]
                thief = thief_of(given.discriminator, own, given.moments, patience)
                loot = rob(own, thief, given.iterations, given.moments)
            print(f"seed {seed}: {loot}", flush=True)


if __name__ == "__main__":
    main()
