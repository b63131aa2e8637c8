"""Measures what a local iteration of a client costs beside a bare loop that does the same.

    python -m benchmarks.local_iteration [--rounds 100] [--dataset digits] [--batch-size 10]

Both train the same two models on the same samples with one thread and the same fused Adam. G makes
two batches in one forward pass; D takes a forward and a backward pass over the real batch and over
a generated one; then G takes its gradient through D. A user would write the bare loop by hand. Ours
is `Client.train`, which a host of `--algorithm fl-gan` calls once a round.

They take turns in one process, and only the time that the process computed counts, so that other
programs on the machine disturb little. They disturb the least time less than the median.
"""

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import click
import torch
import torch.nn.functional as F
from torch import Tensor

from mdgan.data.dataset_file import DatasetFile, load
from mdgan.data.shard import Shard
from mdgan.families.federated.build import make_client
from mdgan.families.federated.settings import FederatedSettings
from mdgan.gan.randomness import generator_for

CPU = torch.device("cpu")
WARM_UP = 3


def bare_loop(dataset: DatasetFile, images: Tensor, batch_size: int) -> Callable[[int], Tensor]:
    """A loop over iterations as users write it: returns mean losses, and checks nothing."""
    torch.manual_seed(0)
    models = dataset.models
    generator, discriminator = models.generator().train(), models.discriminator().train()
    step_g, step_d = (
        torch.optim.Adam(model.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
        for model in (generator, discriminator)
    )
    weights = list(generator.parameters())

    def train(iterations: int) -> Tensor:
        order = torch.empty(0, dtype=torch.int64)
        losses = []
        for _ in range(iterations):
            generated = generator(torch.randn(2 * batch_size, models.z_dim))
            judged, fake = generated[:batch_size], generated[batch_size:].detach()
            while len(order) < batch_size:
                order = torch.cat([order, torch.randperm(len(images))])
            real, order = images[order[:batch_size]], order[batch_size:]
            step_d.zero_grad()
            real_loss = F.softplus(-discriminator(real)).mean()
            real_loss.backward()  # type: ignore[no-untyped-call] # torch leaves it unannotated
            fake_loss = F.softplus(discriminator(fake)).mean()
            fake_loss.backward()  # type: ignore[no-untyped-call] # torch leaves it unannotated
            step_d.step()
            loss = F.softplus(-discriminator(judged)).mean()
            # As ours does: D's own gradient is not needed here.
            for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
                weight.grad = gradient
            step_g.step()
            losses.append(torch.stack([real_loss.detach() + fake_loss.detach(), loss.detach()]))
        return torch.stack(losses).mean(0)

    return train


def client(
    dataset: DatasetFile, shard: Shard, batch_size: int
) -> tuple[Callable[[int], Tensor], Tensor]:
    """A function that trains rounds with `Client.train`, and the models of the first round."""
    settings = FederatedSettings.read({"world_size": 2, "batch_size": batch_size})
    ours = make_client(1, settings, dataset.models, shard, CPU)
    models = ours.vector.read()

    def train(iterations: int) -> Tensor:
        nonlocal models
        models, losses = ours.train(models, iterations, batch_size)
        return losses

    return train, models


@click.command()
@click.option("--dataset", default="digits", show_default=True)
@click.option("--batch-size", default=10, show_default=True)
@click.option("--samples", default=72, show_default=True, help="Samples of the client.")
@click.option("--iterations", default=30, show_default=True, help="Iterations of a round.")
@click.option("--rounds", default=100, show_default=True)
def main(dataset: str, batch_size: int, samples: int, iterations: int, rounds: int) -> None:
    """Prints milliseconds of computing an iteration: least and median over the rounds."""
    torch.set_num_threads(1)
    file = load(dataset, str(Path(__file__).parent / "datasets"))
    source, indices = file.open(Path()), torch.arange(samples)
    shard = Shard(source, indices, generator_for(0, "shard", 1))
    ways = {
        "bare loop": bare_loop(file, source.images(indices), batch_size),
        "Client.train": client(file, shard, batch_size)[0],
    }
    milliseconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(WARM_UP + rounds):
        for name, train in ways.items():
            begin = time.process_time()
            train(iterations)
            milliseconds[name].append(1e3 * (time.process_time() - begin) / iterations)
    print(f"{dataset}, b = {batch_size}, rounds of {iterations} iterations; ms of computing each")
    counted = {name: times[WARM_UP:] for name, times in milliseconds.items()}
    least = {name: min(times) for name, times in counted.items()}
    for name, times in counted.items():
        ratio = least[name] / least["bare loop"]
        median = statistics.median(times)
        print(f"{name:14} least {least[name]:6.3f}  median {median:6.3f}  {ratio:5.2f} ×")


if __name__ == "__main__":
    main()
