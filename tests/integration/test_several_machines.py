"""`run-distributed.sh` on several machines, following the README's recipe for VMs."""

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
            start([*third.prefix, SCRIPT, "4..5", *FLAGS, *OWN], tmp_path, **rank_0),
            start(
                [*first.prefix, SCRIPT, "0..1", *FLAGS, *OWN, "--out", "spread"], tmp_path, **rank_0
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


@claim("no-other-port", "mdgan opens no other port than these")
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


@pytest.mark.parametrize("by", ["flag", "listen", "slurm", "torchrun"])
def test_a_name_that_means_the_machine_alone_is_refused_where_others_have_ranks(
    by: str, tmp_path: Path
) -> None:
    """Debian and Ubuntu write `127.0.1.1 NAME` into /etc/hosts."""
    flags = [*MDGAN, "train", "--dataset", "digits", *QUICK, *OWN, "--out", "run"]
    slurm = {
        **{"SLURM_JOB_ID": "1", "SLURM_STEP_NUM_TASKS": "3", "SLURM_STEP_TASKS_PER_NODE": "1(x3)"},
        **{"SLURM_STEP_NODELIST": "node[1-3]", "SLURMD_NODENAME": "node1", "SLURM_PROCID": "0"},
        **{"SLURM_NODEID": "0", "SLURM_LOCALID": "0"},
    }
    torchrun = {
        **{"RANK": "0", "WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0"},
        **{"MASTER_ADDR": "node1", "MASTER_PORT": "29501", "TORCHELASTIC_USE_AGENT_STORE": "True"},
    }
    alone = ["--world-size", "3", "--ranks", "0"]
    more, variables = {
        "flag": ([*alone, "--master-addr", "node1"], {}),
        "listen": ([*alone, "--master-addr", "10.77.0.1", "--listen", "node1:29502"], {}),
        "slurm": ([], slurm),
        "torchrun": ([], torchrun),
    }[by]
    with namespaces.machines(1) as (first,), namespaces.names(first, "127.0.1.1 node1"):
        ended = finish(start([*first.prefix, *flags, *more], tmp_path, **variables))
    assert ended.status == 2, ended
    named = "--listen node1:29502" if by == "listen" else "--master-addr node1"
    assert f"mdgan: {named}: means 127.0.1.1 here, which is this machine alone" in ended.errors
    assert "give one of its addresses (10.77.0.1) on all machines, or --listen ADDRESS here" in (
        ended.errors
    )
    assert not (tmp_path / "run").exists()


def test_where_the_server_listens_may_be_said_beside_a_name_that_means_the_machine_alone(
    tmp_path: Path,
) -> None:
    train = [*MDGAN, "train", "--world-size", "3", "--master-addr", "node1", *FLAGS, *OWN]
    with (
        namespaces.machines(2) as (first, second),
        namespaces.names(first, "127.0.1.1 node1"),
        namespaces.names(second, "10.77.0.1 node1"),
    ):
        flags = ["--ranks", "0,1", "--listen", "10.77.0.1", "--out", "run"]
        server = start([*first.prefix, *train, *flags], tmp_path)
        worker = start([*second.prefix, *train, "--ranks", "2"], tmp_path)
        results = [finish(server), finish(worker)]
    assert [result.status for result in results] == [0, 0], results
