"""Finding, loading and checking dataset files; a user's mistake is told in one line."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.datasets import load_digits

from mdgan.data.dataset_file import (
    check_defaults,
    load,
)
from mdgan.data.find import find_all
from mdgan.data.shard import Shard
from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.gan.build import build_model, num_parameters
from mdgan.models.check import check_models
from tests.unit.data.bars import RECIPE, changed, load_text, refusal


def test_the_recipe(tmp_path: Path) -> None:
    bars = load_text(RECIPE, tmp_path)
    assert (bars.name, bars.shape, bars.models.z_dim) == ("bars", (1, 4, 4), 5)
    assert bars.defaults == {}
    check_models(bars.models)
    assert num_parameters(bars.models.generator()) == 5 * 16 + 16
    source = bars.open(tmp_path / "ignored")
    assert len(source) == 12
    shard = Shard(source, torch.arange(6, 12), torch.Generator().manual_seed(0))
    level = torch.tensor([-1.0, 1.0, -1.0, 1.0]).repeat(8, 1, 4, 1).mT
    assert torch.equal(shard.next_batch(8).images, level)


HELD_OUT = """

class HeldOut(InMemoryPartitioner):
    def read(self, data_dir):
        return torch.ones(2, 1, 4, 4), torch.tensor([0, 1])
"""


def test_held_out_samples(tmp_path: Path) -> None:
    bars = load_text(RECIPE + HELD_OUT, tmp_path)
    source = bars.open_held_out(tmp_path)
    assert source.labels.tolist() == [0, 1]
    assert torch.equal(source.images(torch.arange(2)), torch.ones(2, 1, 4, 4))
    assert len(bars.open(tmp_path)) == 12


def test_a_file_without_held_out_samples(tmp_path: Path) -> None:
    bars = load_text(RECIPE, tmp_path)
    assert bars.held_out is None
    with pytest.raises(BadInput, match="defines no HeldOut") as caught:
        bars.open_held_out(tmp_path)
    assert str(bars.path) in str(caught.value)


def test_held_out_that_cannot_be_called(tmp_path: Path) -> None:
    assert "HeldOut = 5 must be a Partitioner" in refusal(RECIPE + "\n\nHeldOut = 5\n", tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("torch.tensor([0, 1])", "torch.tensor([0, -1])", "HeldOut's labels must be int64"),
        ("torch.ones(2, 1, 4, 4)", "torch.ones(2, 4, 4)", "HeldOut gives torch.float32 [4, 4]"),
        (
            "torch.ones(2, 1, 4, 4)",
            "torch.ones(2, 1, 4, 4) * 2",
            "HeldOut gives values from 2 to 2, outside [−1, 1]",
        ),
        ("torch.tensor([0, 1])", "torch.tensor([0])", "2 images but 1 labels"),
        ("return torch.ones(2", "raise OSError('gone'); (2", "cannot read the data in"),
        (
            "torch.ones(2, 1, 4, 4), torch.tensor([0, 1])",
            "torch.ones(0, 1, 4, 4), torch.ones(0).long()",
            "no held-out sample",
        ),
    ],
)
def test_held_out_samples_that_break_the_promise(
    old: str, new: str, says: str, tmp_path: Path
) -> None:
    assert old in HELD_OUT
    bars = load_text(RECIPE + HELD_OUT.replace(old, new), tmp_path)
    with pytest.raises(BadInput) as caught:
        bars.open_held_out(tmp_path)
    assert says in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_digits_are_trained_on_or_held_out_never_both(tmp_path: Path) -> None:
    digits = load("digits", None)
    source, held_out = digits.open(tmp_path), digits.open_held_out(tmp_path)
    assert (len(source), len(held_out)) == (1438, 359)
    assert set(source.labels.tolist()) == set(held_out.labels.tolist()) == set(range(10))
    rows = torch.cat([part.images(torch.arange(len(part))) for part in (source, held_out)])
    whole = load_digits()
    expected = torch.tensor(whole.images, dtype=torch.float32) / 8 - 1
    places = {tuple(image.flatten().tolist()): place for place, image in enumerate(expected)}
    trained, out = (
        [places[tuple(image.flatten().tolist())] for image in part]
        for part in (rows[:1438], rows[1438:])
    )
    assert sorted(trained + out) == list(range(1797))
    assert trained == sorted(trained)
    labels = torch.tensor(whole.target)
    assert torch.equal(held_out.labels, labels[out])
    assert torch.equal(source.labels, labels[trained])


def test_digits_are_held_out_at_random_and_by_class() -> None:
    held_out = load("digits", None).open_held_out(Path())
    assert held_out is not None
    whole = load_digits()
    share = np.bincount(held_out.labels) / np.bincount(whole.target)
    assert share == pytest.approx([0.2] * 10, abs=0.006)
    found = {image.tobytes() for image in held_out.images(torch.arange(359)).numpy()}
    all_of_them = (whole.images.astype(np.float32) / 8 - 1)[:, None]
    places = [place for place, image in enumerate(all_of_them) if image.tobytes() in found]
    # By any period, the places are as likely as any others.
    for period in (2, 5, 10, 13):
        counts = np.bincount(np.array(places) % period, minlength=period)
        assert stats.chisquare(counts).pvalue > 1e-3, period
    digest = hashlib.sha256(held_out.labels.numpy().tobytes()).hexdigest()
    assert digest.startswith("4e4a8e6b"), "the same everywhere"


def test_which_shipped_files_hold_samples_out() -> None:
    holding = {name for name in find_all(None) if load(name, None).held_out is not None}
    assert holding == {"digits", "mnist", "cifar10", "celeba"}


def test_the_shipped_files_are_found() -> None:
    assert set(find_all(None)) >= {"digits", "mnist", "cifar10", "celeba", "folder"}


def test_unknown_name_lists_what_there_is_and_suggests_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "bars.py").write_text(RECIPE, encoding="utf-8")
    with pytest.raises(BadInput) as caught:
        load("mnits", str(tmp_path))
    message = str(caught.value)
    assert (
        "--dataset mnits: not found among bars, celeba, cifar10, digits, folder, mnist" in message
    )
    assert message.endswith("; did you mean 'mnist'?")


def test_unknown_name_near_to_nothing() -> None:
    with pytest.raises(BadInput) as caught:
        load("xyzzyxyzzy", None)
    assert "did you mean" not in str(caught.value)


def test_datasets_dir_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such folder") as caught:
        load("digits", str(tmp_path / "absent"))
    assert str(tmp_path / "absent") in str(caught.value)


def test_a_users_file_comes_before_a_shipped_one(tmp_path: Path) -> None:
    (tmp_path / "digits.py").write_text(RECIPE, encoding="utf-8")
    assert load("digits", str(tmp_path)).shape == (1, 4, 4)
    assert load("digits", None).shape == (1, 8, 8)


def test_names_with_an_underscore_are_no_datasets(tmp_path: Path) -> None:
    (tmp_path / "_helper.py").write_text("", encoding="utf-8")
    assert "_helper" not in find_all(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "old"),
    [
        ("Partitioner", "class Partitioner("),
        ("Generator", "class Generator("),
        ("Discriminator", "class Discriminator("),
        ("Z_DIM", "Z_DIM = 5"),
        ("SHAPE", "SHAPE = (1, 4, 4)"),
    ],
)
def test_one_of_the_five_names_is_missing(name: str, old: str, tmp_path: Path) -> None:
    message = refusal(changed(old, old.replace(name, "Other")), tmp_path)
    assert f"lacks {name};" in message
    assert "Partitioner, Generator, Discriminator, SHAPE, Z_DIM" in message


def test_an_empty_file_lacks_everything(tmp_path: Path) -> None:
    message = refusal("", tmp_path)
    assert "lacks Partitioner, Generator, Discriminator, SHAPE, Z_DIM;" in message


def test_syntax_error(tmp_path: Path) -> None:
    message = refusal(changed("Z_DIM = 5", "Z_DIM = = 5"), tmp_path)
    assert "SyntaxError" in message
    assert "line 10" in message


@pytest.mark.parametrize(
    ("statement", "reason"),
    [("import absent_module", "absent_module"), ("raise ValueError('two\\nlines')", "two lines")],
)
def test_error_while_importing(statement: str, reason: str, tmp_path: Path) -> None:
    assert reason in refusal(changed("Z_DIM = 5", f"Z_DIM = 5\n{statement}"), tmp_path)


@pytest.mark.parametrize(
    "shape", ["4", "(4, 4)", "[1, 4, 4]", "(1, 4, 0)", "(1, 4, -4)", "(1, 4.0, 4)", "('1', 4, 4)"]
)
def test_wrong_shape(shape: str, tmp_path: Path) -> None:
    message = refusal(changed("SHAPE = (1, 4, 4)", f"SHAPE = {shape}"), tmp_path)
    assert f"SHAPE = {shape} must be (channels, height, width)" in message


@pytest.mark.parametrize("z_dim", ["0", "-5", "5.0", "'5'", "None"])
def test_wrong_z_dim(z_dim: str, tmp_path: Path) -> None:
    message = refusal(changed("Z_DIM = 5", f"Z_DIM = {z_dim}"), tmp_path)
    assert f"Z_DIM = {z_dim} must be a positive integer" in message


@pytest.mark.parametrize("number", ["0", "-1", "2.0", "True", "'10'", "100001"])
def test_wrong_number_of_classes(number: str, tmp_path: Path) -> None:
    message = refusal(changed("Z_DIM = 5", f"Z_DIM = 5\nNUM_CLASSES = {number}"), tmp_path)
    assert f"NUM_CLASSES = {number} must be a whole number from 1 to 100,000" in message


def test_labels_beyond_the_number_of_classes(tmp_path: Path) -> None:
    text = changed("Z_DIM = 5", "Z_DIM = 5\nNUM_CLASSES = {}") + HELD_OUT
    assert load_text(text.format(2), tmp_path).num_classes == 2
    load_text(text.format(2), tmp_path).open_held_out(tmp_path)
    with pytest.raises(BadInput, match="HeldOut has label 1, but NUM_CLASSES = 1: labels are 0-0"):
        load_text(text.format(1), tmp_path).open_held_out(tmp_path)


def test_generator_of_wrong_output(tmp_path: Path) -> None:
    message = refusal(changed("nn.Unflatten(1, SHAPE)", "nn.Unflatten(1, (1, 2, 8))"), tmp_path)
    assert "Generator gives [2, 1, 2, 8]" in message
    assert "SHAPE says [2, 1, 4, 4]" in message


def test_generator_that_does_not_take_z(tmp_path: Path) -> None:
    message = refusal(changed("nn.Linear(Z_DIM, 16)", "nn.Linear(7, 16)"), tmp_path)
    assert "Generator fails on a batch [b, Z_DIM=5]: RuntimeError" in message


def test_generator_that_cannot_be_built(tmp_path: Path) -> None:
    message = refusal(changed("nn.Linear(Z_DIM, 16)", "nn.Linear(Z_DIM)"), tmp_path)
    assert "Generator fails" in message
    assert "TypeError" in message


def test_discriminator_that_does_not_take_samples(tmp_path: Path) -> None:
    message = refusal(changed("nn.Linear(16, 1)", "nn.Linear(17, 1)"), tmp_path)
    assert "Discriminator fails on a batch [b, *(1, 4, 4)]: RuntimeError" in message


@pytest.mark.parametrize(
    ("layers", "shape"),
    [
        ("nn.Flatten(), nn.Linear(16, 2)", [2, 2]),
        ("nn.Flatten(0), nn.Linear(32, 1)", [1]),
        ("nn.Flatten(0), nn.Linear(32, 2), nn.Unflatten(0, (1, 2))", [1, 2]),
        ("nn.Linear(4, 1)", [2, 1, 4, 1]),
    ],
)
def test_discriminator_of_wrong_output(layers: str, shape: list[int], tmp_path: Path) -> None:
    message = refusal(changed("nn.Flatten(), nn.Linear(16, 1)", layers), tmp_path)
    assert f"Discriminator gives {shape} for 2 samples, must give one logit a sample" in message


def test_discriminator_that_returns_no_tensor(tmp_path: Path) -> None:
    text = RECIPE + "\n    def forward(self, images):\n        return [0.0, 0.0]\n"
    assert "Discriminator returns list, not a tensor" in refusal(text, tmp_path)


@pytest.mark.parametrize("layers", ["nn.Linear(16, 1)", "nn.Linear(16, 1), nn.Flatten(0)"])
def test_logits_may_be_a_column_or_flat(layers: str, tmp_path: Path) -> None:
    check_models(load_text(changed("nn.Linear(16, 1)", layers), tmp_path).models)


def test_defaults_are_taken_over(tmp_path: Path) -> None:
    text = changed("Z_DIM = 5", "Z_DIM = 5\nDEFAULTS = {'batch_size': 4}")
    assert load_text(text, tmp_path).defaults == {"batch_size": 4}


@pytest.mark.parametrize("key", ["batch_sise", "device"])
def test_defaults_with_an_unknown_key(key: str, tmp_path: Path) -> None:
    bars = load_text(changed("Z_DIM = 5", f"Z_DIM = 5\nDEFAULTS = {{'{key}': 4}}"), tmp_path)
    known = registry.algorithm("mdgan").settings().as_json(shared=True)
    with pytest.raises(BadInput) as caught:
        check_defaults(bars, known)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'bars.py'}: ")
    assert f"DEFAULTS has unknown key '{key}'" in message
    assert ("did you mean 'batch_size'?" in message) == (key == "batch_sise")


END = "nn.Linear(16, 1)"


@pytest.mark.parametrize(
    ("layers", "warns"),
    [
        (f"{END}, nn.Sigmoid()", True),
        (f"{END}, nn.BatchNorm1d(1), nn.Dropout(0.1), nn.Sigmoid()", True),
        (f"{END}, nn.Hardtanh(0, 1)", True),
        ("nn.LazyLinear(1), nn.Sigmoid()", True),
        (END, False),
        (f"{END}, nn.ReLU()", False),
        (f"nn.utils.parametrizations.spectral_norm({END})", False),
        (f"nn.Sigmoid(), {END}", False),
        (f"nn.init.zeros_((last := {END}).weight) is None or nn.init.zeros_(last.bias) is None "
         "or last", False),
    ],
)  # fmt: skip
def test_a_discriminator_that_ends_in_a_sigmoid(
    layers: str, warns: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    check_models(load_text(changed(END, layers), tmp_path).models)
    check_models(load_text(changed(END, layers), tmp_path).models)
    assert len(caplog.messages) == warns
    if warns:
        assert f"{tmp_path / 'bars.py'}: Discriminator gives values from 0 to 1" in caplog.text
        assert "remove its last sigmoid" in caplog.text


def test_the_hash_follows_the_text(tmp_path: Path) -> None:
    first, again = load_text(RECIPE, tmp_path), load_text(RECIPE, tmp_path)
    other = load_text(RECIPE + "\n", tmp_path)
    assert first.sha256 == again.sha256
    assert first.sha256 != other.sha256


def test_weights_depend_on_the_seed_alone(tmp_path: Path) -> None:
    bars = load_text(RECIPE, tmp_path)
    outside = torch.get_rng_state()
    first = build_model(bars.models.generator, 3).state_dict()
    torch.testing.assert_close(torch.get_rng_state(), outside, rtol=0, atol=0)
    torch.rand(7)
    again = build_model(bars.models.generator, 3).state_dict()
    other = build_model(bars.models.generator, 4).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)
