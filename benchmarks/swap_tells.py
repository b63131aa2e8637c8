"""Measures how many samples of a worker's last batch its discriminator reveals.

    python -m benchmarks.swap_tells [--seeds S]

Four workers share 1,438 digits and train as in MD-GAN, with b real and b generated samples a step.
An observer gets the discriminator of one of them after a step, and perhaps also its state some
steps before. It knows all digits, and looks for the b of that last step. The gradient of the first
layer is a sum of δ xᵀ over the samples x of the batch, so the observer's estimate of the gradient
shows the samples. It ranks digits by how much of each lies in the k strongest directions of the
estimate, with the best k. Prints the part of the samples that are among its b best guesses, and the
largest relative error of the estimate. Takes a few seconds.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from mdgan.data import dataset_file
from mdgan.data.partition import partition
from mdgan.data.shard import Shard
from mdgan.families.mdgan.algorithm import assign
from mdgan.families.mdgan.build import make_generator_learner, make_worker
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.randomness import generator_for

NUM_WORKERS, BATCH_SIZE, NUM_STEPS = 4, 4, 100
DISTANCES = (1, 5, 20)
"""Numbers of steps between the two states of weights that an observer gets."""
_EVERY = 5
_FIRST = "1.weight"
_MOST_DIRECTIONS = (4, 8, 12, 16, 24, 32)


class Step(NamedTuple):
    """One step of the worker that is observed.

    Attributes:
        before: states of its discriminator, by number of steps before the end of this one.
        after: state of its discriminator after the step.
        of_observer: the state of the observer's own discriminator after the same step.
        gradient: of the first layer, [256, 64].
        batch: indices of the digits that were its real samples, int64 [b].
    """

    before: Mapping[int, Mapping[str, Tensor]]
    after: Mapping[str, Tensor]
    of_observer: Mapping[str, Tensor]
    gradient: Tensor
    batch: Tensor


class Leak(NamedTuple):
    """The findings of an observer.

    Attributes:
        part: of the real samples, those among the b best guesses.
        error: the largest error of the gradient, relative to its norm.
    """

    part: float
    error: float


Guess = Callable[[Step], Tensor]
"""From a step, of which an observer sees a part, to its estimate of the gradient, [256, 64]."""


def moments(state: Mapping[str, Tensor], name: str) -> Tensor:
    """One of Adam's moments of the first layer."""
    return state[f"optimizer.{_FIRST}.{name}"]


def from_moments(settings: MDGANSettings) -> Guess:
    """Computes the gradient exactly, from m' = β1 m + (1 − β1) g."""
    beta = settings.training.policy("discriminator").betas[0]

    def guess(step: Step) -> Tensor:
        before, after = moments(step.before[1], "exp_avg"), moments(step.after, "exp_avg")
        return (after.double() - beta * before.double()) / (1 - beta)

    return guess


def from_weights(settings: MDGANSettings, distance: int) -> Guess:
    """Estimates the gradient: the weights' change times √v of the observer's own optimizer.

    The observer does not see the other's v. But all discriminators begin equal and see similar
    samples, so their v are similar.
    """
    rate = settings.training.policy("discriminator").learning_rate

    def guess(step: Step) -> Tensor:
        name = f"model.{_FIRST}"
        moved = (step.before[distance][name].double() - step.after[name].double()) / rate
        return moved * moments(step.of_observer, "exp_avg_sq").double().sqrt()

    return guess


def observers(settings: MDGANSettings) -> dict[str, Guess]:
    """The estimate of each observer, by the states that it sees."""
    return {
        "two states with moments, one step apart": from_moments(settings),
        "one state with moments": lambda step: moments(step.after, "exp_avg").double(),
        **{
            f"two states of weights, {distance} step(s) apart": from_weights(settings, distance)
            for distance in DISTANCES
        },
    }


def make_settings(seed: int) -> MDGANSettings:
    """Settings for the digits, with small batches, as in the paper."""
    values = {"world_size": NUM_WORKERS + 1, "batch_size": BATCH_SIZE, "seed": seed}
    return MDGANSettings.read({**values}, dataset_file.load("digits", None).defaults)


def digits() -> Tensor:
    """All digits, [1438, 64]."""
    source = dataset_file.load("digits", None).open(Path())
    return source.images(torch.arange(len(source))).flatten(1).double()


def steps(settings: MDGANSettings) -> Iterator[Step]:
    """Trains, and yields steps of worker 1."""
    dataset = dataset_file.load("digits", None)
    source, cpu = dataset.open(Path()), torch.device("cpu")
    parts = partition(source.labels, settings.data.partition, NUM_WORKERS, settings.training.seed)
    shards = [
        Shard(source, part, generator_for(settings.training.seed, n))
        for n, part in enumerate(parts)
    ]
    workers = {
        n: make_worker(n, settings, dataset.models, shard, cpu) for n, shard in enumerate(shards, 1)
    }
    learner = make_generator_learner(settings, dataset.models, cpu)
    observed, observer, assignment = workers[1], workers[2], assign(sorted(workers), 2)
    states: list[Mapping[str, Tensor]] = []
    for number in range(NUM_STEPS):
        generated, feedbacks = learner.generate(2), []
        states.append(observed.discriminator.state())
        batch = next_batch(shards[0])
        for n, worker in workers.items():
            worker.learn(generated[assignment[n].train])
            feedbacks.append(worker.feedback(generated[assignment[n].judge]).feedback)
        if number >= max(DISTANCES) and number % _EVERY == 0:
            before = {distance: states[-distance] for distance in DISTANCES}
            after, beside = observed.discriminator.state(), observer.discriminator.state()
            yield Step(before, after, beside, gradient_of(observed), batch)
        by_batch = [(feedbacks[j] + feedbacks[j + 2]) / NUM_WORKERS for j in range(2)]
        learner.backward(torch.stack(by_batch))
        learner.step()


def next_batch(shard: Shard) -> Tensor:
    """Indices of the digits that a shard draws next, without drawing them."""
    state = shard.state()
    positions = shard.next_positions(BATCH_SIZE)
    shard.load_state(state)
    return shard.indices[positions]


def gradient_of(worker: Worker) -> Tensor:
    """The gradient of the first layer that the worker has just stepped with."""
    (gradient,) = (p.grad for n, p in worker.discriminator.model.named_parameters() if n == _FIRST)
    assert gradient is not None
    return gradient.double()


def leak_of(guess: Guess, observed: list[Step], candidates: Tensor) -> Leak:
    """The findings of an observer in some steps, among candidates [n, 64]."""
    guesses = [guess(step) for step in observed]
    errors = [
        float((guessed - step.gradient).norm() / step.gradient.norm())
        for guessed, step in zip(guesses, observed, strict=True)
    ]
    spans = [torch.linalg.svd(guessed)[2] for guessed in guesses]

    def part_found(num_directions: int) -> float:
        hits = 0
        for span, step in zip(spans, observed, strict=True):
            inside = (candidates @ span[:num_directions].T).norm(dim=1) / candidates.norm(dim=1)
            best = inside.topk(BATCH_SIZE).indices
            hits += int(torch.isin(best, step.batch).sum())
        return hits / (BATCH_SIZE * len(observed))

    return Leak(max(map(part_found, _MOST_DIRECTIONS)), max(errors))


def main() -> None:
    """Prints a line for each observer."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=5)
    torch.set_num_threads(1)
    seeds, candidates = range(parser.parse_args().seeds), digits()
    observed = [step for seed in seeds for step in steps(make_settings(seed))]
    print(
        f"{len(observed)} steps of {len(seeds)} runs, {BATCH_SIZE} of {len(candidates)} digits each"
    )
    for name, guess in observers(make_settings(0)).items():
        part, error = leak_of(guess, observed, candidates)
        print(f"{name:40} {part:6.1%} of the samples found, error of the gradient {error:.1e}")


if __name__ == "__main__":
    main()
