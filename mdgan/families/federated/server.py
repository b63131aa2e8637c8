"""The server of FL-GAN and FeGAN: it plays the rounds of `round.py`, and records them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

import torch
from torch import Tensor, nn

from mdgan.engine.answers import AnswerForm, Answers
from mdgan.engine.host_keys import NotMasked
from mdgan.engine.parts import Advance, ServerHandler, ServerPart
from mdgan.engine.server.engine import Engine
from mdgan.engine.server.hosts import Hosts, workers_of
from mdgan.engine.stages.contract import ServerPath
from mdgan.engine.stages.mask_parties import least_parties
from mdgan.errors import BadInput
from mdgan.families.federated import messages
from mdgan.families.federated.averaging import Averaging
from mdgan.families.federated.messages import LEAST_PART, Load, RoundPlan
from mdgan.families.federated.round import Start
from mdgan.families.federated.settings import FederatedSettings
from mdgan.families.federated.training_load import choose_loads, told_of_clients
from mdgan.gan.model_state import part_of, under
from mdgan.gan.model_vector import ModelVector
from mdgan.messages import Message
from mdgan.spelling import flag

_KL, _WAY_OUT = flag("weighting", "kl"), f"use {flag('weighting', 'uniform')}"
_MODELS, _SAMPLING, _CLASSES = "models.", "sampling.", "classes"
_RHYTHM = {
    *("round_iterations", "round_epochs", "batch_size", "partition", "world_size"),
    *("dataset", "data_dir"),
}
"""The settings that decide how long a round is."""
_MOST_NAMED = 1000
"""With more clients the server does not record the losses of each: a client's curve would have few
points, and the file would grow with the clients of a round."""


class Cohort:
    """All clients, and how the server has hosts train them; `path` may mask their answers.

    Here each client lives on the rank of its number; `PlacedCohort` has clients without a home.
    """

    classes: list[int] | None = None  # n_x of all clients, by a secure sum; None without one

    def __init__(self, path: ServerPath) -> None:
        self.path = path

    def learn_classes(self, engine: Engine) -> None:
        """Asks the clients of the start for a secure sum of their classes; once in a run."""
        parts = self.path.ask_for_sum(messages.ASKCLASSES, engine, messages.CLASSES_FORM)
        if not parts:
            raise BadInput(_KL, "no secure sum of classes came of it", "begin anew")
        counts = torch.stack([part.total for part in parts]).sum(0).long()
        workers = [n for part in parts for n in part.workers]
        num_samples = sum(held["samples"] for held in engine.peers.holdings(workers).values())
        if not num_samples or counts.min() < 0 or counts.sum() != num_samples:
            raise BadInput(
                _KL,
                "the secure sum of classes is none that honest workers have (of "
                f"{int(counts.sum())} samples, and they tell of {num_samples})",
                _WAY_OUT,
            )
        self.classes = counts[: int(counts.nonzero().max()) + 1].tolist()

    def handlers(self) -> Mapping[str, ServerHandler]:
        """By kind of message, its handler, for messages that are no answers to questions."""
        return {}

    def class_counts(self, engine: Engine) -> dict[int, list[int]]:
        """By client, the samples of each class; under differential privacy, only their number."""
        holdings = engine.peers.holdings().items()
        return {int(worker): held["classes"] or [held["samples"]] for worker, held in holdings}

    def available_clients(self, hosts: Hosts, engine: Engine) -> tuple[Sequence[int], int]:
        """The clients that these free hosts can train next, and how many clients live."""
        num_live = sum(map(len, engine.peers.taking_part().values()))
        return workers_of(self.path.hosts_to_ask(hosts, engine.peers)), num_live

    def train(self, plan: RoundPlan, hosts: Hosts, engine: Engine) -> Answers | None:
        """Has these free hosts train the chosen clients; None if it must repeat the round."""
        chosen = {host: [n for n in carried if n in plan.tasks] for host, carried in hosts.items()}
        asked_hosts: Hosts = {host: clients for host, clients in chosen.items() if clients}
        asked = self.path.ask(asked_hosts, dict.fromkeys(workers_of(asked_hosts), 0), engine)
        weights = {n: task.weight for n, task in plan.tasks.items()}
        part = 1.0 if self.classes is None else LEAST_PART
        fields = {**asked.fields, **({} if self.classes is None else {"classes": self.classes})}
        in_sum = workers_of(asked.hosts) if asked.fields else []
        least = least_parties(engine.peers)
        of_sum = {n: weights[n] for n in in_sum}
        try:
            for host in asked.hosts if in_sum else ():
                messages.check_weights(
                    host, asked.hosts, least, weights=of_sum, uniform=False, least_part=part
                )
        except NotMasked as error:  # a host would refuse its part of the sum
            if self.path.gives_up_search():
                return None
            raise BadInput(flag("secure_aggregation", True), error, _WAY_OUT) from error

        def message(workers: Collection[int]) -> Message:
            tasks = [plan.tasks[n] for n in workers]
            return messages.order(plan.iteration, plan.models, [tasks], fields)

        # All hosts of a sum get the same question, and can check that.
        for_all = message(in_sum) if in_sum else None
        engine.ask(plan.iteration, asked.hosts, lambda host: for_all or message(asked.hosts[host]))
        return self.path.collect(plan.iteration, asked, engine, weights)


class GlobalModels(nn.Module):
    """Both models of the server, w and θ, after the last round."""

    def __init__(self, generator: nn.Module, discriminator: nn.Module) -> None:
        super().__init__()
        self.generator = generator
        self.discriminator = discriminator
        self.vector = ModelVector(generator, discriminator)


@dataclass(eq=False)
class FederatedServer(ServerPart):
    """Plays a round in each `advance` (Guerraoui et al. 2020, section 3.2)."""

    models: GlobalModels
    cohort: Cohort
    averaging: Averaging
    settings: FederatedSettings
    device: torch.device = field()
    counts_busy = False

    def __post_init__(self) -> None:
        self.path: ServerPath = self.cohort.path
        self.form = self.path.form
        self.generator, self.discriminator = self.models.generator, self.models.discriminator
        self._num_rounds = 0
        self._round_length = 0

    @property
    def forms(self) -> Sequence[AnswerForm]:
        return (self.form, *([messages.CLASSES_FORM] if self.settings.weighs_in_secret else []))

    def handlers(self) -> Mapping[str, ServerHandler]:
        return self.cohort.handlers()

    def holdings(self, engine: Engine) -> Mapping[str, Any]:
        tells = self.settings.privacy.discloses("classes") and self.settings.tells_classes
        return {
            str(n): {"samples": sum(held), "classes": held if tells else []}
            for n, held in self.cohort.class_counts(engine).items()
        }

    def begin(self, engine: Engine) -> None:
        """Works out how long a round is, and refuses a run in which no round is possible."""
        self.path.begin(engine.peers)
        if self.settings.weighs_in_secret and self.cohort.classes is None:
            self.cohort.learn_classes(engine)
        counts = self.cohort.class_counts(engine)
        if not self._round_length:
            mean_shard_size = sum(map(sum, counts.values())) / max(1, len(counts))
            self._round_length = self.settings.round_length(mean_shard_size)
        num_rounds = ceil(self.settings.training.iterations / self._round_length)
        self.averaging.begin(num_rounds, counts, engine)

    def advance(self, done: int, engine: Engine) -> Advance | None:
        free = engine.await_hosts()
        length = min(self._round_length, self.settings.training.iterations - done)
        i = done + length
        engine.at(i)
        self.averaging.announce(i, engine)

        counts = self.cohort.class_counts(engine)
        available, num_live = self.cohort.available_clients(free, engine)
        full = Load(length, self.settings.training.batch_size)
        form, num_clients = self.settings.rounds.training_load, self.settings.num_clients
        weak = choose_loads(form, num_clients, full, told_of_clients(engine.peers), counts)
        start = Start(
            number=self._num_rounds,
            i=i,
            class_counts=counts,
            available=available,
            num_live=num_live,
            full=full,
            weak=weak,
        )
        last_answers = Answers()

        def train(plan: RoundPlan) -> Answers | None:
            """Trains clients and records the round; None if the server must repeat the round."""
            nonlocal last_answers
            answers = self.cohort.train(plan, free, engine)
            if answers is None:
                return None
            last_answers = answers
            self._num_rounds += 1
            took_part = sorted(answers.losses)
            aborts = self.settings.rounds.on_deadline == "abort"
            aborted = aborts and took_part != sorted(plan.tasks)
            self._record(plan, took_part, counts, engine, aborted=aborted)
            is_lacking = not took_part and (self.averaging.needs_answers or self._is_final(answers))
            return None if aborted or is_lacking else answers

        is_complete = self.averaging.play(start, self.models.vector, train, engine)
        if is_complete or self._is_final(last_answers):
            return self._advanced(i, last_answers)
        return None

    def _is_final(self, answers: Answers) -> bool:
        """Whether no models can be used, and hosts would not answer a repeated round."""
        repeats = self.settings.begins_anew and self.path.hides_answers
        return repeats and bool(answers.hosts) and not answers.losses

    def _advanced(self, i: int, answers: Answers) -> Advance:
        """The record of a round: the losses of clients, as far as privacy lets the server know."""
        settings = self.settings
        losses = answers.mean_losses()
        if not settings.privacy.discloses_losses:
            return Advance(i, losses[:0])
        if not settings.privacy.names_clients:
            return Advance(i, losses.mean(0, keepdim=True))
        named = settings.num_clients <= _MOST_NAMED
        return Advance(i, losses, sorted(answers.losses) if named else ())

    @property
    def over(self) -> bool:
        return self.averaging.over

    def close(self) -> None:
        self.averaging.close()

    def progress(self) -> dict[str, int]:
        """How many rounds have ended, and the iterations of one."""
        counts = {"num_rounds": self._num_rounds, "round_length": self._round_length}
        return {**counts, **self.averaging.progress()}

    def go_on(self, progress: Mapping[str, int], changed: Collection[str], *, ended: bool) -> None:
        """Rounds keep their length, unless the settings that decide it have changed."""
        del ended
        # Version 0.5.0 counted rounds under the names that MD-GAN has for swaps.
        self._num_rounds = progress.get("num_rounds", progress.get("num_swaps", 0))
        length = progress.get("round_length", progress.get("swap_every", 0))
        self._round_length = 0 if _RHYTHM.intersection(changed) else length
        self.averaging.go_on(progress)

    def state(self) -> dict[str, Tensor]:
        classes = self.cohort.classes
        counts = {} if classes is None else {_CLASSES: torch.tensor(classes)}
        models = {name: tensor.clone() for name, tensor in self.models.state_dict().items()}
        return {**under(_MODELS, models), **under(_SAMPLING, self.averaging.state()), **counts}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.models.load_state_dict(part_of(state, _MODELS))
        self.averaging.load_state(part_of(state, _SAMPLING))
        if _CLASSES in state:
            self.cohort.classes = state[_CLASSES].tolist()

    def _record(
        self,
        plan: RoundPlan,
        took_part: Sequence[int],
        counts: Mapping[int, list[int]],
        engine: Engine,
        *,
        aborted: bool,
    ) -> None:
        tasks = plan.tasks
        total = sum(tasks[client].weight for client in took_part)
        if not self.settings.privacy.names_clients:
            tasks, took_part = {}, []
        loads = {n: task.load for n, task in tasks.items()}
        engine.event(
            "round",
            plan.iteration,
            number=plan.number,
            asked=sorted(tasks),
            took_part=took_part,
            weights=[tasks[client].weight / total for client in took_part],
            iterations={str(n): load.iterations for n, load in loads.items()},
            batch_sizes={str(n): min(load.batch_size, sum(counts[n])) for n, load in loads.items()},
            aborted=aborted,
        )
