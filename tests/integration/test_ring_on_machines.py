"""A ring of processes on several machines, which talk without encryption."""

from pathlib import Path

import pytest

from tests import namespaces
from tests.processes import MDGAN, finish, generator_bytes, read_events, run_here, start

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not namespaces.available(), reason="needs root and `ip` to make network namespaces"
    ),
]

FLAGS = [
    *("train", "--algorithm", "paragan", "--world-size", "4", "--iterations", "8"),
    *("--batch-size", "8", "--threads", "1", "--sample-interval", "0", "--eval-interval", "0"),
]


def test_machines_in_a_ring_give_the_generator_of_one(tmp_path: Path) -> None:
    with namespaces.machines(2) as (first, second):
        flags = [*FLAGS, "--all-reduce", "ring", "--insecure", "--master-addr", first.address]
        mine = start([*first.prefix, *MDGAN, *flags, "--ranks", "0,1", "--out", "ring"], tmp_path)
        theirs = start([*second.prefix, *MDGAN, *flags, "--ranks", "2,3"], tmp_path)
        ended = finish(mine)
        assert ended.status == 0, ended
        assert finish(theirs).status == 0
    assert "cannot connect" not in ended.errors
    assert not read_events(tmp_path / "ring", "replica")
    memory = [*FLAGS, "--transport", "memory", "--out", "memory"]
    assert run_here(*memory, cwd=tmp_path).status == 0
    assert generator_bytes(tmp_path / "ring") == generator_bytes(tmp_path / "memory")
