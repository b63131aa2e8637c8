"""A round of FL-GAN (Hardy et al. 2019, III-c) and of FeGAN (Guerraoui et al. 2020, 3.2 to 3.4).

    SERVER: owns w of G and θ of D                CLIENT k: owns n_kx samples of class x, n_k in all
    ──────────────────────────────                ──────────────────────────────────────────────────
    1. choose C·N clients
    2. E_k iterations, B_k samples a batch and
       a weight p_k for each chosen client
    3. (w, θ)                              ──►    (w_k, θ_k) = E_k iterations of a standalone GAN
    4. (w, θ) ← Σ p_k·(w_k, θ_k) / Σ p_k   ◄──    on its own samples, from (w, θ) on

`Rounds.play` and `Client.train` are these steps. FL-GAN chooses any clients, with equal p_k; FeGAN
balances their classes, and p_k follows from their distance to the classes of all. w and θ are "one
computational object to be treated atomically": a vector, float32 `ModelVector.shape`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import zip_longest
from math import exp, fsum, inf, log
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from mdgan.engine.answers import Answers
from mdgan.errors import BadInput
from mdgan.families.federated.messages import ClientTask, Load, RoundPlan
from mdgan.gan.exact_sum import average
from mdgan.gan.local_gan import LocalGAN
from mdgan.gan.model_vector import ModelVector
from mdgan.spelling import flag

if TYPE_CHECKING:
    from mdgan.engine.server.engine import Engine
    from mdgan.families.federated.averaging import Sampling

ClassCounts = Mapping[int, Sequence[int]]  # client k → n_k0, n_k1, …; checked on arrival
Train = Callable[[RoundPlan], Answers | None]  # None if the server must repeat the round


class Start(NamedTuple):
    """What the server knows before a round."""

    number: int  # of the round
    i: int  # the iteration at which the round ends
    class_counts: ClassCounts  # of all clients
    available: Sequence[int]  # the clients that can train in this round
    num_live: int  # N, all clients that take part in the run
    full: Load  # E and B
    weak: Mapping[int, Load]  # E_k and B_k of weak clients (FeGAN, 3.4)


class Rounds:
    """The server's side (FL-GAN: figure 1b; FeGAN: section 3.2, "Server operation")."""

    def __init__(self, sampling: "Sampling", weighting: str) -> None:
        self.sampling, self.weighting = sampling, weighting

    def play(self, start: Start, models: ModelVector, train: Train, engine: "Engine") -> bool:
        """One round; `train` has each client carry out `Client.train`. False to repeat it."""
        number, i, counts, available, num_live, full, weak = start
        # 1. Choose C·N of the clients.
        chosen = self.choose(number, {k: counts[k] for k in available}, num_live)
        # 2. Set E_k and B_k of each, E and B unless the client is weak, and p_k.
        loads = {k: weak.get(k, full) for k in chosen}
        weights = self.weights(chosen, loads, full, counts)
        # 3. Send (w, θ) to the chosen clients. Each trains both networks, and sends them back.
        sent = models.read()
        tasks = {k: ClientTask(k, loads[k], weights[k]) for k in chosen}
        answers = train(RoundPlan(number, i, sent, tasks=tasks))
        if answers is None:
            return False
        # 4. The next round begins with the mean of all models that came back.
        with engine.span("aggregate"):
            combined = self.next_models(sent, answers, weights)
        with engine.span("step"):  # reports count a round as complete by this span
            models.write(combined)
            self.finish(number, i, sorted(answers.losses), engine)
        return True

    def choose(self, number: int, class_counts: ClassCounts, num_live: int) -> list[int]:
        """The chosen clients, by `any_clients` or `balanced_clients`, in increasing order."""
        return self.sampling.choose(number, class_counts, num_live)

    def weights(
        self, chosen: list[int], loads: Mapping[int, Load], full: Load, class_counts: ClassCounts
    ) -> dict[int, float]:
        """p_k of each chosen client; they add up to 1."""
        size = full.iterations * full.batch_size
        shares = {k: loads[k].iterations * loads[k].batch_size / size for k in chosen}
        weights = participant_weights(self.weighting, chosen, class_counts, loads=shares)
        if not (total := sum(weights.values())):
            why = f"no participant of {chosen} has samples"
            way_out = f"use {flag('weighting', 'uniform')}, or clients that have"
            raise BadInput(flag("weighting", self.weighting), why, way_out)
        return {k: weight / total for k, weight in weights.items()}

    def next_models(self, _sent: Tensor, answers: Answers, weights: Mapping[int, float]) -> Tensor:
        """(w, θ) ← Σ p_k·(w_k, θ_k) / Σ p_k over clients that answered; float64."""
        return average(answers.singles, answers.sums, weights)

    def finish(self, number: int, _i: int, took_part: Collection[int], _engine: "Engine") -> None:
        """Counts as seen the samples of clients that took part (FeGAN, 3.3)."""
        self.sampling.took_part(number, took_part)


def any_clients(clients: Iterable[int], wanted: int, random: torch.Generator) -> list[int]:
    """FL-GAN: a random choice of clients (McMahan et al. 2017)."""
    live = sorted(clients)
    drawn = torch.randperm(len(live), generator=random)[:wanted]
    return sorted(live[index] for index in drawn.tolist())


def balanced_clients(clients: ClassCounts, wanted: int, seen: Sequence[int]) -> list[int]:
    """FeGAN, section 3.3: repeatedly chooses a client that holds the class seen least so far.

    Of such clients it takes the first of `clients`. `seen` counts, by class, samples seen earlier.
    """
    remaining, queue, chosen = dict(clients), set(range(len(seen))), list[int]()
    while len(chosen) < wanted and queue:
        fewest = min(seen[x] for x in queue)
        least = {x for x in queue if seen[x] == fewest}
        holding = (k for k, n_k in remaining.items() if any(x < len(n_k) and n_k[x] for x in least))
        best = next(holding, None)
        if best is None:  # no remaining client holds these classes: they leave the queue
            queue -= least
            continue
        chosen.append(best)
        seen = sum_of([seen, remaining.pop(best)])
    return sorted(chosen)


def participant_weights(
    rule: str, participants: Iterable[int], class_counts: ClassCounts, loads: Mapping[int, float]
) -> dict[int, float]:
    """p_k of each participant, before `Rounds.weights` divides them by their sum.

    FL-GAN (`uniform`): 1. FedAvg (`samples`): n_k. FeGAN (`kl`): e^(−s_k) / Σ_i e^(−s_i) over the
    participants (3.3), times the client's part E_k·B_k / E·B of the full load (3.4), `loads`. The
    rule `load`: only that part; client k itself multiplies by e^(−s_k), hidden from the server.
    """
    ordered = sorted(participants)
    if rule == "uniform":
        return dict.fromkeys(ordered, 1.0)
    if rule == "samples":
        return {k: float(sum(class_counts[k])) for k in ordered}
    if rule == "load":
        return {k: loads.get(k, 1.0) for k in ordered}
    total = sum_of(class_counts.values())
    powers = {k: exp(-divergence_score(class_counts[k], total)) for k in ordered}
    sum_of_powers = fsum(powers.values())
    return {k: powers[k] / sum_of_powers * loads.get(k, 1.0) for k in ordered}


def divergence_score(counts: Sequence[int], total: Sequence[int]) -> float:
    """FeGAN, section 3.2: s_k = n_k/n · KL(P_k‖Q), in [0, 1/e]; Q is what all clients hold."""
    return sum(counts) / (sum(total) or 1) * divergence(counts, total)


def divergence(counts: Sequence[int], total: Sequence[int]) -> float:
    """KL(P‖Q) = Σ_x P(x) log(P(x)/Q(x)), nats, of counts by class; inf if Q lacks a class of P."""
    n_p, n_q = sum(counts), sum(total)
    pairs = [(p, q) for p, q in zip_longest(counts, total, fillvalue=0) if p]
    if not all(q for _, q in pairs):
        return inf
    terms = [p / n_p * log(p * n_q / (n_p * q)) for p, q in pairs]
    return max(0.0, fsum(terms))  # rounding can leave −10⁻¹⁷ of two equal distributions


def sum_of(rows: Iterable[Sequence[int]]) -> list[int]:
    """The samples of each class in all rows together."""
    return [sum(column) for column in zip_longest(*rows, fillvalue=0)]


class Client:
    """A client's side (FeGAN: section 3.2, "Device operation").

    Between two rounds the client keeps its optimizers' moments and its positions in its data and
    noise. It never sends these: a round moves |w| + |θ| each way (Hardy et al. 2019, table III).
    """

    def __init__(self, gan: LocalGAN, num_samples: int, vector: ModelVector | None = None) -> None:
        self.gan, self.num_samples = gan, num_samples
        self.vector = vector or ModelVector(gan.generator, gan.discriminator)
        self.state, self.load_state = gan.state, gan.load_state

    def train(
        self, models: Tensor, iterations: int, batch_size: int, last: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Trains E iterations of a standalone GAN, beginning with the server's models.

        The learning rates follow the iterations of the run; `last` is the number of the last one.
        Returns (w_k, θ_k), float32 `vector.shape`, and the mean J_disc and J_gen, [2].
        """
        self.begin(models, batch_size)
        losses, done = [], max(0, (last or 0) - iterations)
        for i in range(done + 1, done + iterations + 1):
            self.gan.at(i)
            losses.append(torch.stack(self.gan.step()))
        return self.vector.read(), torch.stack(losses).mean(0)

    def begin(self, models: Tensor, batch_size: int) -> None:
        """Loads the server's models. A client with fewer samples than B has batches of n_k."""
        if not torch.equal(self.vector.read(), models):
            self.gan.weights_replaced()
        self.vector.write(models)
        self.gan.use_batch_size(min(batch_size, self.num_samples))
