"""The baseline: the ordinary server with a part that has the data itself, and no hosts."""

from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from mdgan.engine.parts import ServerPart
from mdgan.engine.settings import RunSettings
from mdgan.errors import Interrupted
from mdgan.families.standalone.server import StandaloneServer
from mdgan.families.standalone.settings import StandaloneSettings
from mdgan.gan.local_gan import LocalGAN
from mdgan.storage.manifest import SERVER
from tests.unit.engine.learners import same_state
from tests.unit.engine.stage import Stage
from tests.unit.families.mdgan.stage import make_worker
from tests.unit.gan.stateful import make_standalone


def make_gan() -> LocalGAN:
    return make_standalone(make_worker(1, local_steps=2))


class Alone(Stage):
    """A server without hosts."""

    def __init__(self, folder: Path, **how: Any) -> None:
        self.gan = make_gan()
        super().__init__(folder, num_workers=0, **how)

    def make_settings(self, values: Mapping[str, Any]) -> RunSettings:
        return StandaloneSettings.read({**values, "world_size": 2})

    def bring(self) -> ServerPart:
        return StandaloneServer(self.gan, [3, 9])

    def trained(self) -> "Alone":
        """Trains to the end."""
        self.begin()
        self.finished()
        return self

    def asked_to_stop_in(self, monkeypatch: pytest.MonkeyPatch, iteration: int) -> None:
        """The user presses Ctrl-C while an iteration is computed."""
        step, numbers = self.gan.step, count(1)

        def stopped(*args: Any) -> Any:
            if next(numbers) == iteration:
                self.network.server.interrupt()
            return step(*args)

        monkeypatch.setattr(self.gan, "step", stopped)


MakeAlone = Callable[..., Alone]


@pytest.fixture
def stage_kind() -> type[Alone]:
    return Alone


def test_it_computes_what_both_models_compute_by_themselves(stage: MakeAlone) -> None:
    made, reference = stage(iterations=4).trained(), make_gan()
    for _ in range(4):
        reference.step()
    assert same_state(made.gan.state(), reference.state())
    assert [record["iteration"] for record in made.metrics()] == [1, 2, 3, 4]
    (holdings,) = made.events("holdings")
    assert holdings["workers"] == {"1": {"samples": 12, "classes": [3, 9]}}


def test_it_goes_on_bit_for_bit(stage: MakeAlone) -> None:
    whole = stage(iterations=6, checkpoints=3).trained()
    manifest = whole.wait_for_checkpoint(6)
    assert manifest.files.keys() == {SERVER}
    shorter = stage(iterations=3, checkpoints=3).trained()
    again = stage(shorter.folder, goes_on=True, iterations=6, checkpoints=3)
    assert again.peers.iteration == 3
    again.trained()
    assert same_state(again.gan.state(), whole.gan.state())


def test_asked_to_stop_it_saves_what_there_is(
    stage: MakeAlone, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = stage(iterations=6, checkpoints=1, keep=9)
    made.asked_to_stop_in(monkeypatch, 3)
    made.begin()
    assert isinstance(made.over(), Interrupted)
    assert made.status()["state"] == "stopped"
    assert made.status()["iteration"] == 3
    assert made.checkpoints.committed()[-1] == 3


def test_asked_to_stop_in_the_last_iteration_it_is_done(
    stage: MakeAlone, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = stage(iterations=2, checkpoints=2)
    made.asked_to_stop_in(monkeypatch, 2)
    made.trained()
    assert made.status()["state"] == "finished"
    assert made.wait_for_checkpoint(2).iteration == 2
