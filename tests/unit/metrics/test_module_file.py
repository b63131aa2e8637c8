"""A user's own extractor: good files work, and bad ones are refused in one line."""

import hashlib
import pickle
from pathlib import Path

import pytest
import torch
from torch import nn

from mdgan.gan.independence import why_dependent
from mdgan.metrics.classifier import Classifier, random_network
from mdgan.metrics.network_files import from_file
from tests.unit.metrics.small import SHAPE, refusal_of

PYTHON = """
import torch
from torch import nn

class Pixels(nn.Module):
    def forward(self, images):
        return images.flatten(1)

class Dropping(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(16, 5), nn.Dropout(0.5))

class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(16, 3)

    def forward(self, images):
        return images.flatten(1), self.head(images.flatten(1))

class Mixing(nn.Sequential):
    def __init__(self):
        norm = nn.BatchNorm1d(5, track_running_stats=False)
        super().__init__(nn.Flatten(), nn.Linear(16, 5), norm)

class Needing(nn.Module):
    def __init__(self, argument):
        super().__init__()

def function():
    return 5

number = 5
"""

IMAGES = torch.rand(9, *SHAPE, generator=torch.Generator().manual_seed(0)) * 2 - 1


@pytest.fixture
def python(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(PYTHON)
    return tmp_path / "mine.py"


def script(model: nn.Module, path: Path) -> Path:
    with pytest.warns(FutureWarning, match="deprecated"):
        traced = torch.jit.trace(  # type: ignore[no-untyped-call]  # torch leaves it unannotated
            model.eval(), torch.zeros(2, *SHAPE)
        )
    traced.save(path)
    return path


def refusal(path: Path, shape: tuple[int, int, int] = SHAPE) -> str:
    message = refusal_of(lambda: from_file(path, shape))
    assert str(path).split(":")[0] in message
    return message


def test_class_in_a_python_file(python: Path) -> None:
    extractor = from_file(Path(f"{python}:Pixels"), SHAPE)
    assert (extractor.num_features, extractor.num_classes) == (16, 0)
    assert torch.equal(extractor(IMAGES).values, IMAGES.flatten(1).double())
    file_hash = hashlib.sha256(python.read_bytes()).hexdigest()
    assert extractor.describe() == {
        "name": "mine.py:Pixels",
        "sha256": f"{file_hash}:Pixels",
        "features": 16,
        "classes": 0,
        "accuracy": None,
    }


def test_initial_weights_are_the_same_everywhere_and_random_numbers_stay(python: Path) -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = from_file(Path(f"{python}:Dropping"), SHAPE)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    again = from_file(Path(f"{python}:Dropping"), SHAPE)
    assert torch.equal(first(IMAGES).values, again(IMAGES).values)
    assert not (first(IMAGES).values == 0).any()  # dropout is off


def test_torchscript(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 5), nn.Tanh())
    path = script(model, tmp_path / "net.pt")
    extractor = from_file(path, SHAPE)
    with torch.no_grad():
        expected = model(IMAGES).double()
    torch.testing.assert_close(extractor(IMAGES).values, expected, rtol=0, atol=1e-6)
    assert extractor.name == "net.pt"
    assert extractor.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_network_that_judges_samples_by_each_other(python: Path, tmp_path: Path) -> None:
    message = refusal(Path(f"{python}:Mixing"))
    assert message.startswith(
        f"--extractor {python}:Mixing: the features of a sample depend on the "
    )
    assert "(layer 2, BatchNorm1d)" in message
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 5), nn.Softmax(0))
    assert "must judge each sample by itself" in refusal(script(model, tmp_path / "net.pt"))


@pytest.mark.parametrize("shape", [SHAPE, (1, 8, 8), (30,)])
def test_networks_of_mdgan_judge_each_sample_by_itself(shape: tuple[int, ...]) -> None:
    classifier, random = Classifier(shape, 3).eval(), random_network(shape).network
    with torch.no_grad():
        assert not why_dependent(classifier, lambda samples: classifier(samples), shape)
        assert not why_dependent(random, lambda samples: [random(samples)], shape)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Absent", "the file defines no Absent"),
        ("Needing", "cannot be built: TypeError"),
        ("function", "makes int, must make an nn.Module"),
        ("number", "cannot be built: TypeError"),
    ],
)
def test_wrong_name(name: str, says: str, python: Path) -> None:
    assert says in refusal(Path(f"{python}:{name}"))


def test_a_file_that_cannot_be_used(python: Path) -> None:
    wrong = PYTHON.replace("return images.flatten(1)\n", "return images\n")
    for text, says in (("class Pixels(:\n", "SyntaxError"), (wrong, "must give features [n, d]")):
        python.write_text(text)
        assert says in refusal(Path(f"{python}:Pixels"))


@pytest.mark.parametrize(
    "content", [b"", b"no\nmodel", b"PK\x03\x04 not really a zip", pickle.dumps(nn.Flatten())]
)
def test_damaged_torchscript(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "net.pt"
    path.write_bytes(content)
    assert "write it with torch.jit.save" in refusal(path)


@pytest.mark.parametrize("name", ["net.pt2", "net.pth", "net", "mine.py", "mine.py:", "a.py:b c"])
def test_files_of_other_kinds(name: str, tmp_path: Path) -> None:
    message = refusal(tmp_path / name)
    assert "must be a TorchScript file ending in .pt, or FILE.py:NAME" in message
    assert ("torch.jit.save" in message) == (name == "net.pt2")


@pytest.mark.parametrize("name", ["absent.pt", "absent.py:Net"])
def test_absent(name: str, tmp_path: Path) -> None:
    assert "cannot be read (No such file or directory)" in refusal(tmp_path / name)
