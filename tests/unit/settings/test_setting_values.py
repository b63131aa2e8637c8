"""Values that are written as text: partitions, deadlines, rules with numbers."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdgan.data.settings import parse_partition
from mdgan.engine.settings import DeadlineRule, RunSettings, parse_deadline
from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.families.mdgan.settings import MDGANSettings
from tests.marks import examples
from tests.unit.settings.refusals import refusal


@pytest.mark.parametrize(
    "scheme",
    [
        *("iid", "sorted", "none", "dirichlet:0.5", "dirichlet:1e-3", "dirichlet:1E+2"),
        *("shards:2", "classes:10", "fegan:3,500"),
    ],
)
def test_partition_spellings_that_are_right(scheme: str) -> None:
    assert str(parse_partition(scheme)) == scheme
    assert str(RunSettings.read({"partition": scheme}).data.partition) == scheme


@pytest.mark.parametrize(
    "scheme",
    [
        *("", "IID", " iid", "iid ", "iid\n", "iid:3", "none:1", "dirichlet", "dirichlet:"),
        *("dirichlet:0", "dirichlet:-1", "dirichlet:1e", "dirichlet:1e999", "dirichlet:.."),
        *("dirichlet:nan", "dirichlet:0.5,0.5", "shards", "shards:0", "shards:1.5", "shards:-2"),
        *("classes:0", "classes:two", "fegan:3", "fegan:0,5", "fegan:5,0", "fegan:3,"),
        "fegan:1,2,3",
    ],
)
def test_partition_spellings_that_are_wrong(scheme: str) -> None:
    text = refusal(RunSettings, {"partition": scheme})
    assert text.startswith("--partition ")
    assert scheme.strip() in text
    with pytest.raises(ValueError, match=r"not one of|must be above 0"):
        parse_partition(scheme)


@settings(deadline=None)
@given(st.text() | st.from_regex(r"(iid|sorted|none|dirichlet|shards|classes|fegan):?\S*"))
def test_junk_for_a_partition_is_refused_in_one_line_or_is_one(scheme: str) -> None:
    text = ""
    try:
        settings_read = RunSettings.read({"partition": scheme})
    except BadInput as error:
        text = str(error)
    if text:
        assert text.startswith("--partition ")
        assert len(text.splitlines()) == 1
    else:
        assert settings_read.data.partition.name in {
            *("iid", "sorted", "none", "dirichlet", "shards", "classes", "fegan")
        }
        assert all(0 < number < float("inf") for number in settings_read.data.partition.numbers)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        *(("30", (30.0, 0.0)), ("1000000", (1e6, 0.0)), ("0.00001", (1e-5, 0.0))),
        *(("0.5", (0.5, 0.0)), ("3x", (0.0, 3.0)), ("1.5x", (0.0, 1.5))),
    ],
)
def test_deadlines(text: str, meaning: tuple[float, float]) -> None:
    assert parse_deadline(text) == DeadlineRule(*meaning)
    assert RunSettings.read({"deadline": text}).faults.deadline == meaning
    assert str(parse_deadline(text)) == text


@settings(deadline=None)
@given(st.text(max_size=8) | st.from_regex(r"[0-9]*\.?[0-9]*x?", fullmatch=True))
def test_junk_for_a_deadline_is_refused_in_one_line_or_is_one(text: str) -> None:
    message = ""
    try:
        settings_read = RunSettings.read({"deadline": text}).faults.deadline
    except BadInput as error:
        message = str(error)
    if message:
        assert message.startswith("--deadline ")
        assert len(message.splitlines()) == 1
    else:
        assert settings_read is not None
        assert (settings_read.seconds == 0) != (settings_read.factor == 0)
        assert 0 < settings_read.seconds + settings_read.factor == float(text.removesuffix("x"))


@pytest.mark.parametrize(
    ("name", "form", "meant"),
    [
        ("aggregation", "clip:{}", lambda rule: rule.parameter),
        ("aggregation", "f2a:{}", lambda rule: rule.parameter),
        ("wire", "feedback=topk:{}", lambda form: form.feedback.fraction),
        ("training_load", "weak:{},speed", lambda form: form.fraction),
        ("partition", "dirichlet:{}", lambda scheme: scheme.numbers[0]),
        ("deadline", "{}x", lambda rule: rule.factor),
        ("deadline", "{}", lambda rule: rule.seconds),
    ],
)
@settings(deadline=None, max_examples=examples(6))
@given(number=st.floats(1e-5, 0.5))
def test_a_number_is_written_so_that_it_is_read_as_the_same(
    name: str, form: str, meant: Callable[[Any], float], number: float
) -> None:
    """A run writes its settings, and reads them when it goes on; every rank must have the same."""
    written = f"{number:.15f}"
    algorithm = "mdgan" if name in MDGANSettings.names() else "fl-gan"
    settings_read = registry.read_settings([{"algorithm": algorithm, name: form.format(written)}])
    assert meant(settings_read.values()[name]) == float(written)
    assert registry.read_settings([settings_read.as_json()]) == settings_read
    assert settings_read.but() == settings_read
