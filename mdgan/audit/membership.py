"""Membership inference against discriminators, by the logit: high where a sample was trained on.

Hayes et al. 2019, "LOGAN: Membership Inference Attacks Against Generative Models", section 3.2: the
attacker that has the discriminator. Here that is the worker that gets one in a swap, or
the host that carries its state.
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
    """With whom D has been, `last` at the end; a mean of two has the `iterations` of both."""

    last: int
    iterations: dict[int, int] = field(default_factory=dict)

    def stay(self, worker: int, iterations: int) -> None:
        """It was with a worker, for a number of iterations."""
        if iterations > 0:
            self.last = worker
            self.iterations[worker] = self.iterations.get(worker, 0) + iterations

    def averaged_with(self, other: "Visits") -> "Visits":
        """With whom the mean of two discriminators has been."""
        both = Counter(self.iterations) + Counter(other.iterations)
        return Visits(self.last, dict(both))


def visits(swaps: Iterable[Swap], workers: Sequence[int], iteration: int) -> dict[int, Visits]:
    """The visits of the discriminator that each worker holds after an iteration."""
    now = {worker: Visits(worker) for worker in workers}
    since = 0
    for swap in sorted(swaps, key=lambda swap: swap.iteration):
        if swap.iteration > iteration:
            break
        for worker, held in now.items():
            held.stay(worker, swap.iteration - since)
        since = swap.iteration
        moved = {
            taker: now[taker].averaged_with(now[giver])
            if swap.means and taker in swap.moves
            else Visits(now[giver].last, dict(now[giver].iterations))
            for giver, taker in swap.moves.items()
            if taker in swap.arrived and giver in now and taker in now
        }
        now.update(moved)
    for worker, held in now.items():
        held.stay(worker, iteration - since)
    return now


@torch.no_grad()
def logits(discriminator: nn.Module, samples: Samples) -> Tensor:
    """D(x) in evaluation mode, float32 [n]; mixed, so that batches are alike."""
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
    """Attacks one discriminator, which all these shards trained; or says why it cannot."""
    everything = together((*shards.values(), held_out))
    found = logits(discriminator, everything)
    if not bool(found.isfinite().all()):
        return "its logits are not finite"
    labels = everything.labels
    assert labels is not None
    scores, classes = found[: -len(held_out)], labels[: -len(held_out)]
    by_last = [torch.full((len(own),), visited.last in (0, n)) for n, own in shards.items()]
    of_last = torch.cat(by_last)
    not_members = found[-len(held_out) :], labels[-len(held_out) :]
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
    """The samples of all parts, in their order; at least one."""
    return reduce(Samples.and_then, parts)


def judge_all(target: Target, left_out: dict[str, str]) -> list[Judged]:
    """Attacks all discriminators of a run that are here."""
    model = target.trained.models.discriminator()
    shards = {worker: target.samples_of(worker) for worker in target.holdings}
    everyone = range(1, target.settings.world_size)
    stays = visits(target.recorded.of(Swap), everyone, target.checkpoint or 0)
    found = []
    for worker, weights in target.discriminators.items():
        name = f"discriminator of worker {worker}" if worker else "discriminator of the server"
        visited = stays.get(worker) if worker else Visits(0)
        if visited is None or not (visited.last in shards or worker == 0):
            left_out[name] = "what it was trained on is not here"
            continue
        model.load_state_dict(dict(weights))
        # Where the server has one, those of workers descend from it, and so from all shards.
        from_all = 0 in target.discriminators
        known = {n: own for n, own in shards.items() if from_all or n in visited.iterations}
        judged = judge(model, known or shards, target.held_out, visited=visited, worker=worker)
        if isinstance(judged, str):
            left_out[name] = judged
        else:
            found.append(judged)
    return found
