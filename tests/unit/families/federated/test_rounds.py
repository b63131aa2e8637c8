"""A round of FL-GAN and FeGAN: the clients that are asked, the questions, and the answers."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from mdgan import messages
from mdgan.engine.stages.contract import ServerPath
from mdgan.families.federated.averaging import Averaging
from mdgan.families.federated.messages import ROUND, update_form
from mdgan.families.federated.round import Client
from mdgan.families.federated.server import Cohort, FederatedServer
from mdgan.families.federated.settings import FederatedSettings
from mdgan.records.values import passed
from tests.unit.engine.learners import same_state
from tests.unit.engine.stage import as_after
from tests.unit.families.federated.rounds import (
    E,
    PlayedClients,
    RoundStage,
    make_client,
    make_models,
    mean_of,
    models_of,
    tasks_of,
)
from tests.unit.gan.small import BATCH_SIZE, CPU, same_bits

MakeRounds = Callable[..., RoundStage]


def expected_of(clients: Mapping[int, Client], num_rounds: int, length: int = E) -> Tensor:
    """The server's models, computed here with clients of the same streams."""
    server = make_models()
    for _ in range(num_rounds):
        sent = server.vector.read()
        trained = {n: client.train(sent, length, BATCH_SIZE)[0] for n, client in clients.items()}
        share = 1 / len(clients)
        server.vector.write(mean_of({n: (share, vector) for n, vector in trained.items()}))
    return server.vector.read()


# ----- the mean


@pytest.mark.parametrize("groups", [((1,), (2, 3, 4)), ((1, 2, 3, 4),), ((1, 2), (3, 4))], ids=str)
def test_real_clients_train_as_by_hand_whoever_sits_where(
    rounds: MakeRounds, groups: tuple[tuple[int, ...], ...]
) -> None:
    made = rounds(num_workers=4, iterations=2 * E)
    made.begin()
    for ranks in groups:
        made.clients(*ranks)
    made.finished()
    wanted = expected_of({n: make_client(n) for n in (1, 2, 3, 4)}, 2)
    assert made.has_become(wanted)
    assert same_bits(made.vector(), wanted), "D and all buffers too"


# ----- who is asked, and with what


def test_everybody_gets_the_servers_models_and_the_same_load(rounds: MakeRounds) -> None:
    made = rounds(num_workers=2, iterations=2 * E)
    hosts = made.begin_with((1,), (2,))
    sent = [make_models().vector.read()]
    sent.append(mean_of({n: (0.5, models_of(n, E)) for n in (1, 2)}))
    for i, models in zip((E, 2 * E), sent, strict=True):
        for host in hosts:
            order = host.answer_round(i)
            assert same_bits(order.tensors["models"], models)
            assert order.fields["lists"] == [[[host.number, E, BATCH_SIZE, 0.5]]]
    made.finished(*hosts)


def test_only_those_who_were_drawn_are_asked(rounds: MakeRounds) -> None:
    made = rounds(num_workers=4, iterations=6 * E, participation=0.5)
    hosts = made.begin_with((1,), (2, 3), (4,))
    made.finished(*hosts)
    events = made.events("round")
    assert [event["number"] for event in events] == list(range(6))
    drawn = {event["iteration"]: event["asked"] for event in events}
    assert all(len(workers) == 2 for workers in drawn.values())
    assert len({tuple(workers) for workers in drawn.values()}) > 1
    question: dict[int, list[int]] = {i: [] for i in drawn}
    for host in hosts:
        for message in host.seen:
            if message.kind == ROUND:
                question[message.iteration] += tasks_of(message)
    assert {i: sorted(workers) for i, workers in question.items()} == drawn
    assert all(event["took_part"] == event["asked"] for event in events)
    last = drawn[6 * E]
    assert made.has_become(mean_of({n: (0.5, models_of(n, 6 * E)) for n in last}))


def test_weights_by_divergence_are_told_to_hosts(rounds: MakeRounds) -> None:
    classes = {1: [50, 50], 2: [100, 0], 3: [0, 100]}
    made = rounds(num_workers=3, iterations=E, weighting="kl", classes=classes)
    hosts = made.begin_with((1,), (2,), (3,))
    told: dict[int, float] = {}
    for host in hosts:
        told |= {n: task.weight for n, task in tasks_of(host.answer_round(E)).items()}
    made.finished(*hosts)
    assert sum(told.values()) == pytest.approx(1.0, abs=1e-15)
    assert told[1] > told[2] == told[3], "rank 1 has what everybody has together"
    assert made.has_become(mean_of({n: (told[n], models_of(n, E)) for n in told}))


@pytest.mark.parametrize(("case", "load"), [("speed", [2, 5]), ("memory", [3, 3])])
def test_weak_clients_get_half(rounds: MakeRounds, case: str, load: list[int]) -> None:
    made = rounds(num_workers=4, iterations=3, round_iterations=3, training_load=f"weak:0.5,{case}")
    hosts = made.begin_with((1, 2), (3, 4))
    for host in hosts:
        host.answer_round(3)
    made.finished(*hosts)
    question = {n: task.load for host in hosts for n, task in tasks_of(host.seen[0]).items()}
    loads = {str(n): [each.iterations, each.batch_size] for n, each in question.items()}
    assert loads == {"1": [3, 5], "2": [3, 5], "3": load, "4": load}
    (event,) = made.events("round")
    assert event["iterations"] == {name: told[0] for name, told in loads.items()}
    assert event["batch_sizes"] == {name: told[1] for name, told in loads.items()}


def test_loads_that_clients_measured_and_nonsense_of_others(rounds: MakeRounds) -> None:
    made = rounds(num_workers=3, iterations=10, round_iterations=10, training_load="measured")
    hosts = [made.play(n) for n in (1, 2, 3)]
    record = {"memory_bytes": 10**6, "fixed_bytes": 10, "bytes_per_sample": 10}
    told: list[Any] = [
        {"1": {**record, "seconds": [[5, 0.1]]}},
        {"2": {**record, "seconds": [[5, 0.16]]}, "x": 3},
        "nonsense",
    ]
    made.actor.start()
    for host, capabilities in zip(hosts, told, strict=True):
        say_ready(host, {"capabilities": capabilities})
    made.finished(*hosts)
    (event,) = made.events("round")
    # The median of 0.1 and 0.16 s allows rank 2 ⌊10 · 0.13 / 0.16⌋; rank 3 told nothing.
    assert event["iterations"] == {"1": 10, "2": 8, "3": 10}


def say_ready(host: PlayedClients, told: Mapping[str, Any]) -> None:
    host.send(messages.ready(0, host.workers, told))


# ----- how long


@pytest.mark.parametrize(
    ("iterations", "length", "ends"),
    [(7, 3, [3, 6, 7]), (6, 3, [3, 6]), (2, 5, [2]), (3, 1, [1, 2, 3])],
)
def test_the_last_round_is_as_short_as_it_must_be(
    rounds: MakeRounds, iterations: int, length: int, ends: list[int]
) -> None:
    made = rounds(num_workers=2, iterations=iterations, round_iterations=length)
    hosts = made.begin_with((1,), (2,))
    made.finished(*hosts)
    lengths = [now - before for before, now in zip([0, *ends], ends, strict=False)]
    for host in hosts:
        assert host.rounds() == ends
        orders = [message for message in host.seen if message.kind == ROUND]
        arguments = [tasks_of(order)[host.number].load.iterations for order in orders]
        assert arguments == lengths
    assert [record["iteration"] for record in made.metrics()] == ends
    assert made.status()["iteration"] == iterations


def test_a_round_of_epochs_is_of_the_mean_shard(rounds: MakeRounds) -> None:
    classes = {1: [40], 2: [20]}
    made = rounds(
        num_workers=2, iterations=20, round_iterations=None, round_epochs=1.5, classes=classes
    )
    hosts = made.begin_with((1,), (2,))
    made.finished(*hosts)
    assert hosts[0].rounds() == [9, 18, 20], "1.5 · 30 samples / 5"


# ----- what is done every so many iterations


def test_checkpoints_and_records_of_strides_over_the_interval(
    rounds: MakeRounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = rounds(num_workers=1, iterations=20, round_iterations=3, checkpoints=5)
    order, ordered = made.saving.order, []

    def take_down(i: int, progress: Mapping[str, int], state: Any) -> None:
        ordered.append((i, dict(progress)))
        order(i, progress, state)

    monkeypatch.setattr(made.saving, "order", take_down)
    made.clients(1)
    made.begin()
    made.finished()
    assert [record["iteration"] for record in made.metrics()] == [3, 6, 9, 12, 15, 18, 20]
    # The rounds that reach or pass 0, 5, 10, 15 and 20, counted.
    counted = [(0, 0), (6, 2), (12, 4), (15, 5), (20, 7)]
    assert ordered == [(i, {"num_rounds": n, "round_length": 3}) for i, n in counted]
    assert made.checkpoints.newest()[0] is not None


def test_scores_of_strides_over_the_interval(
    rounds: MakeRounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments: list[tuple[int, int, Tensor]] = []

    def after(before: int, iteration: int, *_: Any, **__: Any) -> None:
        if passed(4, before, iteration):
            arguments.append((before, iteration, made.vector().clone()))

    made = rounds(num_workers=1, iterations=9, round_iterations=3)
    monkeypatch.setattr(made.engine.scoring, "score_after", after)
    (host,) = made.begin_with((1,))
    made.finished(host)
    assert [(before, i) for before, i, _ in arguments] == [(3, 6), (6, 9)]
    assert same_bits(arguments[0][2], models_of(1, 6)), "the generator after the round"


# A run that is stopped and goes on ends as if it had never been stopped.


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
    states = {
        f"{n}.{name}": t for n, client in clients.items() for name, t in client.state().items()
    }
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
    averaging = Averaging(settings, models.vector.num_weight_blocks)
    cohort = Cohort(ServerPath(update_form(settings, models.vector.shape)))
    server = FederatedServer(models, cohort, averaging, settings, CPU)
    server.go_on(dict(zip(names, (4, 3), strict=True)), changed, ended=True)
    assert server.progress() == {"num_rounds": 4, "round_length": length}
