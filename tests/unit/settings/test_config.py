import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mdgan.settings.config import as_settings, build_deployment, build_experiment, names
from mdgan.settings.deployment import Deployment
from mdgan.settings.experiment import Experiment, check_partition

from mdgan.errors import BadInput
from mdgan.settings.declare import flag, kinds, suggest

BAD_EXPERIMENT_VALUES: list[tuple[str, Any, str]] = [
    ("algorithm", "magic", "magic"),
    ("algorithm", 3, "3"),
    ("dataset", 7, "7"),
    ("world_size", 1, "1"),
    ("world_size", -4, "-4"),
    ("world_size", "5", '"5"'),
    ("world_size", True, "true"),
    ("world_size", 5.0, "5.0"),
    ("world_size", None, "null"),
    ("iterations", 0, "0"),
    ("iterations", -1, "-1"),
    ("batch_size", 0, "0"),
    ("batch_size", 2.5, "2.5"),
    ("local_steps", 0, "0"),
    ("kappa", 0, "0"),
    ("kappa", -3, "-3"),
    ("kappa", 5, "5"),
    ("kappa", "many", "many"),
    ("kappa", 2.0, "2.0"),
    ("kappa", True, "true"),
    ("swap_interval", -1, "-1"),
    ("swap_interval", 1.5, "1.5"),
    ("swap_interval", "auto", "auto"),
    ("swap_epochs", 0, "0.0"),
    ("swap_epochs", -1.0, "-1.0"),
    ("swap_epochs", float("inf"), "inf"),
    ("swap_epochs", float("nan"), "nan"),
    ("swap_epochs", "1", '"1"'),
    ("swap", "ring", "ring"),
    ("generator_loss", "bce", "bce"),
    ("discriminator_loss", "non-saturating", "non-saturating"),
    ("generator_lr", 0.0, "0.0"),
    ("generator_lr", -1e-3, "-0.001"),
    ("generator_lr", float("inf"), "inf"),
    ("generator_lr", float("nan"), "nan"),
    ("generator_lr", "2e-4", '"2e-4"'),
    ("discriminator_lr", 0, "0.0"),
    ("discriminator_lr", True, "true"),
    ("beta1", 1.0, "1.0"),
    ("beta1", -0.1, "-0.1"),
    ("beta2", 1, "1.0"),
    ("beta2", float("nan"), "nan"),
    ("partition", "random", "random"),
    ("partition", 4, "4"),
    ("seed", -1, "-1"),
    ("seed", 2**63, str(2**63)),
    ("seed", 0.0, "0.0"),
]


def refusal(kind: type[Experiment] | type[Deployment], values: Mapping[str, Any]) -> str:
    with pytest.raises(BadInput) as caught:
        kind(**values)
    text = str(caught.value)
    assert len(text.splitlines()) == 1, text
    return text


def test_the_defaults_are_valid() -> None:
    assert Experiment().num_workers == 4
    assert Deployment().transport == "tcp"


@pytest.mark.parametrize(("name", "value", "shown"), BAD_EXPERIMENT_VALUES)
def test_a_bad_experiment_value_is_named_with_its_flag(name: str, value: Any, shown: str) -> None:
    text = refusal(Experiment, {name: value})
    assert text.startswith(f"{flag(name)} ")
    assert shown in text


@pytest.mark.parametrize("name", ["algorithm", "partition", "swap", "generator_loss"])
def test_a_value_with_a_line_break_is_still_refused_in_one_line(name: str) -> None:
    assert f"{flag(name)} first second" in refusal(Experiment, {name: "first\nsecond"})


@pytest.mark.parametrize("kind", [Experiment, Deployment])
def test_every_field_refuses_values_of_a_wrong_type(
    kind: type[Experiment] | type[Deployment],
) -> None:
    for item in fields(kind):
        values: list[Any] = [[], {}, True, 0.5, 7, "text"]
        for value in values:
            fits = type(value) in kinds(item)
            whole = type(value) is int and float in kinds(item)
            if not fits and not whole:
                assert flag(item.name) in refusal(kind, {item.name: value})


def test_whole_numbers_are_taken_for_numbers_with_a_point() -> None:
    experiment = Experiment(generator_lr=1, swap_epochs=2)
    assert type(experiment.generator_lr) is float
    assert type(experiment.swap_epochs) is float
    assert Deployment(connect_timeout=3).connect_timeout == 3.0


def test_a_number_too_large_for_a_float_is_refused() -> None:
    assert "--generator-lr" in refusal(Experiment, {"generator_lr": 10**400})


@pytest.mark.parametrize(
    ("kappa", "world_size", "allowed"),
    [
        (1, 2, True),
        (2, 2, True),
        (3, 2, False),
        (2, 3, True),
        (3, 3, False),
        (3, 4, True),
        (4, 4, False),
        (0, 9, False),
        (-1, 9, False),
        ("auto", 2, True),
    ],
)
def test_kappa_may_be_up_to_the_number_of_workers_or_two(
    kappa: Any, world_size: int, allowed: bool
) -> None:
    if allowed:
        assert Experiment(kappa=kappa, world_size=world_size).kappa == kappa
    else:
        text = refusal(Experiment, {"kappa": kappa, "world_size": world_size})
        assert text.startswith(f"--kappa {kappa}:")


@pytest.mark.parametrize(
    ("algorithm", "kappa", "allowed"), [("mdgan", 3, True), ("mdgan", 4, False), ("fegan", 4, True)]
)
def test_with_participation_kappa_may_be_up_to_those_who_judge(
    algorithm: str, kappa: int, allowed: bool
) -> None:
    settings: dict[str, Any] = {
        "kappa": kappa,
        "world_size": 7,
        "participation": 0.5,
        "algorithm": algorithm,
    }
    if allowed:
        assert Experiment(**settings).kappa == kappa
    else:
        assert "than 3 worker(s) at a time" in refusal(Experiment, settings)


def test_only_one_swap_rhythm_can_be_given() -> None:
    text = refusal(Experiment, {"swap_interval": 5, "swap_epochs": 2.0})
    assert "--swap-interval 5" in text
    assert "--swap-epochs 2.0" in text
    with pytest.raises(BadInput, match="--swap-interval 5 and --swap-epochs"):
        build_experiment({}, {"swap_interval": 5, "swap_epochs": 2.0})


@pytest.mark.parametrize(
    ("flags", "file", "interval", "epochs"),
    [
        ({"swap_interval": 5}, {"swap_epochs": 2.0}, 5, None),
        ({"swap_epochs": 2.0}, {"swap_interval": 5}, None, 2.0),
        ({"swap_interval": 0}, {"swap_epochs": 2.0}, 0, None),
        ({"swap_interval": None}, {"swap_epochs": 2.0}, None, 2.0),
        ({"swap_interval": 7}, {"swap_interval": 5}, 7, None),
    ],
)
def test_a_flag_for_the_swap_rhythm_overrides_the_other_one_in_the_file(
    flags: dict[str, Any], file: dict[str, Any], interval: int | None, epochs: float | None
) -> None:
    experiment = build_experiment(flags, file, {"swap_epochs": 9.0})
    assert experiment.swap_interval == interval
    assert experiment.swap_epochs == epochs


@pytest.mark.parametrize(
    ("values", "mean_shard_size", "iterations"),
    [
        ({}, 450.0, 45),
        ({"batch_size": 32}, 449.25, 14),
        ({"swap_epochs": 0.5}, 450.0, 22),
        ({"swap_epochs": 3.0, "batch_size": 100}, 450.0, 14),
        ({"swap_epochs": 1e-9}, 450.0, 1),
        ({"swap_interval": 17}, 450.0, 17),
        ({"swap_interval": 0}, 450.0, 0),
    ],
)
def test_swaps_come_every_m_e_over_b_iterations(
    values: dict[str, Any], mean_shard_size: float, iterations: int
) -> None:
    assert Experiment(**values).swap_every(mean_shard_size) == iterations


def test_a_swap_rhythm_beyond_all_numbers_is_refused_or_never_comes() -> None:
    try:
        experiment = Experiment(swap_epochs=1e308)
    except BadInput:
        return
    assert experiment.swap_every(450.0) > experiment.iterations


def test_an_earlier_layer_wins() -> None:
    flags = {"batch_size": 1, "seed": None}
    file = {"batch_size": 2, "seed": 22, "local_steps": 2}
    dataset = {"batch_size": 3, "seed": 33, "local_steps": 3, "beta1": 0.25}
    experiment = build_experiment(flags, file, dataset)
    assert experiment.batch_size == 1
    assert experiment.seed == 22
    assert experiment.local_steps == 2
    assert experiment.beta1 == 0.25
    assert experiment.beta2 == 0.999


def test_layers_hold_settings_of_both_kinds() -> None:
    layers = ({"threads": 2, "seed": 5}, {"threads": 3, "device": "cuda", "beta1": 0.0})
    assert build_deployment(*layers) == Deployment(threads=2, device="cuda")
    assert build_experiment(*layers) == Experiment(seed=5, beta1=0.0)


def test_falsy_flags_are_not_mistaken_for_absent_ones() -> None:
    experiment = build_experiment({"beta1": 0.0, "swap_interval": 0}, {"beta1": 0.9})
    assert experiment.beta1 == 0.0
    assert experiment.swap_interval == 0


def test_all_settings_are_there_but_the_output_folder() -> None:
    settings = as_settings(Experiment(), Deployment(out="runs/here"))
    assert settings.keys() == (names(Experiment) | names(Deployment)) - {"out"}
    json.dumps(settings)


@pytest.mark.parametrize(
    "scheme",
    [
        "iid",
        "sorted",
        "none",
        "dirichlet:0.5",
        "dirichlet:1e-3",
        "dirichlet:1E+2",
        "shards:2",
        "classes:10",
        "fegan:3,500",
    ],
)
def test_partition_spellings_that_are_right(scheme: str) -> None:
    check_partition(scheme)


@pytest.mark.parametrize(
    "scheme",
    [
        "",
        "IID",
        " iid",
        "iid ",
        "iid\n",
        "iid:3",
        "none:1",
        "dirichlet",
        "dirichlet:",
        "dirichlet:0",
        "dirichlet:-1",
        "dirichlet:1e",
        "dirichlet:1e999",
        "dirichlet:..",
        "dirichlet:nan",
        "dirichlet:0.5,0.5",
        "shards",
        "shards:0",
        "shards:1.5",
        "shards:-2",
        "classes:0",
        "classes:two",
        "fegan:3",
        "fegan:0,5",
        "fegan:5,0",
        "fegan:3,",
        "fegan:1,2,3",
    ],
)
def test_partition_spellings_that_are_wrong(scheme: str) -> None:
    text = refusal(Experiment, {"partition": scheme})
    assert text.startswith("--partition ")
    assert scheme.strip() in text


@settings(deadline=None)
@given(st.text() | st.from_regex(r"(iid|sorted|none|dirichlet|shards|classes|fegan):?\S*"))
def test_junk_for_a_partition_is_refused_in_one_line_or_is_one(scheme: str) -> None:
    refused = None
    try:
        check_partition(scheme)
    except BadInput as error:
        refused = str(error)
    if refused is not None:
        assert refused.startswith("--partition ")
        assert len(refused.splitlines()) == 1
    else:
        name, _, numbers = scheme.partition(":")
        assert name in {"iid", "sorted", "none", "dirichlet", "shards", "classes", "fegan"}
        assert all(0 < float(number) < float("inf") for number in numbers.split(",") if number)


def test_suggestions_are_near() -> None:
    assert suggest("batch_sise", names(Experiment)) == "; did you mean 'batch_size'?"
    assert suggest("qqqqqq", names(Experiment)) == ""


def test_settings_are_frozen() -> None:
    with pytest.raises(AttributeError):
        Experiment().seed = 3  # type: ignore[misc] # that it cannot be done is the point
