"""Finding, loading and checking dataset files; each mistake of a user gets one line."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.datasets import load_digits

from mdgan.data.dataset_file import DatasetFile, check_defaults, load
from mdgan.data.shard import Shard
from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.gan.build import num_parameters
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


LINEAR, FLAT = "nn.Linear(Z_DIM, 16)", "nn.Flatten(), nn.Linear(16, 1)"
REFUSED = [
    *(
        (old, old.replace(name, "Other"), [f"lacks {name};", "Generator, Discriminator, SHAPE, Z_"])
        for name, old in {
            "Partitioner": "class Partitioner(",
            "Generator": "class Generator(",
            "Discriminator": "class Discriminator(",
            "Z_DIM": "Z_DIM = 5",
            "SHAPE": "SHAPE = (1, 4, 4)",
        }.items()
    ),
    (RECIPE, "", ["lacks Partitioner, Generator, Discriminator, SHAPE, Z_DIM;"]),
    ("Z_DIM = 5", "Z_DIM = = 5", ["SyntaxError", "line 10"]),
    ("Z_DIM = 5", "Z_DIM = 5\nimport absent_module", ["absent_module"]),
    ("Z_DIM = 5", "Z_DIM = 5\nraise ValueError('two\\nlines')", ["two lines"]),
    ("Z_DIM = 5", "Z_DIM = 5\nHeldOut = 5", ["HeldOut = 5 must be a Partitioner"]),
    *(
        ("SHAPE = (1, 4, 4)", f"SHAPE = {shape}", [f"SHAPE = {shape} must be a tuple of whole"])
        for shape in ("4", "[1, 4, 4]", "(1, 4, 0)", "(1, 4, -4)", "(1, 4.0, 4)")
    ),
    *(
        ("Z_DIM = 5", f"Z_DIM = {z_dim}", [f"Z_DIM = {z_dim} must be a positive integer"])
        for z_dim in ("0", "-5", "5.0", "'5'", "None")
    ),
    *(
        ("Z_DIM = 5", f"Z_DIM = 5\nNUM_CLASSES = {number}", [f"= {number} must be a whole number"])
        for number in ("0", "-1", "2.0", "True", "'10'", "100001")
    ),
    (
        *("nn.Unflatten(1, SHAPE)", "nn.Unflatten(1, (1, 2, 8))"),
        ["Generator gives [2, 1, 2, 8]", "SHAPE says [2, 1, 4, 4]"],
    ),
    (LINEAR, "nn.Linear(7, 16)", ["Generator fails on a batch [b, Z_DIM=5]: RuntimeError"]),
    (LINEAR, "nn.Linear(Z_DIM)", ["Generator fails", "TypeError"]),
    (FLAT, "nn.Flatten(), nn.Linear(17, 1)", ["Discriminator fails on a batch [b, *(1, 4, 4)]: R"]),
    *(
        (FLAT, layers, [f"Discriminator gives {shape} for 2 samples, must give one logit a sample"])
        for layers, shape in {
            "nn.Flatten(), nn.Linear(16, 2)": [2, 2],
            "nn.Flatten(0), nn.Linear(32, 1)": [1],
            "nn.Flatten(0), nn.Linear(32, 2), nn.Unflatten(0, (1, 2))": [1, 2],
            "nn.Linear(4, 1)": [2, 1, 4, 1],
        }.items()
    ),
    (
        f"super().__init__({FLAT})\n",
        f"super().__init__({FLAT})\n\n    def forward(self, images):\n        return [0.0, 0.0]\n",
        ["Discriminator returns list, not a tensor"],
    ),
]


@pytest.mark.parametrize(("old", "new", "says"), REFUSED)
def test_what_a_file_may_not_say(old: str, new: str, says: list[str], tmp_path: Path) -> None:
    message = refusal(changed(old, new), tmp_path)
    for part in says:
        assert part in message


def test_a_file_without_held_out_samples(tmp_path: Path) -> None:
    bars = load_text(RECIPE, tmp_path)
    assert bars.held_out is None
    with pytest.raises(BadInput, match="defines no HeldOut") as caught:
        bars.open_held_out(tmp_path)
    assert str(bars.path) in str(caught.value)


def test_digits_are_held_out_by_class_and_at_random() -> None:
    digits, whole = load("digits", None), load_digits()
    trained, out = digits.open(Path()), digits.open_held_out(Path())
    assert (len(trained), len(out)) == (1438, 359)
    share = np.bincount(out.labels) / np.bincount(whole.target)
    assert share == pytest.approx([0.2] * 10, abs=0.006)
    pictures = [image.tobytes() for image in (whole.images.astype(np.float32) / 8 - 1)[:, None]]
    place_of = {picture: place for place, picture in enumerate(pictures)}
    places = []
    for part in (trained, out):
        images = part.images(torch.arange(len(part))).numpy()
        places.append([place_of[image.tobytes()] for image in images])
        assert part.labels.tolist() == whole.target[places[-1]].tolist()
    assert sorted(places[0] + places[1]) == list(range(1797))
    # By any period, the places are as likely as any others.
    for period in (2, 5, 10, 13):
        counts = np.bincount(np.array(places[1]) % period, minlength=period)
        assert stats.chisquare(counts).pvalue > 1e-3, period
    digest = hashlib.sha256(out.labels.numpy().tobytes()).hexdigest()
    assert digest.startswith("4e4a8e6b"), "the same everywhere"


def test_unknown_name_lists_what_there_is_and_suggests_the_nearest(tmp_path: Path) -> None:
    for name in ("bars", "_helper"):
        (tmp_path / f"{name}.py").write_text(RECIPE, encoding="utf-8")
    with pytest.raises(BadInput) as caught:
        load("mnits", str(tmp_path))
    message = str(caught.value)
    assert (
        "--dataset mnits: not found among bars, breast-cancer, celeba, cifar10, digits, folder, "
        "mnist, table, volumes; did you mean" in message
    )
    assert message.endswith("; did you mean 'mnist'?")


def test_datasets_dir_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such folder") as caught:
        load("digits", str(tmp_path / "absent"))
    assert str(tmp_path / "absent") in str(caught.value)


def test_a_users_file_comes_before_a_shipped_one(tmp_path: Path) -> None:
    (tmp_path / "digits.py").write_text(RECIPE, encoding="utf-8")
    assert load("digits", str(tmp_path)).shape == (1, 4, 4)
    assert load("digits", None).shape == (1, 8, 8)


def test_labels_beyond_the_number_of_classes(tmp_path: Path) -> None:
    text = changed("Z_DIM = 5", "Z_DIM = 5\nNUM_CLASSES = {}") + HELD_OUT
    bars = load_text(text.format(2), tmp_path)
    assert bars.num_classes == 2
    assert bars.open_held_out(tmp_path).labels.tolist() == [0, 1]
    assert len(bars.open(tmp_path)) == 12
    with pytest.raises(BadInput, match="HeldOut has label 1, but NUM_CLASSES = 1: labels are 0-0"):
        load_text(text.format(1), tmp_path).open_held_out(tmp_path)


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
        (f"{END}, nn.Flatten(0)", False),
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


def reading(statement: str, tmp_path: Path) -> DatasetFile:
    """The recipe, whose `read` begins with a statement."""
    signature = "def read(self, data_dir):\n"
    return load_text(changed(signature, f"{signature}        {statement}\n"), tmp_path)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("raise OSError('two\\n  lines')", "two lines"),
        ("raise KeyError", "KeyError"),
        ("return torch.zeros(0, 1, 4, 4), torch.zeros(0).long()", "no sample"),
        ("return torch.zeros(9, 1)", "read gives a tensor [9, 1]; it must return images"),
        ("return torch.zeros(2, 1), None", "read gives a tensor [2, 1], NoneType; it must"),
        ("return None", "read gives NoneType; it must return images [n, *shape] and labels"),
        ("from mdgan.errors import BadInput; raise BadInput('my own words')", "my own words"),
    ],
)
def test_data_that_cannot_be_read(statement: str, reason: str, tmp_path: Path) -> None:
    bars = reading(statement, tmp_path)
    with pytest.raises(BadInput) as caught:
        bars.open(tmp_path / "data")
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert reason in message
    if reason != "my own words":
        assert "--dataset bars:" in message
        assert str(tmp_path / "data") in message


PROMISING = "torch.zeros(64, 1, 4, 4)"


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("torch.int64", "torch.int32", "'s labels must be int64"),
        ("dtype=torch.int64", "dtype=torch.int64) - torch.tensor(1", "'s labels must be int64"),
        (PROMISING, "torch.zeros(64, 4, 4)", " gives torch.float32 [4, 4] a sample, must give"),
        (PROMISING, f"{PROMISING}.double()", "torch.float64"),
        (
            PROMISING,
            "torch.full((64, 1, 4, 4), 255.0)",
            "from 255 to 255, outside [−1, 1]; scale them, for example x / 127.5 - 1",
        ),
        (PROMISING, "torch.full((64, 1, 4, 4), -9.5)", "1]; scale them"),
        (PROMISING, "torch.full((64, 1, 4, 4), torch.nan)", "not finite"),
        (PROMISING, "torch.zeros(63, 1, 4, 4)", "63 images but 64 labels"),
    ],
)
def test_samples_that_break_the_promise(
    old: str, new: str, says: str, held_out: bool, tmp_path: Path
) -> None:
    good = f"{PROMISING}, torch.zeros(64, dtype=torch.int64)"
    what = "HeldOut" if held_out else "Partitioner"
    text = RECIPE + f"\n\nclass {what}(InMemoryPartitioner):\n    def read(self, data_dir):\n"
    text += f"        return {good.replace(old, new)}\n"
    dataset = load_text(text, tmp_path)
    with pytest.raises(BadInput) as caught:
        (dataset.open_held_out if held_out else dataset.open)(tmp_path)
    assert says in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    if says.startswith(("'s", " gives")):
        assert f"{what}{says}" in str(caught.value)
