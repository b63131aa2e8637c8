"""A federated run that is stopped and goes on ends as if it had never been stopped."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from mdgan.engine.stages.contract import ServerPath
from mdgan.families.federated.averaging import WeightedAveraging
from mdgan.families.federated.cohort import AtHome
from mdgan.families.federated.messages import update_form
from mdgan.families.federated.server import FederatedServer
from mdgan.families.federated.settings import FederatedSettings
from tests.unit.engine.stage import as_after, same_state
from tests.unit.families.federated.rounds import E, RoundStage, make_client, make_models
from tests.unit.gan.small import CPU

MakeRounds = Callable[..., RoundStage]
SLOW = pytest.mark.slow
Groups = tuple[tuple[int, ...], ...]
ALONE = ((1,), (2,), (3,), (4,))
CLASSES = {1: [9, 1, 0], 2: [0, 9, 0], 3: [0, 0, 9], 4: [3, 3, 3]}
BALANCED = {"participation": 0.25, "sampling": "balanced", "weighting": "kl", "classes": CLASSES}
SETTINGS: dict[str, tuple[Groups, dict[str, Any]]] = {
    "some, drawn": (ALONE, {"participation": 0.5}),
    "balanced": (ALONE, BALANCED),
    "balanced, two hosts": (((1, 2, 3), (4,)), BALANCED),
    "to the server": (ALONE, {**BALANCED, "to_server": True}),
    "int8": (((1, 2), (3, 4)), {"wire": "models=int8"}),
}
QUICK = {"some, drawn", "balanced", "to the server"}


Outcome = tuple[dict[str, Tensor], list[dict[str, Any]]]


def run(made: RoundStage, groups: Groups) -> Outcome:
    """All that a run leaves behind: states, and what was recorded of rounds."""
    clients = {rank: make_client(rank) for group in groups for rank in group}
    for client in clients.values():
        made.disk_keeps_up_with(client)
    made.begin()
    for group in groups:
        made.host({rank: clients[rank] for rank in group})
    made.finished()
    states = {f"{n}.{name}": t for n, own in clients.items() for name, t in own.state().items()}
    rounds = [
        {name: value for name, value in event.items() if name != "seconds"}
        for event in made.events("round")
    ]
    return {"server": made.vector(), **states}, rounds


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=SLOW) for name in SETTINGS]
)
def test_bit_for_bit(rounds: MakeRounds, tmp_path: Path, name: str) -> None:
    groups, settings = SETTINGS[name]
    settings = {"num_workers": 4, "iterations": 6 * E, "checkpoints": 2 * E, **settings}
    made = rounds(keep=10, **settings)
    whole = run(made, groups)
    assert made.checkpoints.committed() == [0, 2 * E, 4 * E, 6 * E]
    for iteration in (2 * E, 4 * E):
        again = rounds(
            as_after(made, iteration, tmp_path / f"d-{iteration}"), goes_on=True, **settings
        )
        resumed = run(again, groups)
        assert same_state(whole[0], resumed[0])
        later = [event for event in whole[1] if event["iteration"] > iteration]
        assert later
        assert resumed[1][-len(later) :] == later


@pytest.mark.parametrize("name", ["balanced", "int8"])
def test_a_run_that_was_done_is_made_longer(rounds: MakeRounds, name: str) -> None:
    groups, settings = SETTINGS[name]
    settings = {"num_workers": 4, "checkpoints": 100 * E, **settings}
    whole = run(rounds(iterations=4 * E, **settings), groups)
    made = rounds(iterations=2 * E, **settings)
    run(made, groups)
    longer = run(rounds(made.folder, goes_on=True, iterations=4 * E, **settings), groups)
    assert same_state(whole[0], longer[0])


@pytest.mark.parametrize(
    ("changed", "length"),
    [
        ([], 3),
        (["seed", "device", "iterations"], 3),
        *(([name], 0) for name in ("round_iterations", "round_epochs", "batch_size", "data_dir")),
    ],
)
@pytest.mark.parametrize(
    "names", [("num_rounds", "round_length"), ("num_swaps", "swap_every")], ids=["now", "0.5.0"]
)
def test_rounds_keep_their_length_unless_a_setting_moves_it(
    changed: list[str], length: int, names: tuple[str, str]
) -> None:
    """A length of 0 is worked out anew when the workers are there."""
    models, settings = make_models(), FederatedSettings()
    averaging = WeightedAveraging(settings, models.vector)
    cohort = AtHome(ServerPath(update_form(settings, models.vector.shape)))
    server = FederatedServer(models, cohort, averaging, settings, CPU)
    server.go_on(dict(zip(names, (4, 3), strict=True)), changed, ended=True)
    assert server.progress() == {"num_rounds": 4, "round_length": length}
