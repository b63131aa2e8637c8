"""A server and its hosts that train as MD-GAN, in one process, some of them played by hand."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from mdgan.engine.parts import HostPart, ServerPart
from mdgan.engine.settings import RunSettings
from mdgan.engine.stages.contract import HostPath
from mdgan.families.mdgan.build import learner_kind, make_server
from mdgan.families.mdgan.host import MDGANHost, OneByOne, rules_for
from mdgan.families.mdgan.messages import COPIED
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.families.mdgan.worker import Worker
from mdgan.gan import discriminator_learner
from mdgan.gan.labels import Samples
from mdgan.gan.model_state import part_of
from mdgan.observe.tracer import Tracer
from tests.unit.engine.learners import make_shard
from tests.unit.engine.learners import same_state as same_state
from tests.unit.engine.played import weights
from tests.unit.engine.stage import Actor as Actor
from tests.unit.engine.stage import Stage as EngineStage
from tests.unit.engine.stage import as_after as as_after
from tests.unit.families.mdgan.played import Played
from tests.unit.gan import small


def make_worker(rank: int, *, local_steps: int = 1, model_seed: int = 0) -> Worker:
    """All start with the same θ, as in a real run."""
    data = make_shard(rank)
    return small.make_worker(rank, model_seed=model_seed, data=data, local_steps=local_steps)


def discriminator(model_seed: int = 0) -> dict[str, Tensor]:
    """The state of a discriminator, as it travels."""
    return part_of(make_worker(1, model_seed=model_seed).state(), "discriminator.")


def copied(model_seed: int = 0) -> dict[str, Tensor]:
    """What others get of a worker's state, as it travels: weights and buffers."""
    state = make_worker(1, model_seed=model_seed).state()
    return {name: tensor for name, tensor in state.items() if name.startswith(COPIED)}


class Stage(EngineStage):
    """A stage on which MD-GAN is trained."""

    def make_settings(self, values: Mapping[str, Any]) -> RunSettings:
        return MDGANSettings.read({"swap_interval": 0, "step_samples": 0, **values})

    def bring(self) -> ServerPart:
        assert isinstance(self.settings, MDGANSettings)
        policy = self.settings.training.policy("generator") if self.settings.by_arrival else None
        self.learner = small.make_learner(policy=policy, kind=learner_kind(self.settings))
        return make_server(self.learner, self.settings, small.SHAPE)

    def bring_host(self, workers: Mapping[int, Any], tracer: Tracer) -> HostPart:
        group = OneByOne(workers, tracer.of_worker)
        assert isinstance(self.settings, MDGANSettings)
        rules = rules_for(by_arrival=self.settings.by_arrival)
        return MDGANHost(workers, group, HostPath(self.form), tracer, rules=rules)

    def bring_worker(self, rank: int) -> Worker:
        return make_worker(rank, local_steps=self.settings.training.local_steps)

    def play(self, *workers: int, **fields: Any) -> Any:
        return Played(self.network, *workers, **fields)

    def has_learnt(self, expected: Tensor) -> bool:
        return small.same_bits(weights(self.learner.model), expected)

    def disk_keeps_up(self, worker: Worker) -> None:
        """A worker learns, and answers, only when the checkpoint that was due before is there."""
        learn = worker.learn

        def learn_later(
            fake: Samples, stage: discriminator_learner.Stage = discriminator_learner.unobserved
        ) -> Tensor:
            self.await_due_checkpoint()
            return learn(fake, stage)

        worker.learn = learn_later  # type: ignore[method-assign] # of this one alone
