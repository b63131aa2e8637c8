"""The server of DP-MERF: it asks all workers once, and trains a generator on the noisy sum."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import nan, sqrt
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from mdgan.engine.parts import Advance, ServerPart
from mdgan.engine.server.engine import Engine
from mdgan.engine.stages.contract import ServerPath
from mdgan.engine.stages.noise_parts import OF_ANSWERS, noise_of_sum
from mdgan.errors import BadInput
from mdgan.families.moments.contract import Lesson, NoisySums, Statistic
from mdgan.families.moments.host import ASK
from mdgan.gan.generator import Generator
from mdgan.gan.model_state import part_of, under
from mdgan.messages import Message
from mdgan.records.run_directory import TOLD_PAIRS
from mdgan.spelling import key

_TOLD = "told."  # the prefix of the workers' sums in checkpoints
_OF_FEATURES = {"seed", "num_features", "kernel_width", "feature_side", "feature_network"}


@dataclass(eq=False)
class MomentsServer(ServerPart):
    """Asks once; G learns from noisy sums alone (Harder, Adamczewski and Park 2021, section 3)."""

    learner: Generator
    statistic: Statistic
    path: ServerPath = field()
    batch_size: int

    def __post_init__(self) -> None:
        self.form, self.device = self.path.form, self.learner.device
        self.generator = self.learner.model
        self._workers: list[int] | None = None
        self._is_unsaved = False
        self._received: Mapping[str, Tensor] = {}
        self._asks_for: Statistic | None = None
        self._lesson: Lesson | None = None

    def begin(self, engine: Engine) -> None:
        self.path.begin(engine.peers)

    def holdings(self, engine: Engine) -> Mapping[str, Any]:
        """The data of workers that have answered, though they have left since."""
        return engine.peers.holdings(self._workers)

    def advance(self, done: int, engine: Engine) -> Advance | None:
        """Takes a step of G; before the first one, asks workers for their sums."""
        i = done + 1
        if self._is_unsaved:  # workers have left, and answer no second time
            engine.save(alone=not engine.peers.workers())
            self._is_unsaved = False
        if self._lesson is None:
            self._ask(i, engine)
        if self._lesson is None:
            return None
        engine.poll()
        engine.at(i)
        with engine.span("step"):
            self.learner.at(i)
            loss = self._lesson.step(self.learner, self.batch_size)
        return Advance(i, torch.tensor([[nan, loss]]))

    def look_back(self, shown: nn.Module, engine: Engine) -> None:
        if self._lesson is not None and (fields := self._lesson.review(shown)):
            engine.event(TOLD_PAIRS, engine.done, **fields)

    def _ask(self, i: int, engine: Engine) -> None:
        """Asks all workers for their sums; sets the lesson, unless none answers."""
        hosts = engine.await_hosts()
        engine.at(i)
        groups = {worker: 0 for workers in hosts.values() for worker in workers}
        asked = self.path.ask(hosts, groups, engine)
        least, variances = noise_of_sum(asked.hosts, OF_ANSWERS, self.path, engine.peers)
        if self._asks_for is None:  # the server must ask a second time for the same
            self._asks_for = self.statistic.fit_to(sqrt(sum(variances.values())))
            engine.note(f"a worker tells {self._asks_for.about()}")
        statistic = self._asks_for
        about = {"features": statistic.identity, **least, **statistic.fields()}
        question = Message(ASK, i, {**asked.fields, **about})
        engine.ask(i, asked.hosts, lambda _: question)
        answers = self.path.collect(i, asked, engine, form=statistic.form)
        workers = sorted(answers.losses)
        if not workers:
            return
        self._workers, held = workers, engine.peers.holdings(workers)
        self.statistic = statistic
        statistic.put_into(self.generator)
        received = {
            "sums": statistic.added_up(answers.singles, answers.sums),
            "samples": torch.tensor(sum(int(data["samples"]) for data in held.values())),
            "variance": torch.tensor(sum(variances[n] for n in workers), dtype=torch.float64),
        }
        self._set_lesson(received)
        self._is_unsaved = True

    def _set_lesson(self, received: Mapping[str, Tensor]) -> None:
        self._received = received
        sums, number, variance = (received[name] for name in ("sums", "samples", "variance"))
        noisy = NoisySums(sums.cpu(), int(number), float(variance))
        self._lesson = self.statistic.lesson(noisy, self.device)

    def go_on(self, _progress: Mapping[str, int], changed: Collection[str], *, ended: bool) -> None:
        """Refuses settings of other features than those whose sums workers have sent."""
        del ended
        if self._received and (others := _OF_FEATURES & set(changed)):
            why = "workers have told sums with another value"
            raise BadInput(key(min(others)), why, "leave it out, or begin a new run")

    @override
    def state(self) -> dict[str, Tensor]:
        return {**self.learner.state(), **under(_TOLD, self._received)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        received = part_of(state, _TOLD)
        self.learner.load_state({n: t for n, t in state.items() if not n.startswith(_TOLD)})
        if received:
            self.statistic = self.statistic.kept_in(self.generator)
            if received["sums"].shape != self.statistic.form.shape:
                raise RuntimeError("the state has sums of other features")
            self._set_lesson(received)
