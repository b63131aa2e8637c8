"""What a program may give for a setting, and what of it is refused."""

import enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mdgan
from mdgan.errors import BadInput
from mdgan.interface.settings import plain_settings


class Split(enum.StrEnum):
    IID = "iid"


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (np.int64(3), 3),
        (np.array([3]), 3),
        (torch.tensor(0.5), 0.5),
        (np.str_("iid"), "iid"),
        (Split.IID, "iid"),
        (Path("a/b"), "a/b"),
        ([1, 2], "1,2"),
        (None, None),
    ],
)
def test_values_become_those_of_files(value: Any, read: object) -> None:
    (found,) = plain_settings({"partition": value}).values()
    assert (found, type(found)) == (read, type(read))


@pytest.mark.parametrize(
    "value", [np.array([1, 2]), torch.tensor([1, 2]), b"a", {1}, 2**70, "a\udcff", np.complex64(1)]
)
def test_what_no_file_could_hold_is_refused(value: Any) -> None:
    with pytest.raises(BadInput, match=r"^iterations: .*is no value of a setting") as refused:
        plain_settings({"iterations": value})
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"config": {"iterations": 3}}, "config: dict is no path; give settings as keywords"),
        ({"a\x1b[2J": 3}, r"a\?\[2J: is no setting"),
        ({"config": "a\0b"}, r"config=a\?b: "),
        ({"dataset": np.str_("digits"), "iterations": 0}, "iterations=0: must be at least 1"),
        ({"z_dim": -5, "generator": int, "discriminator": int}, "z_dim=-5: must be"),
        ({"callbacks": print}, "callbacks, scores: must be"),
        ({"scores": {"sharp": 3}}, "callbacks, scores: must be"),
        ({"scores": [print]}, "callbacks, scores: must be"),
    ],
)
def test_what_is_plainly_wrong_starts_nothing(
    given: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for train in (mdgan.train, lambda **own: mdgan.start(**own).wait()):
        with pytest.raises(BadInput, match=f"^{said}") as refused:
            train(**given)
        assert str(refused.value).isprintable()
    assert not list(tmp_path.glob("runs/*"))


SEEDED: dict[str, Any] = {"seeds": (np.int64(0),)}


@pytest.mark.parametrize(
    ("configurations", "given", "said"),
    [
        ({}, SEEDED, "configurations: must have settings by name"),
        ([{}], SEEDED, "configurations: must have settings by name"),
        ({"a": None}, SEEDED, "a: NoneType holds no settings"),
        ({"a\x1b": {}}, SEEDED, r"'a\\x1b': a configuration's name becomes that of a folder"),
        ({"a" * 300: {}}, SEEDED, "'aaa.*: a configuration's name becomes that of a folder"),
        ({"a": {}}, {"seeds": ()}, "seeds: has none"),
        ({"a": {}}, {"seeds": (0.5,)}, "seed=0.5: must be a whole number"),
        ({"a": {}}, {"jobs": "two"}, "jobs='two': must be a whole number"),
        ({"a": {}}, {"out": 3}, "out=3: must be text"),
    ],
)
def test_a_comparison_that_cannot_work_starts_nothing(
    configurations: Any, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(BadInput, match=f"^{said}") as refused:
        mdgan.compare(configurations, **given)
    assert str(refused.value).isprintable()
