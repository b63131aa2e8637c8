"""FeGAN's server: which clients take part in a round, and how much each model weighs in the mean.

Guerraoui et al. 2020, "FeGAN: Scaling Distributed GANs", sections 3.2 and 3.3. Clients tell the
server how many samples of each class they hold, and nothing else about their data. Everything here
is a pure function of those counts, of earlier participation, and of the seed.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from math import exp, fsum, inf, log

import torch
from torch import Tensor

from mdgan.engine.settings import num_participants
from mdgan.errors import BadInput
from mdgan.families.federated.settings import RoundSettings
from mdgan.gan.randomness import generator_for

ClassCounts = Mapping[int, Sequence[int]]
"""Client → how many samples of class 0, 1, … it holds; checked on arrival."""

_NEVER = -1


def divergence(counts: Sequence[int], total: Sequence[int]) -> float:
    """KL(P‖Q) in nats, where P and Q are two counts of samples per class, normalised (section 3.2).

    The shorter is continued with zeros. Infinity if P has a class that Q lacks; 0 if P is empty.
    """
    n_p, n_q = sum(counts), sum(total)
    terms = []
    for p, q in zip_longest(counts, total, fillvalue=0):
        if p and not q:
            return inf
        if p:
            terms.append(p / n_p * log(p * n_q / (n_p * q)))
    return max(0.0, fsum(terms))  # rounding can leave −10⁻¹⁷ of two equal distributions


def divergence_scores(
    class_counts: ClassCounts, clients: Iterable[int] | None = None
) -> dict[int, float]:
    """How far each client's data are from all data: s_k = n_k/n · KL(P_k‖Q) (section 3.2).

    Q is what all known clients hold together. Scores are in [0, 1/e]; 0 without samples.
    """
    total = _sum_of(class_counts.values())
    num_samples = sum(total) or 1
    return {
        n: sum(class_counts[n]) / num_samples * divergence(class_counts[n], total)
        for n in (class_counts if clients is None else clients)
    }


def participant_weights(
    rule: str, participants: Iterable[int], class_counts: ClassCounts, loads: Mapping[int, float]
) -> dict[int, float]:
    """How much each participant's model weighs in the mean of a round; not normalised, not all 0.

    Args:
        rule: `uniform`: 1, whatever the loads, as in FL-GAN. `samples`: n_k, as in FedAvg (McMahan
            et al. 2017). `kl`: softmax of −s over the participants (section 3.3), times the load
            (section 3.4).
        participants: the clients that took part, at least one.
        class_counts: of all known clients, since the scores compare with the data of all.
        loads: client → iterations times batch size that it was given, 1 = full; 1 if not named.

    Raises:
        BadInput: all weights are zero.
    """
    ordered = sorted(participants)
    if rule == "uniform":
        weights = dict.fromkeys(ordered, 1.0)
    elif rule == "samples":
        weights = {client: float(sum(class_counts[client])) for client in ordered}
    else:
        scores = divergence_scores(class_counts, ordered)
        powers = {client: exp(-scores[client]) for client in ordered}  # in [e^(−1/e), 1]
        sum_of_powers = fsum(powers.values())
        weights = {n: powers[n] / sum_of_powers * loads.get(n, 1.0) for n in ordered}
    if not any(weights.values()):
        lacking = "samples" if rule == "samples" else "load"
        raise BadInput(
            f"--weighting {rule}: all weights are zero, since no participant of {ordered} has "
            f"{lacking}; use --weighting uniform, or clients that have"
        )
    return weights


def check_classes(rounds: RoundSettings, class_counts: ClassCounts) -> None:
    """Refuses balanced sampling where some class has no sample; of clusters some may have none."""
    if rounds.sampling != "balanced" or rounds.clusters.number:
        return
    held = _sum_of(class_counts.values())
    if len(held) < 2:
        raise BadInput(
            "--sampling balanced: the samples have no labels; let workers group them (--clusters "
            "kmeans:10), or use --sampling random"
        )
    if 0 in held:
        raise BadInput(
            f"--sampling balanced: no worker holds a sample of class {held.index(0)}; use "
            "--sampling random, or another --partition or --seed"
        )


class Sampling:
    """Chooses a fraction C of the live clients for each round (McMahan et al. 2017)."""

    def __init__(self, fraction: float, seed: int = 0) -> None:
        self._fraction = fraction
        self._seed = seed

    def choose(
        self, round_number: int, class_counts: ClassCounts, num_live: int | None = None
    ) -> list[int]:
        """The clients of a round, counted from 0, in increasing order; `state` stays as it is.

        Those in `class_counts` can take part; if more live, C is a fraction of `num_live`.
        """
        live = sorted(class_counts)
        random = generator_for(self._seed, "participants", round_number)
        number = num_participants(self._fraction, num_live or len(live))
        drawn = torch.randperm(len(live), generator=random)[:number]
        return sorted(live[index] for index in drawn.tolist())

    def took_part(self, round_number: int, clients: Iterable[int]) -> None:
        """Records which clients really took part; called once after a round (section 3.4)."""

    def state(self) -> dict[str, Tensor]:
        """A copy of what the next choices depend on, for a checkpoint; empty if on nothing."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restores what `state` returned, or raises `KeyError` or `RuntimeError`."""
        if state:
            raise KeyError(f"tensors that do not fit: {sorted(state)}")


class BalancedSampling(Sampling):
    """Section 3.3: again and again a client that holds the class that was seen least.

    The paper names three preferences and no order of them. Here, of the clients that hold the class
    the one that took part longest ago (or never) is chosen; of equal ones the one with more
    samples, then with the more even classes (the higher entropy), then with the lowest number.
    Classes seen equally little count as one, so that nothing depends on how classes are numbered:
    this gives figure 3, whose first client is the one with most samples.

    Fewer than C·n are chosen if fewer hold any sample. A client whose classes are all plentiful
    elsewhere may wait for ever, since the class comes first.
    """

    def __init__(self, fraction: float) -> None:
        super().__init__(fraction)
        self._accumulated: list[int] = []
        self._last_seen: dict[int, int] = {}
        self._class_counts: dict[int, list[int]] = {}
        self._merits: dict[int, tuple[int, float]] = {}

    def choose(
        self, _round_number: int, class_counts: ClassCounts, num_live: int | None = None
    ) -> list[int]:
        """See `Sampling`; until `took_part` is called, the chosen clients count as seen."""
        for client, given in class_counts.items():
            if self._class_counts.get(client) != given:
                self._class_counts[client] = list(given)
                self._merits[client] = -sum(given), -_entropy(given)
        best_first = sorted(class_counts, key=self._preference)
        remaining = {client: self._class_counts[client] for client in best_first}
        wanted = num_participants(self._fraction, num_live or len(remaining))
        longest = max(map(len, remaining.values()), default=0)
        accumulated = _sum_of([self._accumulated, [0] * longest])
        queue, chosen = set(range(len(accumulated))), list[int]()
        while len(chosen) < wanted and queue:
            fewest = min(accumulated[label] for label in queue)
            least = {label for label in queue if accumulated[label] == fewest}
            best = next((n for n, held in remaining.items() if _holds_any(held, least)), None)
            if best is None:  # no remaining client holds these classes: they leave the queue
                queue -= least
                continue
            chosen.append(best)
            accumulated = _sum_of([accumulated, remaining.pop(best)])
        return sorted(chosen)

    def took_part(self, round_number: int, clients: Iterable[int]) -> None:
        """See `Sampling`; all samples of each client count as seen once more."""
        for client in clients:
            self._accumulated = _sum_of([self._accumulated, self._class_counts[client]])
            self._last_seen[client] = round_number

    def state(self) -> dict[str, Tensor]:
        """See `Sampling`; of each class the samples seen, and of each client its last round."""
        clients = sorted(self._last_seen)
        return {
            "accumulated": torch.tensor(self._accumulated, dtype=torch.int64),
            "clients": torch.tensor(clients, dtype=torch.int64),
            "last_seen": torch.tensor([self._last_seen[n] for n in clients], dtype=torch.int64),
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        own = self.state()
        if state.keys() != own.keys():
            raise KeyError(f"tensors that do not fit: {sorted(state.keys() ^ own.keys())}")
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
    """Makes the sampling of a fraction in ]0, 1]; `poisson` draws as many on average."""
    return BalancedSampling(fraction) if name == "balanced" else Sampling(fraction, seed)


def _holds_any(counts: Sequence[int], labels: Iterable[int]) -> bool:
    return any(label < len(counts) and counts[label] for label in labels)


def _entropy(counts: Sequence[int]) -> float:
    """Entropy of the distribution over classes, nats; does not depend on the order of counts."""
    num_samples = sum(counts)
    return fsum(n / num_samples * log(num_samples / n) for n in counts if n)


def _sum_of(rows: Iterable[Sequence[int]]) -> list[int]:
    return [sum(column) for column in zip_longest(*rows, fillvalue=0)]
