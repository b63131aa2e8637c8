"""`--sampling poisson`: each client takes part with probability q, and the server adds updates up.

DP-FedAvg with a fixed denominator: McMahan et al. 2018, "Learning Differentially Private Recurrent
Language Models", Algorithm 1. Clients cut updates; the server adds noise to their sum once.
"""

from collections.abc import Callable, Collection, Mapping
from math import fsum, isfinite, sqrt

import msgspec
import torch
from torch import Tensor
from typing_extensions import override

from mdgan.engine.answers import Answers
from mdgan.engine.server.engine import Engine
from mdgan.families.federated.averaging import Averaging
from mdgan.families.federated.messages import Load
from mdgan.families.federated.round import ClassCounts
from mdgan.families.federated.settings import FederatedSettings
from mdgan.gan.exact_sum import total
from mdgan.messages import Message
from mdgan.privacy.budget import Budget, disclosed_histories, known_to_all, open_clients_budget
from mdgan.privacy.contents import Contents
from mdgan.privacy.noise import with_noise
from mdgan.privacy.planning import StepSchedule, ledger_folder
from mdgan.privacy.random_stream import uniform
from mdgan.privacy.real_half import SeededSteps, Steps
from mdgan.records.rows import EVERY_CLIENT

CHARGE = "CHARGE"
"""Server → host, before a round: its privacy cost, which drawn and other clients pay alike."""
_CHARGED = "num_charged_rounds"
_A_HAIR = 2.0**-20
"""How much shorter than C the cut makes updates, so that rounding to float32 leaves none longer."""


def update(begun: Tensor, trained: Tensor, num_weight_blocks: int, clip: float) -> Tensor:
    """Δ_k: what training has changed in the weights, cut to the norm C (Algorithm 1).

    Its buffers are 0: counts of batches would outweigh all else, and noise would make variances
    negative. The server computes its buffers itself; see `refresh_buffers`.
    """
    changed = torch.zeros_like(trained)
    weights = slice(num_weight_blocks)
    torch.sub(trained[weights], begun[weights], out=changed[weights])
    return cut(changed, clip)


def cut(changed: Tensor, clip: float) -> Tensor:
    """An update, shortened to the norm C if it is longer.

    An update with NaN or Inf becomes 0: if the server refused it, it would have to refuse the whole
    sum of its host.
    """
    # One sum for each row: so the norm does not depend on the number of threads.
    norm = sqrt(fsum(changed.double().square().sum(1).tolist()))
    if not isfinite(norm):
        return torch.zeros_like(changed)
    return changed if norm <= clip else changed.double().mul_(clip / norm * (1 - _A_HAIR)).float()


class PoissonRounds(Averaging):
    """The server's rounds: draws clients, adds up their updates, and adds noise once.

    Args:
        num_weight_blocks: see `Averaging`; buffers get no noise.
        refresh: computes the buffers of the server's models anew, after a round's last iteration.
        contents: reads the contents of all clients' samples, if the server has them.

    Attributes:
        budget: of all clients, once `begin` has opened it; None without noise.
        weight: 1 / qN, of every client's update. N is the number of clients at the start, also when
            some are lost: the denominator must not depend on what clients send.
    """

    needs_answers = False

    def __init__(
        self,
        settings: FederatedSettings,
        num_weight_blocks: int,
        refresh: Callable[[int], None] = lambda _iteration: None,
        contents: Callable[[], Contents] | None = None,
    ) -> None:
        super().__init__(settings, num_weight_blocks)
        self._seeded = SeededSteps(known_to_all(settings.training.seed, 0))
        self._charged = 0
        self._contents = contents
        self._refresh = refresh
        self.budget: Budget | None = None
        self.weight = 1 / (settings.participation * settings.num_clients)
        self._is_shared = settings.shares_noise

    @override
    def begin(self, num_rounds: int, _class_counts: ClassCounts, engine: Engine) -> None:
        run, privacy = self._settings, self._settings.privacy
        if not privacy.keeps_ledger or not privacy.hides_clients:
            return
        schedule = StepSchedule.of_clients(run.data.dataset, run.participation, num_rounds)
        contents = Contents.of_name(schedule.whose) if self._contents is None else self._contents()
        histories = disclosed_histories(engine.peers.told().values(), privacy)
        folder = ledger_folder(privacy)
        self.budget = open_clients_budget(run, schedule, folder, contents, self._charged, histories)

    @override
    def announce(self, iteration: int, engine: Engine) -> None:
        if self.budget is None or self._contents is not None or self.budget.round is None:
            return
        fields = msgspec.to_builtins(self.budget.round)
        for host in engine.peers.taking_part():
            engine.tell(host, Message(CHARGE, iteration, fields))
        if self._is_shared:  # clients pay for what they send, even if the server opens no sum
            self.budget.advance()

    @property
    def _steps(self) -> Steps:
        return self.budget or self._seeded

    @property
    @override
    def over(self) -> bool:
        return self._steps.over

    @override
    def choose(self, _number: int, class_counts: ClassCounts, _num_live: int = 0) -> list[int]:
        if self._settings.participation == 1:
            return sorted(class_counts)
        drawn = uniform(self._steps.key("clients"), max(class_counts, default=0)).tolist()
        rate = self._settings.participation
        return [client for client in sorted(class_counts) if drawn[client - 1] <= rate]

    @override
    def weights(
        self, chosen: list[int], _loads: Mapping[int, Load], _full: Load, _counts: ClassCounts
    ) -> dict[int, float]:
        # 1 where clients add parts of the noise: these must stay on a lattice.
        return dict.fromkeys(chosen, 1.0 if self._is_shared else self.weight)

    @override
    def next_models(self, sent: Tensor, answers: Answers, weights: Mapping[int, float]) -> Tensor:
        # θ + (Σ Δ_k + N(0, σ²C²)) / qN, also if no client answered.
        models = sent.double()
        if not (answers.singles or answers.sums or self.budget):
            return models
        changed = torch.zeros_like(models)
        if answers.singles or answers.sums:
            changed = total(answers.singles, answers.sums, weights)
        if self._is_shared:
            return models + changed * self.weight
        if self.budget is not None:
            weights_part = changed[: self._num_weight_blocks]
            bound = self._settings.privacy.clip * self.weight
            key = self.budget.key("noise")
            noisy = with_noise(weights_part.reshape(-1), bound, self.budget.noise, key)
            weights_part.copy_(noisy.view_as(weights_part))
        return models + changed

    @override
    def finish(
        self, _number: int, iteration: int, _took_part: Collection[int], engine: Engine
    ) -> None:
        self._refresh(iteration)
        if not self._is_shared:
            self._steps.advance()
        if (budget := self.budget) is None:
            return
        last = self._settings.training.iterations
        exactly = budget.over or iteration == last or self._settings.privacy.dp_accountant == "rdp"
        spent = budget.spent(exactly=exactly)
        epsilon, replaced = {EVERY_CLIENT: spent.epsilon}, {EVERY_CLIENT: spent.replaced}
        engine.observer.spent(iteration, epsilon, replaced)
        if budget.over and iteration < last:
            engine.note(
                f"the clients have spent their privacy budget ε = {spent.epsilon:.3g} after "
                f"{iteration:,} iterations; training ends"
            )

    @override
    def progress(self) -> dict[str, int]:
        return {} if self.budget is None else {_CHARGED: self.budget.taken}

    def go_on(self, progress: Mapping[str, int]) -> None:
        self._charged = progress.get(_CHARGED, 0)

    def state(self) -> dict[str, Tensor]:
        return self._steps.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self._seeded.load_state(state)

    def close(self) -> None:
        if self.budget is not None:
            self.budget.close()
