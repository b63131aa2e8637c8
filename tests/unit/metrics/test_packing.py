"""What is unpacked elsewhere gives the same features, or is refused in one line."""

import json
from pathlib import Path

import pytest
import torch

from mdgan.errors import BadInput
from mdgan.metrics.classifier import train_classifier
from mdgan.metrics.extractor import Extractor
from mdgan.metrics.network_files import from_file
from mdgan.metrics.packing import pack, unpack
from tests.unit.metrics.small import SHAPE, MoreStripes, Stripes

PYTHON = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(16, 5))

class Other(Net):
    pass
"""


@pytest.fixture(scope="module")
def classifier() -> Extractor:
    return train_classifier("stripes", Stripes(), MoreStripes())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(PYTHON)
    return tmp_path / "mine.py"


IMAGES = MoreStripes().images(torch.arange(30))


def test_the_classifier_travels_with_its_weights(classifier: Extractor) -> None:
    fields, tensors = pack(classifier)
    state = torch.get_rng_state()
    sent = {name: tensor.clone() for name, tensor in tensors.items()}
    arrived = unpack(json.loads(json.dumps(fields)), sent, None)
    for tensor in sent.values():
        tensor.zero_()
    assert torch.equal(torch.get_rng_state(), state)
    assert arrived.describe() == classifier.describe()
    there, here = arrived(IMAGES), classifier(IMAGES)
    assert torch.equal(there.values, here.values)
    assert there.probabilities is not None
    assert here.probabilities is not None
    assert torch.equal(there.probabilities, here.probabilities)


def test_changed_weights_are_refused(classifier: Extractor) -> None:
    fields, tensors = pack(classifier)
    changed = {**tensors, "logits.bias": tensors["logits.bias"] + 1e-6}
    with pytest.raises(BadInput, match="classifier of stripes that arrived has SHA-256") as caught:
        unpack(fields, changed, None)
    assert classifier.sha256[:12] in str(caught.value)


def test_weights_that_do_not_fit_are_refused(classifier: Extractor) -> None:
    fields, tensors = pack(classifier)
    for damaged in (
        {},
        {**tensors, "logits.bias": torch.zeros(7)},
        {**tensors, "another": torch.zeros(7)},
    ):
        with pytest.raises(BadInput, match="does not fit its architecture") as caught:
            unpack(fields, damaged, None)
        assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("change", [{"architecture": "0"}, {"kind": "crystal ball"}])
def test_another_version_is_refused(change: dict[str, str], classifier: Extractor) -> None:
    fields, tensors = pack(classifier)
    with pytest.raises(BadInput, match="install the same version of mdgan on every machine"):
        unpack({**fields, **change}, tensors, None)


def test_a_users_file_stays_where_it_is(file: Path) -> None:
    extractor = from_file(Path(f"{file}:Net"), SHAPE)
    fields, tensors = pack(extractor)
    assert tensors == {}
    arrived = unpack(json.loads(json.dumps(fields)), tensors, Path(f"{file}:Net"))
    assert torch.equal(arrived(IMAGES).values, extractor(IMAGES).values)


def test_a_users_file_that_is_missing_or_another(file: Path, tmp_path: Path) -> None:
    extractor = from_file(Path(f"{file}:Net"), SHAPE)
    fields, tensors = pack(extractor)
    with pytest.raises(BadInput, match=r"mine\.py:Net .* does not travel; copy its file"):
        unpack(fields, tensors, None)
    with pytest.raises(BadInput, match=r"…:Other, the server's is .*…:Net"):
        unpack(fields, tensors, Path(f"{file}:Other"))
    ran = tmp_path / "ran"
    file.write_text(PYTHON + f"\nopen({str(ran)!r}, 'w').close()\n")
    with pytest.raises(BadInput, match="copy the server's file") as caught:
        unpack(fields, tensors, Path(f"{file}:Net"))
    assert extractor.sha256[:12] in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert not ran.exists()
