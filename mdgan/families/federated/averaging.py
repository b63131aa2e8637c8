"""Adds to the rounds of `round.py` what a run needs: checkpoints, sampling, and robust means.

`poisson_rounds.py` has the rounds of `--sampling poisson`, which add updates up instead.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import fsum, log

import torch
from torch import Tensor
from typing_extensions import override

from mdgan.engine.answers import Answers
from mdgan.engine.server.engine import AllWorkersLost, Engine
from mdgan.engine.settings import num_participants
from mdgan.errors import BadInput
from mdgan.families.federated.messages import LEAST_PART
from mdgan.families.federated.round import (
    ClassCounts,
    Rounds,
    any_clients,
    balanced_clients,
    sum_of,
)
from mdgan.families.federated.settings import FederatedSettings
from mdgan.gan.aggregation_form import MEDIAN, AggregationRule
from mdgan.gan.aggregation_rules import LEAST_TO_VOTE, combine
from mdgan.gan.exact_sum import PartialSum, average, total
from mdgan.gan.randomness import generator_for
from mdgan.spelling import flag

_NEVER = -1
_A_HAIR = 1e-9  # the rounding of weights


class Averaging(Rounds):
    """Rounds of a run: `Rounds` with checks, a state, and rules that outvote lying clients.

    Args:
        num_weight_blocks: see `ModelVector`; the blocks after these are buffers.
    """

    needs_answers = True

    def __init__(self, settings: FederatedSettings, num_weight_blocks: int) -> None:
        rounds, seed = settings.rounds, settings.training.seed
        sampling = new_sampling(rounds.sampling, settings.participation, seed)
        super().__init__(sampling, "load" if settings.weighs_in_secret else rounds.weighting)
        self._settings = settings
        self._num_weight_blocks = num_weight_blocks

    def begin(self, _num_rounds: int, class_counts: ClassCounts, _engine: Engine) -> None:
        """The server calls this before the first round; `BadInput` if no round is possible."""
        check_classes(self._settings, class_counts)

    def announce(self, iteration: int, engine: Engine) -> None:
        """Sends hosts what they need before the round that ends with this iteration."""

    @override
    def choose(self, number: int, class_counts: ClassCounts, num_live: int) -> list[int]:
        holders = class_counts
        if self.weighting == "samples":
            holders = {client: held for client, held in holders.items() if any(held)} or holders
        return super().choose(number, holders, num_live)

    @override
    def next_models(self, sent: Tensor, answers: Answers, weights: Mapping[int, float]) -> Tensor:
        if self._settings.weighs_in_secret:
            return mean_by_own_weights(answers.sums, weights)
        changes = str(self._settings.wire.models) != "fp32"
        rule, blocks = self._settings.aggregation, self._num_weight_blocks
        if rule.name == "mean" and not changes:
            return super().next_models(sent, answers, weights)
        return combine_models(rule, sent, answers, weights, blocks, as_differences=changes)

    @property
    def over(self) -> bool:
        """Whether no round may follow."""
        return False

    def close(self) -> None:
        """The server calls this when the run ends, unless it was killed."""

    def progress(self) -> dict[str, int]:
        """The numbers that checkpoints save beside `state`."""
        return {}

    def go_on(self, progress: Mapping[str, int]) -> None:
        """Restores what `progress` returned."""

    def state(self) -> dict[str, Tensor]:
        """The tensors that later rounds depend on: the state of the sampling."""
        return self.sampling.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restores what `state` returned."""
        self.sampling.load_state(state)


def mean_by_own_weights(sums: Sequence[PartialSum], sent: Mapping[int, float]) -> Tensor:
    """Σ v_k·x_k / Σ v_k, float64; client k has reduced the weight that the server sent to v_k.

    It differs from a mean with weights that the server knows by rounding of addends to 2⁻⁴⁴ alone.

    Args:
        sums: Σ v_k·`with_weight`(x_k).
        sent: by client, the weight that the server sent.

    Raises:
        AllWorkersLost: Σ v_k is impossible, so some client has lied.
    """
    whole = total({}, sums, {})
    weight, most = float(whole[-1, 0]), sum(sent[n] for part in sums for n in part.workers)
    if not LEAST_PART * most * (1 - _A_HAIR) <= weight <= most * (1 + _A_HAIR):
        raise AllWorkersLost(
            f"{flag('weighting', 'kl')}: the secret weights of a round add up to {weight:.3g}, "
            f"but to {LEAST_PART * most:.3g} to {most:.3g} where no client lies; use "
            f"{flag('weighting', 'uniform')}"
        )
    return whole[:-1] / weight


def combine_models(
    rule: AggregationRule,
    sent: Tensor,
    answers: Answers,
    weights: Mapping[int, float],
    num_weight_blocks: int,
    *,
    as_differences: bool,
) -> Tensor:
    """The server's next models, float64 `ModelVector.shape`, even if some clients lie.

    `mean` is the papers' weighted mean of models, or, `as_differences`, of what has changed in
    them. The other rules (`gan/aggregation_rules.py`) give each client one vote. With fewer than
    three answers no rule can tell which client lies, so this takes the mean. Both models of a
    client are one vector: a client that lies about one model is judged for both. Rules look at
    weights alone, since BatchNorm's count of batches changes by more than all weights together.
    Buffers become their median, which a minority cannot move beyond the values of honest clients.
    """
    singles = answers.singles
    if rule.name == "mean" or len(singles) < LEAST_TO_VOTE:
        mean = average(singles, answers.sums, weights)
        return sent.double() + mean if as_differences else mean
    by_part, parts = [], (slice(num_weight_blocks), slice(num_weight_blocks, None))
    for part, of_part in zip(parts, (rule, MEDIAN), strict=True):
        begin = sent[part]
        rows = [singles[client][part] for client in sorted(singles)]
        changes = rows if as_differences else [row - begin for row in rows]
        combined = combine(of_part, torch.stack(changes).flatten(1).unsqueeze(1))
        by_part.append(begin.double() + combined.view_as(begin))
    return torch.cat(by_part)


def check_classes(settings: FederatedSettings, class_counts: ClassCounts) -> None:
    """Refuses balanced sampling where a class has no sample; clusters and noisy counts may be 0."""
    rounds = settings.rounds
    if rounds.sampling != "balanced" or rounds.clusters.number or settings.hides_classes:
        return
    held = sum_of(class_counts.values())
    if len(held) < 2:
        raise BadInput(
            flag("sampling", "balanced"),
            "the samples have no labels",
            f"let workers group them ({flag('clusters', 'kmeans:10')}), or use "
            f"{flag('sampling', 'random')}",
        )
    if 0 in held:
        raise BadInput(
            flag("sampling", "balanced"),
            f"no worker holds a sample of class {held.index(0)}",
            f"use {flag('sampling', 'random')}, or another {flag('partition')} or {flag('seed')}",
        )


class Sampling:
    """Chooses a fraction C of the live clients for each round (McMahan et al. 2017)."""

    def __init__(self, fraction: float, seed: int = 0) -> None:
        self._fraction = fraction
        self._seed = seed

    def choose(self, round_number: int, class_counts: ClassCounts, num_live: int = 0) -> list[int]:
        """The clients of a round, counted from 0, in increasing order; does not change `state`.

        It chooses among those in `class_counts`. C is a fraction of all live clients, `num_live`.
        """
        wanted = num_participants(self._fraction, num_live or len(class_counts))
        random = generator_for(self._seed, "participants", round_number)
        return any_clients(class_counts, wanted, random)

    def took_part(self, round_number: int, clients: Iterable[int]) -> None:
        """Records which clients have answered; the server calls it once a round (section 3.4)."""

    def state(self) -> dict[str, Tensor]:
        """A copy of what the next choices depend on, for a checkpoint."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restores what `state` returned, or raises `KeyError` or `RuntimeError`."""
        if state:
            raise KeyError(f"tensors that do not fit: {sorted(state)}")


class BalancedSampling(Sampling):
    """`balanced_clients`, with an order of preference among clients that hold the class.

    The paper names three preferences and no order of them. Here the client comes first that took
    part longest ago (or never); of equal ones the one with more samples, then the one with more
    even classes (the higher entropy), then the one with the lowest number. Classes that were seen
    equally little count as one, so that nothing depends on the numbers of classes: this gives
    figure 3, whose first client is the one with most samples.

    It chooses fewer than C·n clients if fewer hold any sample. A client whose classes are plentiful
    elsewhere may never be chosen, since the class decides first.
    """

    def __init__(self, fraction: float) -> None:
        super().__init__(fraction)
        self._accumulated: list[int] = []
        self._last_seen: dict[int, int] = {}
        self._class_counts: dict[int, list[int]] = {}
        self._merits: dict[int, tuple[int, float]] = {}

    @override
    def choose(self, _number: int, class_counts: ClassCounts, num_live: int = 0) -> list[int]:
        for client, counts in class_counts.items():
            if self._class_counts.get(client) != counts:
                self._class_counts[client] = list(counts)
                self._merits[client] = -sum(counts), -_entropy(counts)
        best_first = sorted(class_counts, key=self._preference)
        remaining = {client: self._class_counts[client] for client in best_first}
        wanted = num_participants(self._fraction, num_live or len(remaining))
        longest = max(map(len, remaining.values()), default=0)
        return balanced_clients(remaining, wanted, sum_of([self._accumulated, [0] * longest]))

    @override
    def took_part(self, round_number: int, clients: Iterable[int]) -> None:
        for client in clients:
            self._accumulated = sum_of([self._accumulated, self._class_counts[client]])
            self._last_seen[client] = round_number

    @override
    def state(self) -> dict[str, Tensor]:
        clients = sorted(self._last_seen)
        return {
            "accumulated": torch.tensor(self._accumulated, dtype=torch.int64),
            "clients": torch.tensor(clients, dtype=torch.int64),
            "last_seen": torch.tensor([self._last_seen[n] for n in clients], dtype=torch.int64),
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        if others := state.keys() ^ self.state().keys():
            raise KeyError(f"tensors that do not fit: {sorted(others)}")
        for name, tensor in state.items():
            if tensor.dtype != torch.int64 or tensor.dim() != 1 or bool((tensor < 0).any()):
                raise RuntimeError(f"{name} is no vector of counts: {tensor.dtype} {tensor.shape}")
        clients, last_seen = state["clients"].tolist(), state["last_seen"].tolist()
        if not len(set(clients)) == len(clients) == len(last_seen):
            raise RuntimeError("clients and last_seen do not belong together")
        self._accumulated = state["accumulated"].tolist()
        self._last_seen = dict(zip(clients, last_seen, strict=True))

    def _preference(self, client: int) -> tuple[int, int, float, int]:
        return self._last_seen.get(client, _NEVER), *self._merits[client], client


def new_sampling(name: str, fraction: float, seed: int) -> Sampling:
    """The sampling of a fraction in ]0, 1]; for `poisson` one that draws its mean number."""
    return BalancedSampling(fraction) if name == "balanced" else Sampling(fraction, seed)


def _entropy(counts: Sequence[int]) -> float:
    """Entropy of a client's classes, nats; does not depend on the order of counts."""
    num_samples = sum(counts)
    return fsum(n / num_samples * log(num_samples / n) for n in counts if n)
