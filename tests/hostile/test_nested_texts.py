"""Nested, long or odd texts from others are refused in one line, or read in little time."""

import math
from pathlib import Path

import pytest
import torch

from mdgan.errors import BadInput
from mdgan.records.release_policy import policy_text, rules_in
from mdgan.records.rows import json_object
from mdgan.records.run_directory import ENCODING_FILE, RunDirectory
from mdgan.release.signing import MANIFEST_FILE
from mdgan.release.verify import Trust, verify_bundle
from mdgan.samples.table.reading import read_rows
from mdgan.samples.table.schema import Schema, WholeColumn
from mdgan.samples.table.texts import Problem, texts_of_file
from mdgan.storage import budget
from tests.processes import run_here
from tests.unit.observe.fake_run import FakeRun

NESTED = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    "text", [f'{{"x": {NESTED}}}', f'{{"x": "\\u001b", "y": {"[" * 600 + "]" * 600}}}']
)
def test_json_nested_deeply_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        json_object(text.encode())


def test_the_files_of_a_bundle_nested_deeply_are_refused(tmp_path: Path) -> None:
    (tmp_path / MANIFEST_FILE).write_text(f'{{"files": {{}}, "x": {NESTED}}}')
    (check,) = verify_bundle(tmp_path, Trust())
    assert not check.holds
    assert "nested too deeply" in check.line


@pytest.mark.parametrize(
    "text",
    [f"require = {NESTED}"[:16_000], f"require = {'9' * 5_000}", f"{'a.' * 9_000}a = 1"],
    ids=["nested", "digits", "parts"],
)
def test_a_policy_that_wastes_time_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(BadInput, match=r"policy.toml: "):
        rules_in(policy_text(path), str(path), "pictures", has_dp=False)


def test_a_header_of_many_columns_takes_time_in_proportion(tmp_path: Path) -> None:
    """Each name compared with each other one would be two hours."""
    names = ",".join(f"{number:x}" for number in range(400_000))
    (tmp_path / "a.csv").write_text(f"age,{names}\n1,{names}\n")
    schema = Schema(columns=(WholeColumn(name="age", low=0, high=120),))
    problems = list[Problem]()
    assert len(read_rows(tmp_path / "a.csv", schema, on_problem=problems.append)) == 1
    assert len(problems) == 400_000


def test_counts_that_are_none_are_refused(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    for tensors in ({}, {"counts": torch.zeros(3)}, {"counts": torch.tensor([1.0, math.nan])}):
        doubles = {name: each.double() for name, each in tensors.items()}
        run.write_tensors(ENCODING_FILE, doubles, {})
        with pytest.raises(BadInput, match=r"encoding.safetensors: damaged"):
            run.read_counts(2)


def test_the_name_of_a_folder_moves_no_terminal(tmp_path: Path) -> None:
    folder = FakeRun(workers=2).write(tmp_path / "a\x1b[2J\x9b")
    (folder / "audit-log.jsonl").write_text("x")
    for command in (["watch"], ["trace"], ["log", "verify"]):
        ended = run_here(*command, folder.name, cwd=tmp_path)
        assert ended.output + ended.errors
        assert not {"\x1b", "\x9b"} & {*ended.output, *ended.errors}, ended


def test_parquet_reads_as_before(tmp_path: Path) -> None:
    """Texts that repeat, gaps, numbers, answers, dates and columns of codes."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {
        "text": pa.array(["a", None, "a"]),
        "code": pa.array(["u", "v", "u"]).dictionary_encode(),
        "number": pa.array([1.5, None, 3.0]),
        "answer": pa.array([True, None, False]),
        "large": pa.array(["x", "", None], pa.large_string()),
    }
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    (texts,) = texts_of_file(tmp_path / "a.parquet")
    assert dict(zip(texts.names, map(list, texts.columns), strict=True)) == {
        "text": ["a", "", "a"],
        "code": ["u", "v", "u"],
        "number": ["1.5", "", "3.0"],
        "answer": ["True", "", "False"],
        "large": ["x", "", ""],
    }


def test_the_limit_of_a_container_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "limit_of_container", lambda: 1 << 20)
    assert budget.most_decoded(1 << 40) == 1 << 19
