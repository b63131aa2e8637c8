"""The page of FL-GAN and FeGAN (`round.py`) against a plain loop that shares no code with it.

With one client both give the same bits. With several the page adds up in steps of 2⁻⁴⁴ and the loop
in float64, so that a last bit may differ, which training then enlarges: by less than `TOLERANCE`.
"""

import math
from contextlib import nullcontext
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mdgan.data.partitioner import Partitioner
from mdgan.data.shard import Shard
from mdgan.engine.answers import Answers
from mdgan.families.federated.averaging import new_sampling
from mdgan.families.federated.messages import Load, RoundPlan
from mdgan.families.federated.round import Client, Rounds, Start
from mdgan.families.federated.settings import FederatedSettings
from mdgan.gan.build import Models, make_local_gan
from mdgan.gan.model_vector import ModelVector
from mdgan.gan.randomness import RandomState

TOLERANCE = 1e-6
E, B, Z, NUM_ROUNDS = 4, 5, 6, 3
State = dict[str, Tensor]


def generator() -> nn.Module:
    """Without biases whose sum a BatchNorm takes away, its own or that of D.

    Their gradient is rounding alone, which Adam enlarges.
    """
    first, last = nn.Linear(Z, 12, bias=False), nn.Linear(12, 8, bias=False)
    return nn.Sequential(first, nn.BatchNorm1d(12), nn.LeakyReLU(0.2), last)


def discriminator() -> nn.Module:
    first, last = nn.Linear(8, 9, bias=False), nn.Linear(9, 1)
    return nn.Sequential(first, nn.BatchNorm1d(9), nn.LeakyReLU(0.2), last)


def samples_of(counts: list[int]) -> Tensor:
    """So many samples of each class, around its own point."""
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    random = torch.Generator().manual_seed(sum(counts))
    return labels[:, None] / 2 + torch.rand(len(labels), 8, generator=random)


# ----- a plain loop: torch alone


class PlainClient:
    """Trains a GAN on its own samples."""

    def __init__(self, k: int, counts: list[int]) -> None:
        self.g, self.d, self.samples = generator(), discriminator(), samples_of(counts)
        how: Any = {"lr": 2e-3, "betas": (0.5, 0.999), "fused": True}
        self.of_g = torch.optim.Adam(self.g.parameters(), **how)
        self.of_d = torch.optim.Adam(self.d.parameters(), **how)
        self.noise, self.shuffles = (torch.Generator().manual_seed(s + k) for s in (100, 200))
        self.order = torch.empty(0, dtype=torch.int64)

    def batch(self, b: int) -> Tensor:
        while len(self.order) < b:
            shuffled = torch.randperm(len(self.samples), generator=self.shuffles)
            self.order = torch.cat([self.order, shuffled])
        drawn, self.order = self.order[:b], self.order[b:]
        return self.samples[drawn]

    def train(self, g: State, d: State, iterations: int, b: int) -> tuple[State, State]:
        self.g.load_state_dict(g)
        self.d.load_state_dict(d)
        for _ in range(iterations):
            generated = self.g(torch.randn(2 * b, Z, generator=self.noise))
            judged, fake = generated[:b], generated[b:].detach()
            self.of_d.zero_grad()
            loss = judge(self.d, self.batch(b), as_real=True) + judge(self.d, fake, as_real=False)
            loss.backward()  # type: ignore[no-untyped-call] # torch leaves it unannotated
            self.of_d.step()
            self.of_g.zero_grad()
            judge(self.d, judged, as_real=True).backward()  # type: ignore[no-untyped-call] # as above
            self.of_g.step()
        return deepcopy(self.g.state_dict()), deepcopy(self.d.state_dict())


def judge(model: nn.Module, samples: Tensor, *, as_real: bool) -> Tensor:
    """−log σ(s), or −log(1 − σ(s)), the mean over the batch."""
    logits: Tensor = model(samples)
    return F.softplus(-logits if as_real else logits).mean()


def weighted_mean(states: list[State], weights: list[float]) -> State:
    sums = {
        name: torch.stack([w * s[name].double() for s, w in zip(states, weights, strict=True)])
        for name in states[0]
    }
    means = {name: total.sum(0) / math.fsum(weights) for name, total in sums.items()}
    return {  # BatchNorm counts batches in whole numbers
        name: mean.float() if states[0][name].is_floating_point() else mean.round().long()
        for name, mean in means.items()
    }


def least_seen_first(counts: dict[int, list[int]], seen: list[int], last: dict[int, int]) -> int:
    """Of those that hold the class that was seen least: seen longest ago, then most samples."""
    held = [x for x in range(len(seen)) if any(own[x] for own in counts.values())]
    least = [x for x in held if seen[x] == min(seen[y] for y in held)]
    able = [k for k, own in counts.items() if any(own[x] for x in least)]
    return min(able, key=lambda k: (last.get(k, -1), -sum(counts[k]), k))


def fegan_weight(k: int, counts: dict[int, list[int]], load: float) -> float:
    """e^(−s_k), s_k = n_k/n · KL(P_k‖Q), times the load."""
    table = torch.tensor(list(counts.values()), dtype=torch.float64)
    own, total = torch.tensor(counts[k], dtype=torch.float64), table.sum(0)
    p, q = own / own.sum(), total / total.sum()
    kl = torch.where(p > 0, p * (p / q).clamp_min(1e-300).log(), 0).sum()
    return load * math.exp(-float(own.sum() / total.sum() * kl))


def plain_loop(
    g: nn.Module, d: nn.Module, counts: dict[int, list[int]], weak: set[int], *, fegan: bool
) -> tuple[State, State]:
    clients = {k: PlainClient(k, own_counts) for k, own_counts in counts.items()}
    w, theta = deepcopy(g.state_dict()), deepcopy(d.state_dict())
    seen, last = [0] * len(counts[1]), dict[int, int]()
    for number in range(NUM_ROUNDS):
        left, chosen = dict(counts), list[int]()
        while left and len(chosen) < (len(counts) // 2 if fegan else len(counts)):
            chosen.append(least_seen_first(left, seen, last) if fegan else min(left))
            seen = [a + b for a, b in zip(seen, left.pop(chosen[-1]), strict=True)]
        last |= dict.fromkeys(chosen, number)
        trained = [
            clients[k].train(w, theta, E // 2 if k in weak else E, min(B, sum(counts[k])))
            for k in sorted(chosen)
        ]
        weights = [
            fegan_weight(k, counts, 0.5 if k in weak else 1.0) if fegan else 1.0
            for k in sorted(chosen)
        ]
        w = weighted_mean([each[0] for each in trained], weights)
        theta = weighted_mean([each[1] for each in trained], weights)
    return w, theta


# ----- the page


class Held(Partitioner):
    """Samples that a test has."""

    def __init__(self, samples: Tensor) -> None:
        self.samples, self.labels = samples, torch.zeros(len(samples), dtype=torch.int64)

    def images(self, indices: Tensor) -> Tensor:
        return self.samples[indices]


def by_the_page(
    g: nn.Module, d: nn.Module, counts: dict[int, list[int]], weak: set[int], *, fegan: bool
) -> tuple[State, State]:
    settings = FederatedSettings.read(
        {"generator_optimizer": "adam:lr=2e-3", "discriminator_optimizer": "adam:lr=2e-3"}
    )
    models = Models("a test", (8,), Z, generator, discriminator)
    clients = {}
    for k, own in counts.items():
        held, order = samples_of(own), torch.Generator().manual_seed(200 + k)
        gan = make_local_gan(
            k,
            models,
            settings.training,
            Shard(Held(held), torch.arange(len(held)), order),
            kappa=2,
            noise=torch.Generator().manual_seed(100 + k),
            random_state=RandomState(0, torch.device("cpu")),
        )
        clients[k] = Client(gan, len(held))

    def train(plan: RoundPlan) -> Answers:
        answers = Answers()
        for k, load, _ in plan.tasks.values():
            result = clients[k].train(plan.models, load.iterations, load.batch_size, plan.iteration)
            answers.singles[k], answers.losses[k] = result
        return answers

    engine: Any = SimpleNamespace(span=lambda _name: nullcontext())
    server, full = ModelVector(g, d), Load(E, B)
    less = dict.fromkeys(weak, Load(E // 2, B))
    sampling = new_sampling("balanced" if fegan else "random", 0.5 if fegan else 1.0, seed=0)
    rounds = Rounds(sampling, "kl" if fegan else "uniform")
    for number in range(NUM_ROUNDS):
        start = Start(number, (number + 1) * E, counts, list(counts), len(counts), full, less)
        assert rounds.play(start, server, train, engine)
    return g.state_dict(), d.state_dict()


# ----- both


def difference(counts: dict[int, list[int]], weak: set[int], *, fegan: bool) -> float:
    """The largest one of any value of both models."""
    torch.manual_seed(1)
    g, d = generator(), discriminator()
    plain = plain_loop(g, d, counts, weak, fegan=fegan)
    page = by_the_page(g, d, counts, weak, fegan=fegan)
    pairs = [(a[name], b[name]) for a, b in zip(plain, page, strict=True) for name in a]
    return max(float((a.double() - b.double()).abs().max()) for a, b in pairs)


@pytest.mark.parametrize("held", [[12], [3]], ids=["12 samples", "fewer than a batch"])
def test_one_client_has_the_bits_of_a_plain_loop(held: list[int]) -> None:
    assert difference({1: held}, set(), fegan=False) == 0.0


def test_several_clients_of_fl_gan() -> None:
    assert difference({1: [12], 2: [4], 3: [9]}, set(), fegan=False) < TOLERANCE


FIGURE_3 = {1: [0, 8, 0, 8], 2: [5, 0, 5, 0], 3: [6, 0, 6, 0], 4: [0, 6, 0, 6], 5: [9, 1, 0, 0]}


def test_several_clients_of_fegan_weak_ones_among_them() -> None:
    assert difference(FIGURE_3, {1, 3}, fegan=True) < TOLERANCE
