"""Membership inference against discriminators: samples with high logits were likely trained on.

Hayes et al. 2019, "LOGAN: Membership Inference Attacks Against Generative Models", section 3.2: the
attacker has the discriminator. Here it is the worker that gets a discriminator in a swap, or the
host that stores its state.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import torch
from torch import Tensor, nn

from mdgan.audit.separation import separate_alike
from mdgan.audit.target import Target
from mdgan.gan.labels import Samples, call, num_classes_of
from mdgan.gan.losses import as_output
from mdgan.gan.randomness import generator_for
from mdgan.records.audit import Judged
from mdgan.records.rows import Swap

_AT_ONCE = 256


@dataclass
class Visits:
    """The workers that trained a discriminator."""

    last: int
    iterations: dict[int, int] = field(default_factory=dict)  # of each worker

    def stay(self, worker: int, iterations: int) -> None:
        """Notes that a worker trained the discriminator for a number of iterations."""
        if iterations > 0:
            self.last = worker
            self.iterations[worker] = self.iterations.get(worker, 0) + iterations

    def averaged_with(self, other: "Visits") -> "Visits":
        """The visits of the mean of two discriminators, which both sets of workers trained."""
        both = Counter(self.iterations) + Counter(other.iterations)
        return Visits(self.last, dict(both))


def visits(swaps: Iterable[Swap], workers: Sequence[int], iteration: int) -> dict[int, Visits]:
    """The visits of the discriminator that each worker holds after an iteration."""
    by_holder = {worker: Visits(worker) for worker in workers}
    since = 0
    for swap in sorted(swaps, key=lambda swap: swap.iteration):
        if swap.iteration > iteration:
            break
        for worker, held in by_holder.items():
            held.stay(worker, swap.iteration - since)
        since = swap.iteration
        moved = {
            taker: by_holder[taker].averaged_with(by_holder[giver])
            if swap.means and taker in swap.moves
            else Visits(by_holder[giver].last, dict(by_holder[giver].iterations))
            for giver, taker in swap.moves.items()
            if taker in swap.arrived and giver in by_holder and taker in by_holder
        }
        by_holder.update(moved)
    for worker, held in by_holder.items():
        held.stay(worker, iteration - since)
    return by_holder


@torch.no_grad()
def logits(discriminator: nn.Module, samples: Samples) -> Tensor:
    """D(x) in evaluation mode, float32 [n]; in shuffled batches, so that all batches are alike."""
    discriminator.eval()
    labelled = num_classes_of(discriminator) is not None
    order = torch.randperm(len(samples), generator=generator_for(0, "logits"))
    judged = torch.empty(len(samples))
    for places in torch.split(order, _AT_ONCE):
        labels = samples.labels[places] if labelled and samples.labels is not None else None
        verdict = as_output(call(discriminator, samples.images[places], labels))
        judged[places] = verdict.logits.flatten().float()
    return judged


def judge(
    discriminator: nn.Module,
    shards: Mapping[int, Samples],
    held_out: Samples,
    visited: Visits,
    worker: int,
) -> Judged | str:
    """Attacks a discriminator that was trained on all these shards; or returns why it cannot."""
    everything = together((*shards.values(), held_out))
    verdicts = logits(discriminator, everything)
    if not bool(verdicts.isfinite().all()):
        return "its logits are not finite"
    labels = everything.labels
    assert labels is not None
    scores, classes = verdicts[: -len(held_out)], labels[: -len(held_out)]
    by_last = [torch.full((len(shard),), visited.last in (0, n)) for n, shard in shards.items()]
    of_last = torch.cat(by_last)
    not_members = verdicts[-len(held_out) :], labels[-len(held_out) :]
    last, every = (
        separate_alike(scores[chosen], classes[chosen], *not_members)
        for chosen in (of_last, torch.ones_like(of_last))
    )
    if last is None or every is None:
        return "no held-out sample is of the classes that it was trained on"
    return Judged(
        worker=worker, last=visited.last, iterations=visited.iterations, of_last=last, of_all=every
    )


def together(parts: Iterable[Samples]) -> Samples:
    """Joins the samples of all parts, at least one part, in order."""
    return reduce(Samples.and_then, parts)


def judge_all(target: Target, left_out: dict[str, str]) -> list[Judged]:
    """Attacks all discriminators of a run whose states are here; explains others in `left_out`."""
    model = target.trained.models.discriminator()
    shards = {worker: target.samples_of(worker) for worker in target.holdings}
    everyone = range(1, target.settings.world_size)
    stays = visits(target.recorded.of(Swap), everyone, target.checkpoint or 0)
    attacks = []
    for worker, weights in target.discriminators.items():
        name = f"discriminator of worker {worker}" if worker else "discriminator of the server"
        visited = stays.get(worker) if worker else Visits(0)
        if visited is None or not (visited.last in shards or worker == 0):
            left_out[name] = "what it was trained on is not here"
            continue
        model.load_state_dict(dict(weights))
        # If the server has a discriminator, workers' ones descend from it, and so from all shards.
        from_all = 0 in target.discriminators
        known = {n: shard for n, shard in shards.items() if from_all or n in visited.iterations}
        judged = judge(model, known or shards, target.held_out, visited=visited, worker=worker)
        if isinstance(judged, str):
            left_out[name] = judged
        else:
            attacks.append(judged)
    return attacks
