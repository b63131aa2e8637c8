"""Checks before anything starts: data, models, and which file's defaults count."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from mdgan.data.dataset_file import DatasetFile, load
from mdgan.engine.host.held_samples import HeldSamples
from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.gan.build import build_model
from mdgan.launch.budget_checks import check_budgets
from mdgan.launch.checked import Checked, prepare
from mdgan.launch.given import Given, known_settings
from mdgan.launch.guests import of_the_run
from mdgan.launch.machine import flush_denormals
from mdgan.launch.models import models_of, tried_models
from mdgan.launch.settings import LaunchSettings
from mdgan.launch.settled import default_settings, settings_with
from mdgan.spelling import spelled
from mdgan.version import SERIES
from tests.claims.registry import claim
from tests.unit.data.bars import RECIPE, load_text
from tests.unit.privacy.halves import make_shard

SMALL = {"world_size": 3, "iterations": 10, "eval_interval": 0, "batch_size": 8}


def prepared(values: dict[str, Any]) -> Checked:
    return prepare(Given([values]))


def test_a_run_saves_all_settings_but_its_folder(tmp_path: Path) -> None:
    run = prepared({**SMALL, "out": str(tmp_path / "run"), "threads": 1})
    saved = json.loads(json.dumps(run.config))
    assert saved.keys() == (MDGANSettings.names() | LaunchSettings.names()) - {"out"}
    assert registry.read_settings([saved]) == run.settings
    assert LaunchSettings.read(saved) == LaunchSettings(threads=1)
    assert not (tmp_path / "run").exists()


def test_what_is_given_is_refused_before_the_dataset_file_is_executed_which_is_once(
    tmp_path: Path,
) -> None:
    executed = tmp_path / "executed"
    text = f"with open({str(executed)!r}, 'a') as file:\n    file.write('x')\n{RECIPE}"
    (tmp_path / "bars.py").write_text(text + 'DEFAULTS = {"kappa": 1}\n', encoding="utf-8")
    bars = {**SMALL, "batch_size": 4, "dataset": "bars", "datasets_dir": str(tmp_path)}
    for wrong, refusal in (
        ({"batch_size": 0}, "--batch-size 0: must be at least 1"),
        ({"swap_interval": 3, "swap_epochs": 1.0}, "give one of them"),
        ({"round_iterations": 2}, "--round-iterations 2: mdgan has no use for it"),
    ):
        with pytest.raises(BadInput, match=refusal):
            prepared({**bars, **wrong})
    assert not executed.exists()
    assert prepared(bars).config["kappa"] == 1
    assert executed.read_text() == "x"


def test_what_must_be_equal_on_every_rank_is_what_decides_the_result() -> None:
    one, other = (prepared({**SMALL, **own}) for own in ({"threads": 1}, {"strikes": 9}))
    assert one.identity == other.identity
    assert one.identity != prepared({**SMALL, "seed": 1}).identity
    assert one.identity.keys() >= {"seed", "batch_size", "dataset_sha256", "extractor"}
    assert one.identity["version"] == SERIES
    assert not one.identity.keys() & LaunchSettings.names()


def test_the_baseline_holds_all_data() -> None:
    run = prepared({**SMALL, "algorithm": "standalone"})
    (source, indices) = run.holdings[1]
    assert len(indices) == len(source)
    assert list(run.holdings) == [1]


def test_threads_that_have_nothing_to_read_are_told() -> None:
    (line,) = prepared({**SMALL, "data_threads": 4}).warnings
    message = "--set data_threads=4: --dataset digits reads nothing when it is drawn"
    assert spelled(line).startswith(message)
    assert prepared(SMALL).warnings == ()


@claim(
    "traps",
    "A host with neither noise nor secure sums, whose server is elsewhere, is told that "
    "when it starts.",
)
@pytest.mark.parametrize("flags", [{}, {"secure_aggregation": True}, {"dp_noise": 2.0}])
def test_who_takes_part_with_neither_noise_nor_sums_is_told_whom_it_trusts(
    flags: dict[str, Any], tmp_path: Path
) -> None:
    if "dp_noise" in flags:
        pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")
        flags = {**flags, "dp_delta": 1e-4, "dp_ledger": str(tmp_path)}
    here = {**SMALL, **flags, "world_size": 4}
    far = {**here, "master_addr": "10.0.0.1", "insecure": True, "ranks": "2"}
    lines = [spelled(line) for line in prepared(far).warnings if "reconstruct" in line]
    assert [line.partition(":")[0] for line in lines] == [
        "neither --dp-epsilon nor --secure-aggregation"
    ] * (not flags)
    assert not any("reconstruct" in line for line in prepared(here).warnings)


@claim("host-settings", "A server sets no setting of a host's machine")
def test_a_server_says_nothing_to_a_newcomer_of_what_is_the_users_own() -> None:
    changes = {
        **{"datasets_dir": "/tmp", "data_dir": "/", "log_file": "/etc/motd", "insecure": True},
        **{"dp_ledger": "/tmp/new", "require": "dp"},
    }
    assert changes.keys() <= known_settings().keys()
    of_run = {"algorithm": "mdgan", "dataset": "digits", "dp_epsilon": 8.0, "seed": 3}
    said = {"version": "1", "dataset_sha256": "0", "extractor": "x", **changes, **of_run, "new": 1}
    assert of_the_run(said) == of_run


def left_by_a_new_thread(settings: MDGANSettings) -> int:
    """How many of four million products below 10⁻³⁸ are not 0, with two threads."""
    results: list[int] = []

    def compute() -> None:
        torch.set_num_threads(2)
        flush_denormals(settings)
        results.append(int((torch.full((1 << 22,), 1e-20) * 1e-20).count_nonzero()))

    before = torch.get_num_threads()
    thread = threading.Thread(target=compute)
    thread.start()
    thread.join()
    torch.set_num_threads(before)
    return results[0]


def test_all_threads_of_a_private_host_count_them_as_0() -> None:
    assert left_by_a_new_thread(MDGANSettings(dp_noise=1.0, dp_delta=1e-4)) == 0
    assert left_by_a_new_thread(MDGANSettings()) == 1 << 22


@pytest.mark.parametrize(("delta", "rank"), [(0.01, ""), (0.04, "rank 2"), (0.1, "rank 2 (and 1")])
def test_a_delta_that_allows_to_give_samples_away_is_told_once(delta: float, rank: str) -> None:
    pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")
    values = {"dp_noise": 2.0, "dp_delta": delta, "world_size": 3}
    shards = {1: make_shard(20), 2: make_shard(30)}
    samples = HeldSamples(MDGANSettings.read(values), shards, {}, DIGITS)
    warnings = check_budgets(samples, serves=False)
    lines = [line for line in map(spelled, warnings) if "--dp-delta" in line]
    assert len(lines) == bool(rank)
    assert all(rank in line and "one of its 30 samples" in line for line in lines)


DIGITS = load("digits", None)
DEFAULTS = """
DEFAULTS = {
    "iterations": 9, "batch_size": 3, "augment": "diffaugment", "generator_lr": 0.5, "r1": 1.0,
    "generator_loss": "wasserstein", "discriminator_loss": "wasserstein", "gradient_penalty": 10.0,
}
"""


def settled(dataset: DatasetFile, *layers: dict[str, Any]) -> RunSettings:
    return settings_with(layers, default_settings(layers, dataset))


def refused(dataset: DatasetFile, **values: Any) -> str:
    with pytest.raises(BadInput) as why:
        tried_models(settled(dataset, values), dataset)
    assert "\n" not in str(why.value)
    return str(why.value)


def test_an_architecture_replaces_what_the_defaults_say_of_models(tmp_path: Path) -> None:
    bars = load_text(RECIPE + DEFAULTS, tmp_path)
    own = settled(bars)
    assert own.training.policy("generator").learning_rate == 0.5
    assert (own.training.regularizers.r1, own.training.discriminator_loss) == (1.0, "wasserstein")
    training = settled(bars, {"architecture": "dcgan"}, {"beta2": 0.9}).training
    assert (training.iterations, training.batch_size) == (9, 3)
    policy, rules = training.policy("generator"), training.regularizers
    assert (policy.learning_rate, *policy.betas) == (2e-4, 0.5, 0.9)
    assert (rules.augment, rules.gradient_penalty, rules.r1) == ("diffaugment", None, None)
    assert training.discriminator_loss == "bce"
    assert settled(bars, {"architecture": "file"}) == own


def test_defaults_may_name_an_architecture_and_then_win_over_its_own(tmp_path: Path) -> None:
    text = RECIPE + 'DEFAULTS = {"architecture": "dcgan", "width": 4, "beta1": 0.25}\n'
    bars = load_text(text, tmp_path)
    for given, expected in (
        ({}, ("dcgan", 4, 0.25)),
        ({"architecture": "file"}, ("file", None, 0.25)),
    ):
        settled_settings = settled(bars, given)
        first_beta = settled_settings.training.policy("generator").betas[0]
        assert (
            settled_settings.models.architecture,
            settled_settings.models.width,
            first_beta,
        ) == expected
    assert settled(bars).training.local_steps == 1


SWAPS = 'DEFAULTS = {"swap": "means", "swap_interval": 7, "participation": 0.5}\n'


def test_a_data_set_may_say_how_to_swap_its_discriminators(tmp_path: Path) -> None:
    bars = load_text(RECIPE + SWAPS, tmp_path)
    for given, expected in (
        ({}, ("means", 7, None)),
        ({"swap_epochs": 2.0}, ("means", None, 2.0)),
        ({"swap": "pairs"}, ("pairs", 7, None)),
        ({"architecture": "dcgan"}, ("pairs", None, None)),
    ):
        settings = settled(bars, given)
        assert isinstance(settings, MDGANSettings)
        swaps = settings.swaps
        assert (swaps.swap, swaps.swap_interval, swaps.swap_epochs) == expected
    with pytest.raises(BadInput, match="--shut-out-free-riders"):
        settled(bars, {"shut_out_free_riders": True, "world_size": 7})


def test_what_a_data_set_says_for_another_algorithm_is_left_out(tmp_path: Path) -> None:
    bars = load_text(RECIPE + SWAPS, tmp_path)
    settings = settled(bars, {"algorithm": "fl-gan"})
    assert "swap" not in settings.names()
    assert settings.values()["participation"] == 0.5
    with pytest.raises(BadInput, match="--swap means: fl-gan has no use for it"):
        settled(bars, {"algorithm": "fl-gan", "swap": "means"})
    bars = load_text(RECIPE + 'DEFAULTS = {"dp_epsilon": 1.0}\n', tmp_path)
    with pytest.raises(BadInput, match=r"--dp-epsilon 1\.0: paragan has no use for it"):
        settled(bars, {"algorithm": "paragan"})


def test_stored_settings_are_read_back_as_they_were(tmp_path: Path) -> None:
    for defaults in ("", DEFAULTS, 'DEFAULTS = {"architecture": "dcgan", "width": 4}\n'):
        bars = load_text(RECIPE + defaults, tmp_path)
        for given in ({}, {"architecture": "dcgan", "width": 2, "beta1": 0.1}):
            settled_settings = settled(bars, given)
            assert settled(bars, settled_settings.as_json()) == settled_settings


def test_spectral_norm_is_put_on_an_architecture_too() -> None:
    settings = settled(DIGITS, {"architecture": "dcgan", "width": 2, "spectral_norm": True})
    tried_models(settings, DIGITS)
    names = build_model(models_of(settings, DIGITS).discriminator, 0).state_dict()
    assert "0.parametrizations.weight.original" in names


def test_what_cannot_be_made_is_told_in_one_line(tmp_path: Path) -> None:
    bars = load_text(RECIPE, tmp_path)  # 4×4
    message = refused(bars, architecture="dcgan")
    assert "--architecture dcgan: " in message
    assert "8, 14, 16, 28, 32" in message
    assert "4×4" in message
    assert "did you mean 'dcgan'" in refused(DIGITS, architecture="dcgna")
    assert "--width 8: the models of " in refused(DIGITS, width=8)
    assert "--width 0: must be at least 1" in refused(DIGITS, architecture="dcgan", width=0)
    message = refused(DIGITS, architecture="sngan", width=2, spectral_norm=True)
    assert "--architecture sngan: its layers are normalised already; leave it out" in message
    assert "add NUM_CLASSES to it, or use dcgan or lsgan or sngan" in refused(
        bars, architecture="acgan"
    )
    bars = load_text(RECIPE + 'DEFAULTS = {"architecture": 3}\n', tmp_path)
    assert "--architecture 3: must be" in refused(bars)
