"""`--algorithm moments` on tables: pairs of values, from files at several sites to new rows."""

import csv
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from mdgan.families.moments.contract import Lesson
from mdgan.families.moments.host import ASK
from mdgan.families.moments.message import FeatureLesson
from mdgan.families.moments.pairs.generator import PairsGenerator
from mdgan.families.moments.pairs.message import PairLesson
from mdgan.families.moments.server import MomentsServer
from mdgan.launch import processes
from mdgan.messages import Message
from tests.claims.registry import claim
from tests.hostile.bench import TINY, Hostile, HostileNetwork, with_fields, with_tensors
from tests.hostile.lying_server import LyingNetwork, LyingServer
from tests.integration.test_moments import told_in
from tests.processes import check_refused, ended_well, run, run_here
from tests.unit.families.moments.pair_tables import TARGET, plain_pairs, write_sites

SHORT = [
    *("--algorithm", "moments", "--width", "8", "--batch-size", "20", "--iterations", "4"),
    *("--threads", "1", "--sample-interval", "0", "--eval-interval", "0"),
]
TABLE = ["--dataset", "table", "--schema", "study.json", "--target", TARGET]
SITES = ["train", *SHORT, *TABLE, "--data-dir", "site-{rank}.csv", "--world-size", "5"]
MEMORY = ["--transport", "memory"]


@pytest.fixture
def sites(tmp_path: Path) -> Path:
    write_sites(tmp_path, [60, 50, 40, 61])
    return tmp_path


def test_any_layout_tells_what_a_loop_over_all_files_counts(sites: Path) -> None:
    rows, generators = write_sites(sites, [60, 50, 40, 61]), set()
    for name, size, flags in (
        *(("one", 4, MEMORY), ("two", 2, []), ("four", 1, MEMORY)),
        ("secure", 1, [*MEMORY, "--secure-aggregation"]),
    ):
        own_flags = [*SITES, "--workers-per-host", str(size), *flags, "--out", name]
        ended = (run_here if flags else run)(*own_flags, cwd=sites)
        generators.add(ended_well(ended, sites / name, 4))
        assert torch.equal(told_in(sites / name)["sums"], plain_pairs(rows, 16, 0.0)), name
    assert len(generators) == 1


@pytest.mark.parametrize(("features", "lesson"), [("auto", PairLesson), ("random", FeatureLesson)])
@claim("tells-once", "What the server does afterwards follows from the sums, and spends nothing.")
def test_a_run_that_ends_after_it_was_told_goes_on_and_asks_nobody(
    sites: Path, monkeypatch: pytest.MonkeyPatch, features: str, lesson: type[Lesson]
) -> None:
    """In its second step, however rare checkpoints are."""
    flags = [*SITES, *MEMORY, "--checkpoint-interval", "1000", "--set", f"features={features}"]
    expected = ended_well(run_here(*flags, "--out", "whole", cwd=sites), sites / "whole", 4)
    first = [lesson.step]

    def ends(*arguments: Any) -> float:
        if not first:
            raise KeyboardInterrupt
        return first.pop()(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(lesson, "step", ends)
        assert run_here(*flags, "--out", "cut", cwd=sites).status
    monkeypatch.setattr(MomentsServer, "_ask", None)
    more = ["train", "--resume", "cut"]
    if features == "auto":
        other = run_here(*more, "--set", "features=random", cwd=sites)
        check_refused(other, "--resume", "does not fit")
    assert ended_well(run_here(*more, cwd=sites), sites / "cut", 4) == expected


def test_rows_of_a_class_are_drawn_and_the_others_are_not(sites: Path) -> None:
    ended_well(run_here(*SITES, *MEMORY, "--out", "run", cwd=sites), sites / "run", 4)
    arguments = ["-n", "70", "--where", f"{TARGET}=died", "-o", "some.csv"]
    forward = PairsGenerator.forward
    with patch.object(PairsGenerator, "forward", autospec=True, side_effect=forward) as made:
        assert run_here("sample", "run", *arguments, cwd=sites).status == 0
    rows = list(csv.DictReader((sites / "some.csv").read_text().splitlines()))
    assert [row[TARGET] for row in rows] == ["died"] * 70
    assert {c for call in made.mock_calls for c in call.args[2].tolist()} == {2}


@pytest.mark.slow
def test_private_runs_are_compared_released_and_verified(sites: Path) -> None:
    pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")
    private = ["--dp-delta", "1e-3", *MEMORY]
    for epsilon in (1, 3):
        changes = {"algorithm": "moments", "dp_epsilon": epsilon}
        (sites / f"e{epsilon}.json").write_text(json.dumps(changes))
    arguments = [*SITES[3:], *private, "--dp-ledger", "ledgers/{run}", "--out", "out"]
    compared = run("compare", "e1.json", "e3.json", "--seeds", "0", *arguments, cwd=sites)
    assert compared.status == 0, compared
    (sites / "any.toml").write_text("require = []")
    policy = ["--policy", "any.toml", "--samples", "50"]
    released = run_here("release", "out/e3-seed0", "-o", "bundle", *policy, cwd=sites)
    assert released.status == 0, released
    assert (sites / "bundle" / "generator.pt2").exists(), released
    verified = run_here("verify", "bundle", "--unsigned", *policy[:2], cwd=sites)
    assert "samples.csv: made again, every bit is the same" in verified.output, verified
    many = ["--dp-epsilon", "3", "--audit-canaries", "2000", "--dp-ledger", "another"]
    result = run_here(*SITES, *private, *many, cwd=sites)
    assert "--audit-canaries 2000: sums have room for" in result.errors
    assert "Traceback" not in result.errors


class AsksTwice(LyingServer):
    """Asks for other bins of the same values as well."""

    def to_host(self, host: int, message: Message) -> Sequence[Message]:
        return [message] + [with_fields(message, fineness=2)] * (message.kind == ASK)


def test_a_server_that_asks_for_other_sums_as_well_is_not_told(sites: Path) -> None:
    with patch.object(processes, "MemoryNetwork", partial(LyingNetwork, AsksTwice())):
        ended = run_here(*SITES, *MEMORY, "--out", "run", cwd=sites)
    assert "it asks for other sums than before" in ended.errors
    assert "Traceback" not in ended.errors


@pytest.mark.parametrize("factor", [float("nan"), 1.0])
def test_a_host_whose_sums_make_no_sense_changes_nothing(sites: Path, factor: float) -> None:
    """NaN, or the wrong shape."""
    liar = Hostile("SUM", lambda m: with_tensors(m, lambda t: (t * factor)[..., factor == 1.0 :]))
    with patch.object(processes, "MemoryNetwork", partial(HostileNetwork, liar, [])):
        ended = run_here(*SITES, *TINY[:6], "--out", "run", cwd=sites)
    ended_well(ended, sites / "run", 4)
    assert "feedback of rank 4 refused: " in ended.errors
    assert int(told_in(sites / "run")["samples"]) == 150  # of the other three
