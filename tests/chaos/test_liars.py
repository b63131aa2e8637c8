"""Hosts that lie over real links: what they get, and what the others do not notice."""

import re
from pathlib import Path

import pytest

from mdgan.chaos.schedule import HOSTILE, Event
from mdgan.launch.faults import FAULTS, FOLDER, read_planned
from mdgan.launch.lies import CLAIMS
from mdgan.messages import Kind
from tests.chaos.staging import stage, who_works_on
from tests.processes import MDGAN, finish, start


def lie(text: str) -> Event:
    (fault,) = read_planned({FAULTS: text, FOLDER: "/chaos"}).faults
    return Event(HOSTILE, fault.iteration, fault)


@pytest.mark.slow
def test_liars_are_shut_out_let_go_and_refused(tmp_path: Path) -> None:
    copy = list(Kind).index(Kind.COPY)
    later = list(CLAIMS).index("itself, of generation 1000000")
    events = [
        lie("host-1:always-2-1@FEEDBACK:8"),
        lie(f"host-2:as-{copy}@FEEDBACK:20"),
        lie(f"host-3:claim-{later}@HELLO:30"),
    ]
    staged = stage(tmp_path, events, "--swap-interval", "4", workers=5, iterations=60)
    shut_out, let_go, refused = (row.happened for row in staged.rows)
    assert shut_out.startswith("replaced answers.values by nothing but nan; rank 1: shut out (3 ")
    assert let_go == "said it as COPY, too; rank 2: lost (a COPY message is not expected; strike 1)"
    assert "came as itself, of generation 1000000: the server refused this host" in refused
    assert refused.endswith("no effect on rank 3")
    assert [event["workers"] for event in staged.events("shut out")] == [[1]]
    assert [event["workers"] for event in staged.events("lost")] == [[2]]
    assert [event["workers"] for event in staged.events("joined")] == [[2]]


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "flags",
    [["--swap-interval", "5"], ["--algorithm", "fl-gan", "--round-iterations", "2"]],
    ids=["mdgan", "fl-gan"],
)
def test_actions_drawn_from_a_seed(tmp_path: Path, flags: list[str]) -> None:
    run = [
        *("--world-size", "5", "--iterations", "400", "--batch-size", "8", "--threads", "1"),
        *("--sample-interval", "0", "--eval-interval", "0", "--liveness-timeout", "10"),
        *("--checkpoint-interval", "20", *flags, "--out", "run"),
    ]
    chaos = ["chaos", "--seed", "3", "--faults", "0", "--hostile", "12", "--", *run]
    result = finish(start([*MDGAN, *chaos], tmp_path), timeout=300)
    assert result.status == 0, result
    assert who_works_on(tmp_path / "run") == []
    assert result.output.startswith("12 hostile actions drawn from --seed 3:\n")
    survived = re.search(r"survived 0 faults, (\d+) hostile actions? and 0 newc", result.output)
    assert survived is not None
    assert int(survived[1]) >= 4, "few may come too late, as the hosts were shut out"
