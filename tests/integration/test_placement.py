"""Placed clients, from the command line: the same bits wherever they are trained."""

import os
import signal
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.integration.federated import spread, train_in_memory
from tests.marks import mostly_slow
from tests.processes import (
    finish,
    generator_bytes,
    read_events,
    read_metrics,
    read_status,
    run_here,
    training,
    wait_until,
)

CLIENTS = ["--algorithm", "fl-gan", "--clients", "6", "--participation", "0.67"]
OWN_RANKS = [*CLIENTS[:2], "--world-size", "7", *CLIENTS[4:], "--set", "client_state=fresh"]


@pytest.mark.parametrize("name", mostly_slow(["rr", "bb", "lb"], ["lb"]))
def test_any_placement_trains_what_clients_at_home_train(tmp_path: Path, name: str) -> None:
    home = train_in_memory(tmp_path, "home", *OWN_RANKS)
    flags = [*CLIENTS, "--placement", name, "--slots", "3", "--world-size", "3"]
    assert train_in_memory(tmp_path, name, *flags) == home
    placed = read_events(tmp_path / name, "placement")
    assert placed[0]["strategy"] == ("rr" if name == "lb" else name)
    assert placed[-1]["strategy"] == name


@pytest.mark.slow
def test_clients_of_a_slot_train_at_once(tmp_path: Path) -> None:
    """Repeated with the same bits where placement does not follow the clock."""
    flags = ["--algorithm", "fl-gan", "--clients", "16", "--placement", "rr", "--slots", "2"]
    singly = train_in_memory(tmp_path, "singly", *flags)
    at_once = [
        train_in_memory(tmp_path, name, *flags, "--vectorize") for name in ("first", "second")
    ]
    assert at_once[0] == at_once[1] != singly


@pytest.mark.slow
def test_rules_that_outvote_liars_see_the_models_of_all_clients(tmp_path: Path) -> None:
    rule = ["--aggregation", "trimmed-mean:1"]
    home = train_in_memory(tmp_path, "home", *OWN_RANKS, *rule)
    assert train_in_memory(tmp_path, "placed", *CLIENTS, *rule, "--slots", "2") == home


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags",
    [["--slots", "2", "--aggregation", "median"], ["--placement", "pull", "--slots", "2"], []],
)
def test_slots_as_processes_train_what_clients_at_home_train(
    tmp_path: Path, flags: list[str]
) -> None:
    rule = flags[2:] if "--aggregation" in flags else []
    home = train_in_memory(tmp_path, "home", *OWN_RANKS, *rule)
    assert spread(tmp_path, "placed", *CLIENTS, *flags) == home


QUICK_ROUNDS = [
    *("train", *CLIENTS, "--round-iterations", "5", "--batch-size", "8", "--threads", "1"),
    *("--sample-interval", "0", "--eval-interval", "0", "--log-interval", "1"),
]


def slots_of(host: int) -> set[int]:
    """The slots of a host, which its fork server has forked."""
    servers = psutil.Process(host).children()
    return {slot.pid for server in servers for slot in server.children()}


def kill_one_slot(host: int, of: int) -> None:
    """Waits until all slots are there, kills one, and waits for the one that replaces it."""
    wait_until(lambda: len(slots_of(host)) == of, "all slots")
    before = slots_of(host)
    os.kill(min(before), signal.SIGKILL)
    wait_until(lambda: len(slots_of(host) - before) == 1, "another slot")


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["lb", "pull"])
def test_slots_are_killed_and_ctrl_c_leaves_none_behind(tmp_path: Path, placement: str) -> None:
    flags = ["--iterations", "1000000", "--slots", "2", "--placement", placement]
    running = training(tmp_path, *QUICK_ROUNDS, *flags)
    for host in 2 * running.hosts():
        kill_one_slot(host, of=2 if placement == "lb" else 1)
        done = read_metrics(running.folder)[-1]["iteration"]
        wait_until(partial(running.has_reached, done + 10), "two rounds more")
    os.killpg(running.process.pid, signal.SIGINT)
    result = finish(running.process)
    assert (result.status, "Traceback" in result.errors) == (130, False), result
    end = str(read_status(running.folder)["iteration"])
    whole = run_here(
        *QUICK_ROUNDS, "--iterations", end, "--transport", "memory", "--out", "whole", cwd=tmp_path
    )
    assert whole.status == 0
    assert generator_bytes(running.folder) == generator_bytes(tmp_path / "whole")


def test_what_clients_hold_is_told_before_anything_starts(tmp_path: Path) -> None:
    flags = ["--set", "round_epochs=2", "--batch-size", "10", "--dry-run"]
    done = run_here("train", *CLIENTS, *flags, cwd=tmp_path)
    assert done.status == 0, done
    lines = [line.strip() for line in done.output.splitlines()]
    held = "239 samples at least, 240 in the middle, 240 at most"
    assert f"6 clients, trained wherever there is room: {held}" in lines
    assert "a round              48 iterations of 4 client(s)" in lines
    assert "slots of each host   as many as train fastest here" in lines


REFUSED = {
    "hosts": (["--world-size", "3", "--workers-per-host", "2"], "a host is one rank"),
    "folders": (["--dataset", "mnist", "--data-dir", "data{rank}"], "name one folder"),
    "nothing": (["--algorithm", "mdgan"], "--clients"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_placed_is_refused(tmp_path: Path, name: str) -> None:
    flags, reason = REFUSED[name]
    done = run_here("train", *CLIENTS, *flags, cwd=tmp_path)
    assert done.status == 2
    assert reason in done.errors.splitlines()[-1]
    assert not list(tmp_path.iterdir())
