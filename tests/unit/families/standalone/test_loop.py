"""The baseline's loop."""

import errno
import threading
from collections.abc import Callable
from typing import Any

import pytest
from mdgan.families.standalone.loop import run_standalone

from mdgan.engine.server import checkpoints as saving_module
from mdgan.engine.server.scoring import Scoring
from mdgan.errors import Interrupted
from mdgan.gan.local_gan import LocalGAN
from mdgan.gan.losses import GENERATOR_LOSSES
from mdgan.gan.randomness import RandomState, generator_for
from mdgan.storage.manifest import SERVER
from mdgan.storage.state_file import read_state
from tests.unit.engine.stage import Stage, make_worker, same_state
from tests.unit.gan import small

MakeStage = Callable[..., Stage]


def make_gan() -> LocalGAN:
    generator = small.make_generator()
    return LocalGAN(
        generator,
        small.adam(generator),
        make_worker(1, local_steps=2),
        z_dim=small.Z_DIM,
        batch_size=small.BATCH_SIZE,
        kappa=2,
        generator_loss=GENERATOR_LOSSES["non-saturating"],
        noise=generator_for(0, "noise"),
        random_state=RandomState(1000, small.CPU),
    )


def run(made: Stage, gan: LocalGAN, first: int, stop: threading.Event | None = None) -> None:
    """Trains with everything of a stage but its network."""
    run_standalone(
        gan,
        range(first, made.experiment.iterations + 1),
        made.observer,
        Scoring(None, 0, made.experiment.iterations),
        made.saving,
        {},
        stop or threading.Event(),
    )


def test_it_goes_on_bit_for_bit(stage: MakeStage) -> None:
    made, whole = stage(iterations=6, checkpoints=3), make_gan()
    run(made, whole, 1)
    manifest = made.wait_for_checkpoint(6)
    assert manifest.files.keys() == {SERVER}
    shorter, again = stage(iterations=3, checkpoints=3), make_gan()
    run(shorter, make_gan(), 1)
    half = shorter.wait_for_checkpoint(3)
    assert again.load_state(read_state(shorter.checkpoints.folder_of(3), half.files[SERVER]))
    run(stage(iterations=6, checkpoints=3), again, 4)
    assert same_state(again.state(), whole.state())


def test_asked_to_stop_it_saves_what_there_is(stage: MakeStage) -> None:
    made, stop = stage(iterations=6, checkpoints=1), threading.Event()
    stop.set()
    with pytest.raises(Interrupted):
        run(made, make_gan(), 1, stop)
    assert made.status()["state"] == "stopped"
    assert made.status()["iteration"] == 1
    assert made.checkpoints.committed() == [1]


def test_a_full_disk_does_not_stop_it(stage: MakeStage, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(saving_module, "write_state", full)
    made = stage(iterations=4, checkpoints=4)
    run(made, make_gan(), 1)
    assert made.status()["state"] == "finished"
    (event,) = made.events("unsaved")
    assert (event["iteration"], made.checkpoints.committed()) == (4, [])
