from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mdgan.settings.deployment import Deployment, parse_deadline

from mdgan.errors import BadInput
from mdgan.settings.declare import flag
from tests.unit.settings.test_config import refusal

BAD_DEPLOYMENT_VALUES: list[tuple[str, Any, str]] = [
    ("datasets_dir", 1, "1"),
    ("data_dir", ["a"], '["a"]'),
    ("workers_per_host", 0, "0"),
    ("workers_per_host", "2", '"2"'),
    ("transport", "carrier-pigeon", "carrier-pigeon"),
    ("deadline", "soon", "soon"),
    ("deadline", "0", "0"),
    ("deadline", "-1", "-1"),
    ("deadline", "", ""),
    ("deadline", "x", "x"),
    ("deadline", "3 x", "3 x"),
    ("deadline", "3X", "3X"),
    ("deadline", "1e3", "1e3"),
    ("deadline", "nan", "nan"),
    ("deadline", "10000000", "10000000"),
    ("deadline", "0x", "0x"),
    ("deadline", 3.0, "3.0"),
    ("quorum", 0.0, "0.0"),
    ("quorum", -0.5, "-0.5"),
    ("quorum", float("nan"), "nan"),
    ("quorum", "0.5", '"0.5"'),
    ("quorum", 1.01, "1.01"),
    ("liveness_timeout", 0.0, "0.0"),
    ("liveness_timeout", float("inf"), "inf"),
    ("liveness_timeout", float("nan"), "nan"),
    ("patience", -0.1, "-0.1"),
    ("patience", float("inf"), "inf"),
    ("patience", float("nan"), "nan"),
    ("strikes", 0, "0"),
    ("strikes", 1.5, "1.5"),
    ("checkpoint_interval", -1, "-1"),
    ("checkpoint_interval", True, "true"),
    ("checkpoint_keep", 0, "0"),
    ("checkpoint_to_server", 1, "1"),
    ("join_token", 7, "7"),
    ("insecure", "yes", '"yes"'),
    ("device", "tpu", "tpu"),
    ("device", None, "None"),
    ("ranks", [0, 1], "[0, 1]"),
    ("master_addr", None, "null"),
    ("master_port", -1, "-1"),
    ("master_port", 65536, "65536"),
    ("master_port", "29500", '"29500"'),
    ("network_interface", 0, "0"),
    ("threads", 0, "0"),
    ("threads", "all", "all"),
    ("sample_interval", -1, "-1"),
    ("sample_interval", True, "true"),
    ("eval_interval", -1, "-1"),
    ("eval_samples", 1, "1"),
    ("extractor", "inception", "inception"),
    ("inception_weights", "weights.pth", "weights.pth"),
    ("tensorboard", "yes", '"yes"'),
    ("tensorboard", 1, "1"),
    ("log_interval", 0, "0"),
    ("connect_timeout", 0, "0.0"),
    ("connect_timeout", -5.0, "-5.0"),
    ("connect_timeout", float("nan"), "nan"),
    ("connect_timeout", float("inf"), "inf"),
    ("out", 5, "5"),
]


@pytest.mark.parametrize(("name", "value", "shown"), BAD_DEPLOYMENT_VALUES)
def test_a_bad_deployment_value_is_named_with_its_flag(name: str, value: Any, shown: str) -> None:
    text = refusal(Deployment, {name: value})
    assert text.startswith(f"{flag(name)} ")
    assert shown in text


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        (None, None),
        ("30", (30.0, 0.0)),
        ("0.5", (0.5, 0.0)),
        ("3x", (0.0, 3.0)),
        ("1.5x", (0.0, 1.5)),
    ],
)
def test_deadlines(text: str | None, meaning: tuple[float, float] | None) -> None:
    assert parse_deadline(text) == meaning


@settings(deadline=None)
@given(st.text(max_size=8) | st.from_regex(r"[0-9]*\.?[0-9]*x?", fullmatch=True))
def test_junk_for_a_deadline_is_refused_in_one_line_or_is_one(text: str) -> None:
    refused = None
    try:
        parsed = parse_deadline(text)
    except BadInput as error:
        refused = str(error)
    if refused is not None:
        assert refused.startswith("--deadline ")
        assert len(refused.splitlines()) == 1
    else:
        assert parsed is not None
        seconds, factor = parsed
        assert (seconds == 0) != (factor == 0)
        assert 0 < seconds + factor == float(text.removesuffix("x"))


def test_a_worker_need_not_wait_for_a_server_at_all() -> None:
    assert Deployment(patience=0).patience == 0.0


def test_addresses_of_server_and_standbys() -> None:
    assert Deployment(master_addr="a, b,c").addresses() == ["a", "b", "c"]


def test_ranks_make_no_sense_in_one_process() -> None:
    assert "--ranks 0,1" in refusal(Deployment, {"transport": "memory", "ranks": "0,1"})
