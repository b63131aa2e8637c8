"""Rounds in which each client takes part with the same probability, and updates are added up.

DP-FedAvg with a fixed denominator: McMahan et al. 2018, "Learning Differentially Private Recurrent
Language Models", Algorithm 1. Without a bound and without noise it is the same algorithm.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import torch
from torch import Tensor

from mdgan.engine.answers import Answers
from mdgan.families.federated.fegan import ClassCounts, Sampling
from mdgan.families.federated.settings import FederatedSettings
from mdgan.gan.weighted_mean import total
from mdgan.privacy.budget import (
    Budget,
    known_to_all,
    open_clients_budget,
    open_repeatable_clients,
)
from mdgan.privacy.clients import told_by
from mdgan.privacy.contents import Contents
from mdgan.privacy.noise import with_noise
from mdgan.privacy.planning import Schedule, ledger_folder
from mdgan.privacy.random_stream import uniform
from mdgan.privacy.real_half import SeededSteps, Steps

_CHARGED = "num_charged_rounds"


class PoissonRounds(Sampling):
    """Chooses clients, adds up their updates, and adds noise once; lives on the server.

    Args:
        settings: of the run.
        refresh: finds the buffers of the server's models anew, after a round that ends with the
            iteration given.
        contents: gives those of all clients' samples, if the server can read them.

    Attributes:
        budget: of all clients, once it is open; None if there is no noise.
        weight: 1 / qN, of every client's update. N is the number of clients at the start, and stays
            when some are lost: what is divided by must not depend on what clients send.
    """

    def __init__(
        self,
        settings: FederatedSettings,
        refresh: Callable[[int], None] = lambda _iteration: None,
        contents: Callable[[], Contents] | None = None,
    ) -> None:
        super().__init__(settings.participation)
        self._settings = settings
        self._seeded = SeededSteps(known_to_all(settings.training.seed, 0))
        self._charged = 0
        self._contents = contents
        self.refresh = refresh
        self.budget: Budget | None = None
        self.weight = 1 / (settings.participation * settings.num_clients)

    def open(self, num_rounds: int, hosts: Iterable[Mapping[str, Any]] = ()) -> None:
        """Finds out what clients may spend; comes before the first round.

        Args:
            num_rounds: of the whole run.
            hosts: of each, what it told; see `ClientsAccount`.

        Raises:
            BadInput: too little for a round, or the ledger cannot be had.
        """
        given = self._settings
        schedule = Schedule.of_clients(given.data.dataset, given.participation, num_rounds)
        if not given.privacy.keeps_ledger or not given.privacy.hides_clients:
            self.budget = open_repeatable_clients(given, schedule, self._seeded)
            return
        known_by = Contents.of_name(schedule.whose) if self._contents is None else self._contents()
        told, folder = told_by(hosts, given.privacy), ledger_folder(given.privacy)
        self.budget = open_clients_budget(given, schedule, folder, known_by, self._charged, told)

    @property
    def round(self) -> Mapping[str, Any] | None:
        """What hosts are told of the round that comes next; None if they keep no account."""
        told = None if self.budget is None or self._contents is not None else self.budget.round
        return None if told is None else msgspec.to_builtins(told)

    @property
    def _steps(self) -> Steps:
        return self.budget or self._seeded

    @property
    def over(self) -> bool:
        """Whether no round may follow."""
        return self._steps.over

    def choose(
        self,
        round_number: int,  # noqa: ARG002 - see `Sampling`
        class_counts: ClassCounts,
        num_live: int | None = None,  # noqa: ARG002 - see `Sampling`
    ) -> list[int]:
        """See `Sampling`; each client by itself, whatever others there are."""
        drawn = uniform(self._steps.key("clients"), max(class_counts, default=0)).tolist()
        return [client for client in sorted(class_counts) if drawn[client - 1] <= self._fraction]

    def took_part(self, round_number: int, clients: Iterable[int]) -> None:
        """See `Sampling`; the round is charged."""
        del round_number, clients
        self._steps.advance()

    def next_models(self, sent: Tensor, answers: Answers, num_weight_blocks: int) -> Tensor:
        """The server's models after a round: θ + (Σ Δ_k + N(0, σ²C²)) / qN.

        Args:
            sent: θ, the models before it, float32 `ModelVector.shape`.
            answers: the updates Δ_k that came, perhaps none.
            num_weight_blocks: see `ModelVector`; there is no noise on buffers.

        Returns:
            float64 `ModelVector.shape`.
        """
        models = sent.double()
        if not (answers.singles or answers.sums or self.budget):
            return models
        changed = torch.zeros_like(models)
        if answers.singles or answers.sums:
            shares = dict.fromkeys(answers.singles, self.weight)
            changed = total(answers.singles, answers.sums, shares)
        if self.budget is not None:
            weights = changed[:num_weight_blocks]
            bound, key = self._settings.privacy.clip * self.weight, self.budget.key("noise")
            noisy = with_noise(weights.reshape(-1), bound, self.budget.noise, key)
            weights.copy_(noisy.view_as(weights))
        return models + changed

    def progress(self) -> dict[str, int]:
        """What a manifest must know: how many rounds the ledger had, of all runs."""
        return {} if self.budget is None else {_CHARGED: self.budget.taken}

    def go_on(self, progress: Mapping[str, int]) -> None:
        """Takes in what `progress` gave."""
        self._charged = progress.get(_CHARGED, 0)

    def state(self) -> dict[str, Tensor]:
        """See `Sampling`."""
        return self._steps.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """See `Sampling`."""
        self._seeded.load_state(state)

    def close(self) -> None:
        """The run ends in order."""
        if self.budget is not None:
            self.budget.close()
