"""Counts the samples that a lying server, or a lying worker, of MD-GAN can steal.

    python -m benchmarks.stolen_samples [--attacker server|swap] [--discriminator D] [--moments M]
                                        [--dp-epsilon E] [--iterations I] [--seeds S]

Four workers share 1,438 digits. One of them, the victim, runs mdgan's own code with batches of 10.
The attacker keeps to the protocol: each iteration has one batch to judge and one to train on, and
swaps come as often as by default (`--swap-interval`). It chooses the batches, and the discriminator
that the victim gets in a swap, which is a trap:

* `dropout` (the discriminator of `digits`): the first layer is zero, and all of its units are open.
  A step turns its weights into a sum of the samples, weighed by dropout's masks. The masks follow
  from the run's seed, so the attacker knows them, and ten answers give ten samples.
* `plain` (one hidden layer): ten units open one after another as samples get brighter. The
  gradients of two neighbours differ by the sum of the samples between their thresholds.
* `conv` (the discriminator of `--architecture dcgan`): all pixels pass the convolution, and only
  samples on one side of a plane, a tenth of them, move the last layer. Each swap brings a new
  plane.
* `--attacker swap`: a worker hands a trap (`dropout`) to another one, and gets it back in the next
  swap. It sees no answers, but learns the same from the weights.

With `--moments own` a swap brings only weights, and the victim's optimizer keeps its moments. Then
a first trap makes the optimizer learn moments of the attacker's choice.

A sample is stolen to within t if no pixel of a guess is further than t from it (pixels are in
[-1, 1]). The ratio compares, for each guess, the distance to the nearest of the victim's samples
with the distance to the nearest of as many samples that no worker has; printed is its median. It is
0 for theft, and about 1 for guesses that know nothing of the victim's samples.
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
"""Iterations between swaps: an epoch of the victim, as by default; or 20."""
CLOSE = (1e-3, 1e-2)
DELTA = 1e-4


class Bench(NamedTuple):
    """A victim, and the samples that guesses are compared with.

    Attributes:
        real: the victim's samples, [n, C, H, W].
        strange: samples that no worker has, [m, C, H, W].
        public: samples like the victim's that the attacker has.
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
    """Makes worker 1 of four on digits, the victim."""
    file = dataset_file.load("digits", None)
    builds: Mapping[str, Build] = {
        "dropout": file.models.discriminator,
        "plain": plain,
        "conv": dcgan.make((1, 8, 8), 0, 16)[1],
    }
    models = replace(file.models, discriminator=builds[discriminator])
    values = {"world_size": NUM_WORKERS + 1, "batch_size": BATCH_SIZE}
    settings = MDGANSettings.read({**values, "seed": seed, "iterations": iterations}, file.defaults)
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
    """The guesses at a victim's samples, and how close they came."""

    def __init__(self, real: Tensor, strange: Tensor) -> None:
        num = min(len(real), len(strange))
        self._real, self._strange = real, strange[:num]
        self._nearest = torch.full((len(real),), torch.inf)
        self._ratios = torch.empty(0)

    def add(self, guesses: Tensor) -> None:
        """Compares guesses, [n, C, H, W], with the samples."""
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
        """Median ratio of a guess's distance to the victim's samples and to those of no worker."""
        return float(self._ratios.median())

    def stolen(self, within: float) -> int:
        """The number of the victim's samples that some guess meets to within `within`."""
        return int((self._nearest <= within).sum())

    def __str__(self) -> str:
        num = len(self._nearest)
        counts = ", ".join(f"{self.stolen(each)} to {each:g}" for each in CLOSE)
        return f"of {num}: {counts}; {len(self._ratios)} guesses, ratio {self.ratio:.2f}"


def thief_of(discriminator: str, robbed: Bench, moments: str, patience: int) -> Thief:
    """The thief with a trap of this kind of discriminator."""
    common = robbed.settings, robbed.models, VICTIM, LEVELS
    if discriminator == "dropout":
        return MaskThief(*common, own_moments=moments == "own", tries=1 if patience else 8)
    if discriminator == "plain":
        return BinThief(*common, robbed.public)
    return GateThief(*common, robbed.public, patience)


def rob(robbed: Bench, thief: Thief, iterations: int, moments: str = "given") -> Loot:
    """Lets a server ask the victim in each iteration, and hand it a trap in each swap."""
    loot, every = Loot(robbed.real, robbed.strange), SWAP_EVERY["server"]
    for number in range(1, iterations + 1):
        question = thief.ask()
        robbed.victim.learn(Samples(question.train))
        loot.add(thief.hear(robbed.victim.feedback(Samples(question.judge)).feedback))
        if number % every == 0:
            trap = thief.trap()
            if moments == "own":
                victim_state: State = robbed.victim.discriminator.state()
                trap = {n: t for n, t in trap.items() if n.startswith("model.")}
                trap |= {n: t for n, t in victim_state.items() if n.startswith("optimizer.")}
            robbed.victim.take(trap)
    return loot


def rob_by_swaps(robbed: Bench, iterations: int) -> Loot:
    """Lets a worker hand over a trap in every second swap, and get it back in the next one."""
    loot, every = Loot(robbed.real, robbed.strange), SWAP_EVERY["swap"]
    thief, has_trap = SwapThief(robbed.settings, robbed.models, VICTIM, LEVELS), False
    draw = torch.Generator().manual_seed(robbed.settings.training.seed)
    for number in range(1, iterations + 1):
        generated = torch.rand(2, BATCH_SIZE, *robbed.models.shape, generator=draw) * 2 - 1
        thief.iteration(question := Question(*generated))
        robbed.victim.learn(Samples(question.train))
        robbed.victim.feedback(Samples(question.judge))
        if number % every == 0:
            if has_trap:
                loot.add(thief.look(robbed.victim.discriminator.state()["model.1.weight"]))
            else:
                robbed.victim.take(thief.trap())
            has_trap = not has_trap
    return loot


def main() -> None:
    """Prints the loot of each seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--attacker", choices=("server", "swap"), default="server")
    parser.add_argument("--discriminator", choices=("dropout", "plain", "conv"), default="dropout")
    parser.add_argument("--moments", choices=("given", "own"), default="given")
    parser.add_argument("--dp-epsilon", type=float)
    parser.add_argument("--iterations", type=int, default=3000)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # moments of weights that a trap does not touch
    for seed in range(arguments.seeds):
        with tempfile.TemporaryDirectory() as folder:
            robbed = bench(
                *(
                    arguments.discriminator,
                    seed,
                    arguments.iterations,
                    arguments.dp_epsilon,
                    Path(folder),
                )
            )
            if arguments.attacker == "swap":
                loot = rob_by_swaps(robbed, arguments.iterations)
            else:
                patience = 0 if arguments.dp_epsilon is None else SWAP_EVERY["server"]
                thief = thief_of(arguments.discriminator, robbed, arguments.moments, patience)
                loot = rob(robbed, thief, arguments.iterations, arguments.moments)
            print(f"seed {seed}: {loot}", flush=True)


if __name__ == "__main__":
    main()
