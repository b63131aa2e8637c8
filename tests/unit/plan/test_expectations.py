"""The quality that `mdgan plan` expects under privacy: measured, or between measured figures."""

import re

import pytest

from mdgan.engine.settings import RunSettings
from mdgan.families import registry
from mdgan.plan.expectations import expectations
from mdgan.privacy.measured_tables import MEASURED

pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")


def settings(epsilon: float, workers: int = 4) -> RunSettings:
    question = {"dp_epsilon": epsilon, "dp_delta": 1e-4, "world_size": workers + 1}
    return registry.read_settings([question])


def expected(epsilon: float, shard_size: int, workers: int = 4) -> list[float]:
    """FID of noise in every step, of one message, and of one with shared noise."""
    ((_, lines),) = expectations(settings(epsilon, workers), shard_size)
    return [float(re.findall(r"[0-9.]+$", value)[0]) for _, value, _ in lines]


def test_it_says_what_was_measured_with_digits() -> None:
    for epsilon, steps, once in ((10, 21, 0.97), (3, 49, 2.4), (1, 56, 8.8)):
        result = expected(epsilon, 360)
        assert result[0] == steps
        assert result[1] == pytest.approx(once, rel=0.15)


def test_more_samples_more_workers_and_more_epsilon_are_better() -> None:
    base = expected(2, 360)
    assert all(a <= b for a, b in zip(expected(4, 360), base, strict=True))
    assert expected(2, 720)[1] < base[1]
    assert expected(2, 360, workers=8)[1] < base[1]
    assert base[2] < base[1]


def test_nothing_is_said_beyond_what_was_measured() -> None:
    ((_, lines),) = expectations(settings(10), 100_000)
    assert [value for _, value, _ in lines] == ["not measured", "FID below 0.66", "FID below 0.66"]
    ((_, lines),) = expectations(settings(0.01), 20)
    assert [value for _, value, _ in lines][:2] == ["FID above 56", "FID above 8.8"]


def test_without_a_number_of_samples_it_says_what_is_missing() -> None:
    ((_, lines),) = expectations(settings(3), None)
    assert "--shard-size" in lines[0][2]


def test_without_a_bound_there_is_no_section() -> None:
    assert expectations(registry.read_settings([{}]), 100) == []


@pytest.mark.parametrize("table", MEASURED, ids=str)
def test_of_a_table_it_says_what_the_nearest_one_gave(table: tuple[int, int]) -> None:
    rows, columns = table
    ((_, lines),) = expectations(settings(2), rows // 4 + 20, columns)
    assert not [value for _, value, _ in lines if "FID" in value]
    said = {name: (value, note) for name, value, note in lines if "ε =" in name}
    assert len(said) == len(MEASURED[table])
    for epsilon, figures in MEASURED[table].items():
        value, note = said[f"--algorithm moments, ε = {epsilon:g}"]
        assert re.findall(r"[0-9.]+", value) == [f"{figure:.2f}" for figure in figures]
        assert f"{rows:,} rows × {columns} columns" in note
    assert "FID" in str(expectations(settings(2), rows // 4))
