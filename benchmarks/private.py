"""Measures what differential privacy costs: time of a worker's iteration with and without it.

    python -m benchmarks.private [--rounds 30] [--batch-size 64] [--samples 1000]

For each of some discriminators, one worker takes a local step and computes its feedback, on random
samples and with one thread. It does so on shuffled batches, on batches by Poisson sampling, and on
the latter with bounds and noise. The three take turns in one process, and only the time that the
process computed counts. `private_runs.py` measures whole runs.
"""

import time
from math import inf
from statistics import median

import click
import torch
from torch import Tensor

from mdgan.data import Partitioner, dataset_file
from mdgan.data.shard import Shard
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.build import Models, make_discriminator_learner
from mdgan.gan.labels import Samples
from mdgan.gan.settings import TrainingSettings
from mdgan.models.blocks import with_group_norm
from mdgan.models.registry import architecture
from mdgan.privacy.real_half import PoissonHalf, SeededSteps

CPU = torch.device("cpu")
DATASETS = ("digits", "mnist", "cifar10")
CONVOLUTIONS = "digits, acgan"
"""Stands for a discriminator with GroupNorm on samples like those of digits."""
NUM_CLASSES, WIDTH = 10, 4
WAYS = ("shuffled", "poisson", "private")
WARM_UP = 3


class RandomSamples(Partitioner):
    """A data set of given pictures, with labels in turn.

    Args:
        images: [n, C, H, W].
    """

    def __init__(self, images: Tensor) -> None:
        self._images = images
        self.labels = torch.arange(len(images)) % NUM_CLASSES

    def images(self, indices: Tensor) -> Tensor:
        """The pictures at some indices."""
        return self._images[indices]


def models_of(name: str) -> Models:
    """The models of a data set, or those of `CONVOLUTIONS`."""
    if name == CONVOLUTIONS:
        shape = dataset_file.load("digits", None).models.shape
        return architecture("acgan").make(shape, NUM_CLASSES, WIDTH)
    return dataset_file.load(name, None).models


def make_worker(way: str, models: Models, num_samples: int, batch_size: int) -> Worker:
    """Makes a worker that draws its batches in one of the ways."""
    images = torch.rand(num_samples, *models.shape) * 2 - 1
    shard = Shard(RandomSamples(images), torch.arange(num_samples), torch.Generator())
    half = None
    if way != "shuffled":
        clip, noise = (1.0, 1.0) if way == "private" else (inf, 0.0)
        half = PoissonHalf(
            shard, SeededSteps(b"known"), batch_size, clip=clip, noise=noise, tells_loss=False
        )
    settings = TrainingSettings(batch_size=batch_size)

    def build() -> torch.nn.Module:
        return with_group_norm(models.discriminator)

    return make_discriminator_learner(
        *(Worker, 1, build, settings, half or shard, CPU), real_half=half
    )


@click.command()
@click.option("--rounds", default=30, show_default=True)
@click.option("--batch-size", default=64, show_default=True)
@click.option("--samples", default=1000, show_default=True)
def main(rounds: int, batch_size: int, samples: int) -> None:
    """Prints median milliseconds of an iteration, and the ratio of private to shuffled."""
    torch.set_num_threads(1)
    click.echo(f"{'':14}" + "".join(f"{way:>12}" for way in WAYS) + f"{'private/shuffled':>20}")
    for name in (DATASETS[0], CONVOLUTIONS, *DATASETS[1:]):
        models = models_of(name)
        workers = {way: make_worker(way, models, samples, batch_size) for way in WAYS}
        labels = torch.arange(batch_size) % NUM_CLASSES if name == CONVOLUTIONS else None
        fake = Samples(torch.rand(batch_size, *models.shape) * 2 - 1, labels)
        seconds_of: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(WARM_UP + rounds):
            for way, worker in workers.items():
                begin = time.process_time()
                worker.learn(fake)
                worker.feedback(fake)
                seconds_of[way].append(time.process_time() - begin)
        # Batches by Poisson sampling differ in size: the least time would be that of a small batch.
        usual = {way: 1e3 * median(seconds[WARM_UP:]) for way, seconds in seconds_of.items()}
        ratio = usual["private"] / usual["shuffled"]
        row = "".join(f"{milliseconds:9.2f} ms" for milliseconds in usual.values())
        click.echo(f"{name:14}{row}{ratio:18.2f} ×")


if __name__ == "__main__":
    main()
