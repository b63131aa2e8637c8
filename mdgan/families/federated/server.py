"""The server's share of a federated algorithm: it chooses who trains, and averages their models."""

from collections.abc import Collection, Mapping
from math import ceil
from typing import Any

import torch
from torch import Tensor, nn

from mdgan.engine.answers import Answers
from mdgan.engine.parts import Advance, ServerHandler, ServerPart
from mdgan.engine.server.engine import Engine
from mdgan.engine.server.secure_sums import check_hosts
from mdgan.families.federated.aggregation import combine_models
from mdgan.families.federated.cohort import Cohort, Round
from mdgan.families.federated.fegan import Sampling, check_classes, participant_weights
from mdgan.families.federated.fl_gan import GlobalModels
from mdgan.families.federated.messages import charge
from mdgan.families.federated.poisson_rounds import PoissonRounds
from mdgan.families.federated.settings import FederatedSettings
from mdgan.families.federated.training_load import Load, choose_loads, load_share
from mdgan.gan.model_state import part_of, under
from mdgan.records.rows import EVERY_CLIENT

_MODELS, _SAMPLING = "models.", "sampling."
_RHYTHM = {
    *("round_iterations", "round_epochs", "batch_size", "partition", "world_size", "dataset"),
    "data_dir",
}
"""The settings that decide how long a round is."""
_MOST_NAMED = 1000
"""With more clients than these the losses of each are not recorded: a curve would have few points,
and the file would grow with the clients of a round."""


class FederatedServer(ServerPart):
    """The server of FL-GAN and FeGAN (Guerraoui et al. 2020, section 3.2).

    Args:
        models: G and D.
        cohort: the clients.
        sampling: chooses who takes part in a round.
        settings: of the run.
        device: where the models live.
    """

    counts_busy = False

    def __init__(
        self,
        models: GlobalModels,
        cohort: Cohort,
        sampling: Sampling,
        settings: FederatedSettings,
        device: torch.device,
    ) -> None:
        self.form = cohort.form
        self._cohort = cohort
        self.device = device
        self._models = models
        self._sampling = sampling
        self._poisson = sampling if isinstance(sampling, PoissonRounds) else None
        self._settings = settings
        self._num_rounds = 0
        self._round_length = 0

    @property
    def generator(self) -> nn.Module:
        """G."""
        return self._models.generator

    def handlers(self) -> Mapping[str, ServerHandler]:
        """See `ServerPart`."""
        return self._cohort.handlers()

    def holdings(self, engine: Engine) -> Mapping[str, Any]:
        """What each client holds."""
        counts = self._cohort.class_counts(engine)
        tells = self._settings.privacy.discloses("classes")
        return {
            str(n): {"samples": sum(held), "classes": held if tells else []}
            for n, held in counts.items()
        }

    def begin_with(
        self, generator: Mapping[str, Tensor], discriminators: Mapping[int, Mapping[str, Tensor]]
    ) -> Mapping[int, Mapping[str, Tensor]]:
        """Both models begin there; of several discriminators, with the first."""
        if discriminators:
            self._models.discriminator.load_state_dict(discriminators[min(discriminators)])
        return super().begin_with(generator, discriminators)

    def begin(self, engine: Engine) -> None:
        """Works out how long a round is, and whether there are classes to balance."""
        check_hosts(engine.members, self.form)
        if not self._round_length:
            mean_shard_size = self._cohort.mean_shard_size(engine)
            self._round_length = self._settings.round_length(mean_shard_size)
        clustered, counts = (
            self._settings.rounds.clusters.number > 0,
            self._cohort.class_counts(engine),
        )
        check_classes(self._settings.rounds.sampling, counts, clustered=clustered)
        if self._poisson is not None:
            told = engine.members.told().values()
            self._poisson.open(ceil(self._settings.training.iterations / self._round_length), told)

    def advance(self, done: int, engine: Engine) -> Advance | None:
        """One round."""
        free = engine.await_hosts()
        length = min(self._round_length, self._settings.training.iterations - done)
        i = done + length
        engine.at(i)
        if self._poisson is not None and (about := self._poisson.round) is not None:
            for host in engine.members.taking_part():
                engine.tell(host, charge(i, about))

        # 1. Choose who takes part, how much each trains, and what it weighs.
        counts, number = self._cohort.class_counts(engine), self._num_rounds
        able, num_live = self._cohort.able(free, engine)
        worth_asking = self._worth_asking({client: counts[client] for client in able})
        chosen = self._sampling.choose(number, worth_asking, num_live)
        full = Load(length, self._settings.training.batch_size)
        loads = choose_loads(
            self._settings.rounds.training_load,
            self._settings.num_clients,
            chosen,
            full,
            engine.members.told(),
            counts,
        )
        weights = self._weights(chosen, loads, full, counts)

        # 2. Send both models; clients train them, and what they find comes back.
        sent = self._models.vector.read()
        answers = self._cohort.train(Round(number, i, sent, loads, weights), free, engine)
        if answers is None:
            return None
        self._num_rounds += 1
        took_part = sorted(answers.losses)
        aborted = self._settings.rounds.on_deadline == "abort" and took_part != chosen
        self._record(number, i, engine, loads, took_part, weights, counts, aborted=aborted)
        if aborted or (self._poisson is None and not took_part):
            return None

        # 3. Their models become the next round's: the mean, or what the rule makes of them.
        with engine.span("aggregate"):
            combined = self._combined(sent, answers, weights)
        with engine.span("step"):  # by which reports know that a round is complete
            self._models.vector.write(combined)
            if self._poisson is not None:
                self._poisson.refresh(i)
        self._sampling.took_part(number, took_part)
        self._tell_spent(i, engine)
        return self._advanced(i, answers)

    def _combined(self, sent: Tensor, answers: Answers, weights: Mapping[int, float]) -> Tensor:
        """The next models, float64."""
        if self._poisson is not None:
            return self._poisson.next_models(sent, answers, self._models.vector.num_weight_blocks)
        return combine_models(
            self._settings.aggregation,
            sent,
            answers,
            weights,
            self._models.vector,
            as_differences=not self.form.codec.is_exact,
        )

    def _advanced(self, i: int, answers: Answers) -> Advance:
        """What is told of a round: who took part and their losses, if that may be known."""
        settings, losses = self._settings, answers.mean_losses()
        workers = sorted(answers.losses) if settings.num_clients <= _MOST_NAMED else ()
        if settings.privacy.names_clients and settings.privacy.discloses_losses:
            return Advance(i, losses, workers)
        return Advance(
            i, losses.mean(0, keepdim=True) if settings.privacy.discloses_losses else losses[:0]
        )

    def _tell_spent(self, i: int, engine: Engine) -> None:
        """What clients have spent after iteration i."""
        budget = None if self._poisson is None else self._poisson.budget
        if budget is None:
            return
        ends = budget.over or i == self._settings.training.iterations
        spent = budget.spent(exactly=ends or self._settings.privacy.dp_accountant == "rdp")
        engine.observer.spent(i, {EVERY_CLIENT: spent.epsilon}, {EVERY_CLIENT: spent.replaced})
        if budget.over and i < self._settings.training.iterations:
            engine.observer.note(
                f"the clients have spent their privacy budget ε = {spent.epsilon:.3g} after {i:,} "
                "iterations; training ends"
            )

    @property
    def over(self) -> bool:
        """See `ServerPart`: clients have spent their budget."""
        return self._poisson is not None and self._poisson.over

    def close(self) -> None:
        """See `ServerPart`."""
        if self._poisson is not None:
            self._poisson.close()

    def progress(self) -> dict[str, int]:
        """How many rounds there were, and the iterations of one."""
        charged = {} if self._poisson is None else self._poisson.progress()
        return {"num_rounds": self._num_rounds, "round_length": self._round_length, **charged}

    def go_on(self, progress: Mapping[str, int], changed: Collection[str], *, ended: bool) -> None:
        """Rounds keep their length, unless the settings that decide it have changed."""
        del ended
        # Version 0.5.0 counted rounds under the names that MD-GAN has for swaps.
        self._num_rounds = progress.get("num_rounds", progress.get("num_swaps", 0))
        length = progress.get("round_length", progress.get("swap_every", 0))
        self._round_length = 0 if _RHYTHM.intersection(changed) else length
        if self._poisson is not None:
            self._poisson.go_on(progress)

    def state(self) -> dict[str, Tensor]:
        """See `ServerPart`."""
        return {**under(_MODELS, self._models.state()), **under(_SAMPLING, self._sampling.state())}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """See `ServerPart`."""
        self._models.load_state(part_of(state, _MODELS))
        self._sampling.load_state(part_of(state, _SAMPLING))

    def _worth_asking(self, counts: Mapping[int, list[int]]) -> Mapping[int, list[int]]:
        """The workers whose models have a weight; all if none have, which is bad input."""
        if self._settings.rounds.weighting != "samples":
            return counts
        return {worker: held for worker, held in counts.items() if any(held)} or counts

    def _weights(
        self,
        chosen: list[int],
        loads: Mapping[int, Load],
        full: Load,
        counts: Mapping[int, list[int]],
    ) -> dict[int, float]:
        """The weights of the workers that take part; of models they add up to 1."""
        if self._poisson is not None:
            return dict.fromkeys(chosen, self._poisson.weight)
        shares = {worker: load_share(loads[worker], full) for worker in chosen}
        weights = participant_weights(self._settings.rounds.weighting, chosen, counts, shares)
        total = sum(weights.values())
        return {worker: weight / total for worker, weight in weights.items()}

    def _record(
        self,
        number: int,
        iteration: int,
        engine: Engine,
        loads: Mapping[int, Load],
        took_part: list[int],
        weights: Mapping[int, float],
        counts: Mapping[int, list[int]],
        *,
        aborted: bool,
    ) -> None:
        total = sum(weights[worker] for worker in took_part)
        if not self._settings.privacy.names_clients:
            loads, took_part = {}, []
        sizes = {n: min(load.batch_size, sum(counts[n])) for n, load in loads.items()}
        engine.observer.event(
            "round",
            iteration,
            number=number,
            asked=sorted(loads),
            took_part=took_part,
            weights=[weights[worker] / total for worker in took_part],
            iterations={str(worker): load.iterations for worker, load in loads.items()},
            batch_sizes={str(worker): size for worker, size in sizes.items()},
            aborted=aborted,
        )
