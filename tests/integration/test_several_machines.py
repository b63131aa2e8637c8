"""`run-distributed.sh` on several machines, as the README's VM recipe has it."""

import os
import signal
import sys
from pathlib import Path

import pytest

from mdgan.records.recorded_run import RecordedRun
from tests import namespaces
from tests.claims.registry import claim
from tests.processes import (
    MDGAN,
    QUICK,
    REPOSITORY,
    finish,
    generator_bytes,
    read_events,
    read_metrics,
    run_here,
    start,
    wait_until,
)

pytestmark = pytest.mark.skipif(
    not namespaces.available(), reason="needs root and `ip` to make network namespaces"
)

SCRIPT = str(REPOSITORY / "scripts" / "run-distributed.sh")
FLAGS = [*QUICK, "--swap-interval", "3", "--seed", "5"]


OWN = ["--credentials", "run.cred"]


@pytest.fixture(autouse=True)
def _credentials(tmp_path: Path) -> None:
    assert run_here("credentials", "new", "run.cred", cwd=tmp_path).status == 0


def arguments(world_size: str, first: namespaces.Machine) -> dict[str, str]:
    """The script's arguments, as a user gives them by the environment."""
    return {"world_size": world_size, "master_addr": first.address, "python": sys.executable}


@pytest.mark.slow
@claim("same-bits", "several machines with equal processors give the same generator, bit for bit")
def test_three_machines_give_the_generator_of_one(tmp_path: Path) -> None:
    with namespaces.machines(3) as (first, second, third):
        rank_0 = arguments("6", first)
        train = [*MDGAN, "train", "--world-size", "6", "--master-addr", first.address]
        train += [*FLAGS, *OWN]
        spread = [
            # The workers' machines are ready before the server is: they wait for it.
            start([*second.prefix, *train, "--ranks", "2,3"], tmp_path),
            start(
                [*third.prefix, SCRIPT, "4..5", *FLAGS, *OWN],
                tmp_path,
                **rank_0,
            ),
            start(
                [*first.prefix, SCRIPT, "0..1", *FLAGS, *OWN, "--out", "spread"],
                tmp_path,
                **rank_0,
            ),
        ]
        results = [finish(process) for process in spread]
    assert [result.status for result in results] == [0, 0, 0], results
    flags = ["--world-size", "6", "--transport", "memory", "--out", "one"]
    assert run_here("train", *FLAGS, *flags, cwd=tmp_path).status == 0
    assert generator_bytes(tmp_path / "spread") == generator_bytes(tmp_path / "one")
    swaps = read_events(tmp_path / "spread", "swap")
    assert len(swaps) == 3
    assert all(event["exact"] for event in swaps)


@claim("no-other-port", "mdgan opens no other port")
def test_ports_listen_only_on_the_given_address_and_a_lost_machine_is_survived(
    tmp_path: Path,
) -> None:
    with namespaces.machines(2) as (first, second):
        long = [*MDGAN, "train", "--iterations", "100000", "--log-interval", "1", "--threads", "1"]
        long += ["--world-size", "4", "--master-addr", first.address, *OWN]
        far = start([*second.prefix, *long, "--ranks", "2..3"], tmp_path)
        near = start([*first.prefix, *long, "--ranks", "0,1", "--out", "run"], tmp_path)
        wait_until(lambda: bool(read_metrics(tmp_path / "run")), "first iteration")
        assert namespaces.listening_addresses(first) == {first.address}
        assert namespaces.listening_addresses(second) == {second.address}
        os.killpg(far.pid, signal.SIGKILL)
        assert finish(far).status == -signal.SIGKILL
        wait_until(lambda: len(read_events(tmp_path / "run", "lost")) == 2, "both are lost")
        last = read_events(tmp_path / "run", "lost")[-1]["iteration"]
        wait_until(
            lambda: read_metrics(tmp_path / "run")[-1]["iteration"] > last + 5, "training goes on"
        )
        near.terminate()
        result = finish(near)
    assert result.status == 128 + signal.SIGTERM, result
    assert "; 1 left" in result.errors


@pytest.mark.slow
def test_server_stopped_on_its_machine_ends_the_others(tmp_path: Path) -> None:
    """The server is alone on its machine, so that all it sends and receives passes the wire."""
    long = ["--iterations", "100000", "--log-interval", "1", "--threads", "1", *OWN]
    with namespaces.machines(2) as (first, second):
        rank_0 = arguments("3", first)
        far = start([*second.prefix, SCRIPT, "1..2", *long], tmp_path, **rank_0)
        near = start([*first.prefix, SCRIPT, "0", *long, "--out", "run"], tmp_path, **rank_0)
        wait_until(lambda: len(read_metrics(tmp_path / "run")) > 50, "some iterations")
        near.send_signal(signal.SIGTERM)
        results = finish(near), finish(far)
        wire = namespaces.moved_bytes(first)
    assert results[0].status == 128 + signal.SIGTERM, results
    assert results[1].status == 130, results
    assert results[1].errors.count("the server was asked to stop after iteration") == 1
    counted = RecordedRun.read(tmp_path / "run").traces["server"].traffic[-1]
    for bytes_counted, bytes_moved in zip((counted.sent, counted.received), wire, strict=True):
        # Packets have headers, and joining and pulses are not counted.
        assert 0.8 * bytes_moved < sum(bytes_counted.values()) < bytes_moved
