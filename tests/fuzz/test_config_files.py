"""Settings and records of arbitrary bytes are accepted, or refused in one line."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from mdgan.launch.given import known_settings
from mdgan.settings.retired import GONE, RENAMED
from tests.fuzz import config_files
from tests.marks import examples

DEEP = b"[" * 3000
LONG = b'{"iterations": ' + b"9" * 5000 + b"}"
HUGE = 10**400

NAMES = sorted({*known_settings(), *RENAMED, *GONE, "beta1", "beta2"})
EVENTS = (
    *("holdings", "resumed", "joined", "left", "lost", "shut out", "late", "back", "refused"),
    *("swap", "scores", "unscored", "unsaved", "attendance"),
)
FIELDS = (
    *("iteration", "seconds", "workers", "worker", "reason", "holdings", "moves", "given", "taken"),
    *("exact", "lost", "scores", "floor", "real", "extractor", "n", "left_out", "warnings"),
    *("class_histogram", "real_class_histogram", "generator_loss", "discriminator_loss"),
)

numbers = st.integers(-3, 40) | st.sampled_from([2**31, 10**12, 10**18, HUGE, -HUGE]) | st.floats()
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=5) | st.integers(0, 9).map(str), inner, max_size=4)
    ),
    max_leaves=8,
)
TEXTS = (
    *("", "\0", "é\ud800", "dirichlet:1e-320", "shards:999999999999", "0..99999999", "3x", "none"),
    *("::", "256.256.256.256", "a,b", "krum:1", "clip:nan", "mnist", "auto", "memory", "cuda"),
    *("~nobody-here/x", "/", "-", "classifier", "inception"),
)
texts = st.sampled_from(TEXTS)
records = st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=6) | st.builds(
    lambda event, record: {"iteration": 3, **record, "event": event},
    st.sampled_from(EVENTS),
    st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=6),
)
any_bytes = st.binary(max_size=200) | st.sampled_from([DEEP, LONG, b"\xff\xfe{}", b"null", b"3"])

UNSHRUNK = (Phase.explicit, Phase.reuse, Phase.generate)
"""A report takes a second, and shrinking hundreds of them."""

quickly = settings(
    deadline=None,
    max_examples=examples(4),
    suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow],
)


def lines(content: list[Any]) -> bytes:
    return b"".join(json.dumps(item).encode() + b"\n" for item in content)


def of_the_run(name: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((config_files.trained_run() / name).read_text())
    return record


def changed(name: str) -> st.SearchStrategy[dict[str, Any]]:
    """What a run's file says, with other values in some places."""
    keys = sorted(of_the_run(name))
    values = json_values | texts
    changes = st.dictionaries(st.sampled_from(keys), values, min_size=1, max_size=2)
    return changes.map(lambda change: {**of_the_run(name), **change})


@settings(deadline=None, max_examples=examples(25))
@given(any_bytes | json_values.map(json.dumps).map(str.encode))
@example(DEEP)
@example(LONG)
@example(b'{"seed": 1e999, "out": NaN}')
@example(b'{"iterations": 5, "iterations": "\\ud800"}')
def test_any_bytes_as_a_config_file(data: bytes) -> None:
    config_files.read_any_config(data)


@settings(deadline=None, max_examples=examples(30))
@given(st.dictionaries(st.sampled_from(NAMES), json_values | texts | numbers, max_size=4))
@example({"world_size": 10**12})
@example({"world_size": 10**5, "ranks": "0..99999"})
@example({"world_size": 99_999, "kappa": 2})
@example({"generator_lr": HUGE})
@example({"dataset": {}})
@example({"extractor": []})
@example({"master_addr": "\ud800"})
@example({"out": "\0", "data_dir": "\0", "held_out": "\0", "join_token": "\0"})
@example({"partition": "classes:99999999999999999999"})
@example({"threads": 10**9})
def test_any_value_of_a_setting(chosen: dict[str, Any]) -> None:
    config_files.read_any_settings(chosen)


@quickly
@given(st.sampled_from(config_files.RUN_FILES), any_bytes)
@example("run.json", DEEP)
@example("config.json", DEEP)
@example("metrics.jsonl", DEEP + b"\n{}\n")
@example("metrics.jsonl", b'{"iteration": 1e999}\n' * 3)
@example("run.json", b'{"version": "9.\xc2\xb2"}')
@example("run.json", b'{"version": "' + b"9" * 5000 + b'"}')
def test_any_bytes_in_a_runs_files(name: str, data: bytes) -> None:
    config_files.read_records({name: data})
    config_files.evaluate_on({name: data})
    config_files.resume_on({name: data})


@quickly
@given(st.lists(records, max_size=8))
def test_any_records_are_looked_at(content: list[Any]) -> None:
    config_files.read_records({"metrics.jsonl": lines(content)})


@quickly
@given(st.data())
def test_any_value_in_a_runs_files(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["run.json", "config.json"]))
    files = {name: json.dumps(data.draw(changed(name))).encode()}
    config_files.read_records(files)
    config_files.resume_on(files)
    config_files.evaluate_on(files)


@settings(deadline=None, max_examples=examples(3), phases=UNSHRUNK)
@given(st.lists(records, max_size=8), st.booleans())
@example([{"iteration": 3, "event": "resumed"}], False)
@example([{"iteration": 3, "event": "lost", "workers": [HUGE]}], True)
@example([{"iteration": 3, "event": "lost", "workers": [1], "reason": "\ud800"}], True)
def test_any_records_are_reported_on(content: list[Any], with_others: bool) -> None:
    others = (config_files.trained_run() / "metrics.jsonl").read_bytes() if with_others else b""
    config_files.report_on({"metrics.jsonl": others + lines(content)})


@pytest.mark.slow
@settings(deadline=None, max_examples=6, phases=UNSHRUNK)
@given(st.data())
def test_any_run_is_reported_on(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["run.json", "config.json"]))
    config_files.report_on({name: json.dumps(data.draw(changed(name))).encode()})


def test_the_inputs_that_fuzzing_starts_from_are_whole() -> None:
    config_files.report_on({})
    config_files.read_records({})
    config_files.evaluate_on({})
    config_files.resume_on({})
    config_files.read_any_settings({})


@pytest.mark.slow
@pytest.mark.skipif(find_spec("atheris") is None, reason="atheris is not installed")
@pytest.mark.parametrize("target", ["read_any_config", "use_any_run"])
def test_a_minute_of_inputs_that_reach_new_lines(tmp_path: Path, target: str) -> None:
    run = config_files.trained_run()
    for number, name in enumerate(config_files.RUN_FILES):
        whole = (run / name).read_bytes()
        for use in range(3) if target == "use_any_run" else ():
            seed = bytes([use * len(config_files.RUN_FILES) + number]) + whole
            (tmp_path / f"seed-{use}-{name}").write_bytes(seed)
    (tmp_path / "seed").write_bytes((run / "config.json").read_bytes())
    name = f"tests.fuzz.config_files:{target}"
    command = [sys.executable, "-m", "tests.fuzz.run_atheris", name, "60", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert "Done" in ended.stderr, ended.stderr[-3000:]
