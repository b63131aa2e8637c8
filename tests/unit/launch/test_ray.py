"""The parts of Ray's support that need no Ray: its flags, and the process that an actor runs."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdgan.errors import BadInput
from mdgan.launch import minder
from mdgan.launch.minder import Minder
from mdgan.launch.ray import no_room
from mdgan.launch.task import read_resources
from tests.marks import examples
from tests.processes import REPOSITORY, run_here, wait_until


@pytest.mark.parametrize(
    ("text", "resources"),
    [
        (None, {"CPU": 1.0}),
        ('{"CPU": 2, "GPU": 0.5}', {"CPU": 2.0, "GPU": 0.5}),
        ('{"hospital": 1}', {"hospital": 1.0}),
        ("{}", {}),
    ],
)
def test_resources_are_read(text: str | None, resources: dict[str, float]) -> None:
    assert read_resources(text) == resources


@settings(deadline=None, max_examples=examples(32))
@given(
    st.one_of(
        st.text(max_size=20),
        st.sampled_from(["[1]", "3", "null", '{"CPU": 0}', '{"CPU": -1}', '{"CPU": "x"}']),
        st.sampled_from(['{"CPU": NaN}', '{"CPU": 1e999}', '{"CPU": null}', "[" * 100_000]),
    )
)
def test_resources_that_are_none_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_resources(text)
    assert "--host-resources" in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--ray-address", "a:1"], "--ray-address: is for --launcher ray alone"),
        (["--host-resources", "{}"], "--host-resources: is for --launcher ray alone"),
        (["--launcher", "ray", "--ranks", "0"], "--ranks 0: Ray says where each rank runs"),
        (["--launcher", "ray", "--master-addr", "10.0.0.1"], "Ray says where the server runs"),
        (["--launcher", "ray", "--transport", "memory"], "--transport memory: needs one process"),
        (
            ["--launcher", "ray", "--cores", "0"],
            "--cores 0: Ray starts every process; pin them there",
        ),
        (["--launcher", "ray", "--host-resources", "1"], "--host-resources 1: must be amounts"),
        (["--launcher", "ray"], "Ray is not installed here; pip install 'mdgan[ray]'"),
        (["--launcher", "rya"], "--launcher"),
    ],
)
def test_bad_input(
    flags: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    refused = run_here("train", *flags, cwd=tmp_path)
    assert refused.status == 2, refused
    assert refused.errors.count("\n") == 1, refused
    assert says in refused.errors
    assert list(tmp_path.iterdir()) == []


def node(alive: bool = True, **has: float) -> dict[str, Any]:
    return {"Alive": alive, "Resources": has}


@pytest.mark.parametrize(
    ("nodes", "resources", "room"),
    [
        ([node(CPU=2)], {"CPU": 1.0}, 2),
        ([node(CPU=2), node(alive=False, CPU=9)], {"CPU": 1.0}, 2),
        ([node(CPU=3), node(CPU=3)], {"CPU": 2.0}, 2),  # one a node, though there are six CPUs
        ([node(CPU=0.3)], {"CPU": 0.1}, 3),
        ([node(CPU=8), node(CPU=8, GPU=1)], {"CPU": 1.0, "GPU": 0.5}, 2),
        ([node()], {}, 9),
    ],
)
def test_a_cluster_without_room_is_told_before_anything_waits(
    nodes: list[dict[str, Any]], resources: dict[str, float], room: int
) -> None:
    assert no_room(nodes, resources, room) == ""
    assert room == 9 or f"have room for {room} of {room + 1} " in no_room(
        nodes, resources, room + 1
    )


@pytest.fixture
def mind(monkeypatch: pytest.MonkeyPatch) -> Iterator[Minder]:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    minding = Minder()
    yield minding
    minding.stop()


def news(mind: Minder) -> tuple[list[tuple[str, str]], int | None]:
    """All news until the process has ended."""
    lines: list[tuple[str, str]] = []
    while True:
        told = mind.poll()
        assert told is not None
        lines += told[0]
        if told[1] is not None:
            return lines, told[1]


def test_an_actor_tells_what_its_process_prints_and_how_it_ended(
    mind: Minder, tmp_path: Path
) -> None:
    assert mind.poll() is None  # an actor that Ray has started anew knows of no process
    mind.start(["--seed", "-1"], str(tmp_path), "{}")
    lines, status = news(mind)
    assert status == 2
    ((stream, line),) = lines
    assert stream == "err"
    assert line.startswith("mdgan: --seed -1: must be")


def test_a_process_that_no_driver_asks_for_ends(
    mind: Minder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(minder, "_UNPOLLED_SECONDS", 0.5)
    flags = ["--set", "connect_timeout=60", "--ranks", "1", "--master-port", "9"]
    mind.start(flags, str(tmp_path), '{"credentials": null}')
    wait_until(lambda: mind._process is None, "it ends")
    assert mind.poll() is None
