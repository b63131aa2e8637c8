"""The server's share of DP-MERF: it asks once, and trains a generator on what it was told."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import nan
from typing import Any

import msgspec
import torch
from torch import Tensor, nn

from mdgan.engine.parts import Advance, ServerPart
from mdgan.engine.server.engine import Engine
from mdgan.engine.stages.contract import AskedHosts, ServerPath
from mdgan.errors import BadInput
from mdgan.families.moments.host import ASK
from mdgan.families.moments.message import Embedding, EvenGenerator, SampleFeatures, added_up
from mdgan.gan.model_state import part_of, under
from mdgan.messages import Message
from mdgan.privacy.accountant import MOST_NOISE
from mdgan.privacy.shared_noise import variance_of_part

_TOLD = "told."  # before the names of what workers have told in a checkpoint
_OF_FEATURES = {"seed", "num_features", "kernel_width", "feature_side", "feature_network"}


@dataclass(eq=False)
class MomentsServer(ServerPart):
    """DP-MERF (Harder, Adamczewski and Park 2021, section 3): G learns from noisy means alone."""

    learner: EvenGenerator
    features: SampleFeatures
    path: ServerPath = field()
    batch_size: int

    def __post_init__(self) -> None:
        self.form, self.device = self.path.form, self.learner.device
        self._workers: list[int] | None = None
        self._is_unsaved = False
        self._told: dict[str, Tensor] = {}
        self._embedding: Embedding | None = None

    @property
    def generator(self) -> nn.Module:
        return self.learner.model

    def begin(self, engine: Engine) -> None:
        self.path.begin(engine.peers)

    def holdings(self, engine: Engine) -> Mapping[str, Any]:
        """What those workers hold that have told, though they went home since."""
        return engine.peers.holdings(self._workers)

    def advance(self, done: int, engine: Engine) -> Advance | None:
        """A step of G; before the first one, workers tell their sums."""
        i = done + 1
        if self._is_unsaved:  # what workers tell once must not be lost
            engine.save(alone=not engine.peers.workers())
            self._is_unsaved = False
        if self._embedding is None:
            self._ask(i, engine)
        if self._embedding is None:
            return None
        engine.poll()
        engine.at(i)
        with engine.span("step"):
            self.learner.at(i)
            loss = self.learner.learn(self.features, self._embedding, self.batch_size)
        return Advance(i, torch.tensor([[nan, loss]]))

    def _ask(self, i: int, engine: Engine) -> None:
        """Has all workers tell their sums; from then on there is an embedding, if any did."""
        hosts = engine.await_hosts()
        engine.at(i)
        groups = {worker: 0 for workers in hosts.values() for worker in workers}
        asked = self.path.ask(hosts, groups, engine)
        noises = _noises(asked, engine)
        about = {"features": self.features.identity, "least_noise": _least(noises)}
        variances = self._variances(asked, noises, engine)
        question = Message(ASK, i, {**asked.fields, **about})
        engine.ask(i, asked.hosts, lambda _: question)
        answers = self.path.collect(i, asked, engine)
        workers = sorted(answers.losses)
        if not workers:
            return
        self._workers, held = workers, engine.peers.holdings(workers)
        told = {
            "sums": added_up(answers.singles, answers.sums),
            "samples": torch.tensor(sum(int(own["samples"]) for own in held.values())),
            "variance": torch.tensor(sum(variances[n] for n in workers), dtype=torch.float64),
        }
        self._learn_of(told)
        self._is_unsaved = True

    def _variances(
        self, asked: AskedHosts, noises: Mapping[int, Mapping[int, float]], engine: Engine
    ) -> dict[int, float]:
        """By worker, of the noise in each value that it tells."""
        if not self.path.hides_answers:
            return {n: noise**2 for own in noises.values() for n, noise in own.items()}
        sharers, least = self.path.num_sharers(asked.hosts, engine.peers), _least(noises)
        return {
            n: variance_of_part(max(own.values()), least, sharers) / len(own)
            for own in noises.values()
            for n in own
        }

    def _learn_of(self, told: Mapping[str, Tensor]) -> None:
        self._told = dict(told)
        number, variance = max(1, int(told["samples"])), float(told["variance"])
        self._embedding = Embedding.of(told["sums"].cpu(), number, variance).to(self.device)

    def go_on(self, _progress: Mapping[str, int], changed: Collection[str], *, ended: bool) -> None:
        """Refuses other features than those whose sums were told."""
        del ended
        if self._told and (others := _OF_FEATURES & set(changed)):
            raise BadInput(
                f"--set {min(others)}: workers have told sums with another value; leave it out, or "
                "begin a new run"
            )

    def state(self) -> dict[str, Tensor]:
        """See `ServerPart`; with it a run goes on without asking a second time."""
        return {**self.learner.state(), **under(_TOLD, self._told)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        told = part_of(state, _TOLD)
        if told and told["sums"].shape != self.features.shape:
            raise RuntimeError("the state has sums of other features")
        self.learner.load_state({n: t for n, t in state.items() if not n.startswith(_TOLD)})
        if told:
            self._learn_of(told)


def _noises(asked: AskedHosts, engine: Engine) -> dict[int, dict[int, float]]:
    """By host and worker, σ that the accounts take, as hosts say; 0 without noise."""
    told = engine.peers.told()
    said = {host: read_noise(told.get(host, {})) for host in asked.hosts}
    return {h: {n: said[h].get(n, 0.0) for n in own} for h, own in asked.hosts.items() if own}


def _least(noises: Mapping[int, Mapping[int, float]]) -> float:
    """What the accounts of every host that is asked take at least."""
    return min((max(own.values()) for own in noises.values()), default=0.0)


def read_noise(told: Mapping[str, Any]) -> dict[int, float]:
    """The standard deviation of each worker's noise, as a host says; 0 where it makes no sense."""
    try:
        given = msgspec.convert(told.get("noise", {}), dict[int, float], strict=False)
    except msgspec.ValidationError:
        return {}
    return {n: noise if 0 <= noise <= MOST_NOISE else 0.0 for n, noise in given.items()}
