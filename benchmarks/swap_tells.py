"""Measures what a discriminator tells of the last batch of the worker that trained it.

    python -m benchmarks.swap_tells [--seeds S]

Four workers share 1,438 digits and train as in MD-GAN, with b real and b generated samples a step.
An observer gets the discriminator of one of them after a step, and perhaps also as it was some
steps before, knows all digits, and looks for the b of that last step. The gradient of the first
layer is a sum of δ xᵀ over the samples x of the batch. So what the observer makes of the gradient
shows the samples: a digit counts by how little of it lies outside the k directions that matter most
there, and of k the observer takes what finds most. It prints how many of the samples are among its
b best guesses, and the largest relative error of the gradient. Takes a few seconds.
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
"""Steps between the two states of weights that an observer gets."""
_EVERY = 5
_FIRST = "1.weight"
_MOST_DIRECTIONS = (4, 8, 12, 16, 24, 32)


class Step(NamedTuple):
    """One step of the worker that is observed.

    Attributes:
        before: its discriminator's states, by how many steps before.
        after: its discriminator's state after the step.
        own: the state of the observer's own discriminator after the same step.
        gradient: of the first layer, [256, 64].
        batch: which digits were its real samples, int64 [b].
    """

    before: Mapping[int, Mapping[str, Tensor]]
    after: Mapping[str, Tensor]
    own: Mapping[str, Tensor]
    gradient: Tensor
    batch: Tensor


class Told(NamedTuple):
    """What an observer finds.

    Attributes:
        found: the part of the real samples that are among the b best guesses.
        error: the largest error of the gradient, relative to its norm.
    """

    found: float
    error: float


Guess = Callable[[Step], Tensor]
"""From what an observer sees of a step to what it takes for the gradient, [256, 64]."""


def moments(state: Mapping[str, Tensor], name: str) -> Tensor:
    """One of Adam's moments of the first layer."""
    return state[f"optimizer.{_FIRST}.{name}"]


def from_moments(settings: MDGANSettings) -> Guess:
    """Exactly the gradient: m' = β1 m + (1 − β1) g."""
    beta = settings.training.policy("discriminator").betas[0]

    def guess(step: Step) -> Tensor:
        before, after = moments(step.before[1], "exp_avg"), moments(step.after, "exp_avg")
        return (after.double() - beta * before.double()) / (1 - beta)

    return guess


def from_weights(settings: MDGANSettings, distance: int) -> Guess:
    """What the weights moved by, times √v of the observer's own optimizer, for lack of the other's.

    All discriminators begin equal and see samples alike, so their v are alike.
    """
    rate = settings.training.policy("discriminator").learning_rate

    def guess(step: Step) -> Tensor:
        name = f"model.{_FIRST}"
        moved = (step.before[distance][name].double() - step.after[name].double()) / rate
        return moved * moments(step.own, "exp_avg_sq").double().sqrt()

    return guess


def observers(settings: MDGANSettings) -> dict[str, Guess]:
    """By what it sees, how an observer guesses."""
    return {
        "two states with moments, one step apart": from_moments(settings),
        "one state with moments": lambda step: moments(step.after, "exp_avg").double(),
        **{
            f"two states of weights, {distance} step(s) apart": from_weights(settings, distance)
            for distance in DISTANCES
        },
    }


def make_settings(seed: int) -> MDGANSettings:
    """Of the digits, with small batches, as in the paper."""
    given = {"world_size": NUM_WORKERS + 1, "batch_size": BATCH_SIZE, "seed": seed}
    return MDGANSettings.read({**given}, dataset_file.load("digits", None).defaults)


def digits() -> Tensor:
    """All of them, [1438, 64]."""
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
    observed, own, assignment = workers[1], workers[2], assign(sorted(workers), 2)
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
            after, beside = observed.discriminator.state(), own.discriminator.state()
            yield Step(before, after, beside, gradient_of(observed), batch)
        by_batch = [(feedbacks[j] + feedbacks[j + 2]) / NUM_WORKERS for j in range(2)]
        learner.backward(torch.stack(by_batch))
        learner.step()


def next_batch(shard: Shard) -> Tensor:
    """Which digits a shard draws next; they are not drawn yet."""
    state = shard.state()
    positions = shard.next_positions(BATCH_SIZE)
    shard.load_state(state)
    return shard.indices[positions]


def gradient_of(worker: Worker) -> Tensor:
    """The gradient of the first layer that the worker has just stepped with."""
    (gradient,) = (p.grad for n, p in worker.discriminator.model.named_parameters() if n == _FIRST)
    assert gradient is not None
    return gradient.double()


def told(guess: Guess, seen: list[Step], candidates: Tensor) -> Told:
    """What an observer finds in some steps, among candidates [n, 64]."""
    guesses = [guess(step) for step in seen]
    errors = [
        float((guessed - step.gradient).norm() / step.gradient.norm())
        for guessed, step in zip(guesses, seen, strict=True)
    ]
    spans = [torch.linalg.svd(guessed)[2] for guessed in guesses]

    def part_found(num_directions: int) -> float:
        hits = 0
        for span, step in zip(spans, seen, strict=True):
            inside = (candidates @ span[:num_directions].T).norm(dim=1) / candidates.norm(dim=1)
            best = inside.topk(BATCH_SIZE).indices
            hits += int(torch.isin(best, step.batch).sum())
        return hits / (BATCH_SIZE * len(seen))

    return Told(max(map(part_found, _MOST_DIRECTIONS)), max(errors))


def main() -> None:
    """Prints a line for each observer."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=5)
    torch.set_num_threads(1)
    seeds, candidates = range(parser.parse_args().seeds), digits()
    seen = [step for seed in seeds for step in steps(make_settings(seed))]
    print(f"{len(seen)} steps of {len(seeds)} runs, {BATCH_SIZE} of {len(candidates)} digits each")
    for name, guess in observers(make_settings(0)).items():
        found, error = told(guess, seen, candidates)
        print(f"{name:40} {found:6.1%} of the samples found, error of the gradient {error:.1e}")


if __name__ == "__main__":
    main()
