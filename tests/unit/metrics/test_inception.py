"""The Inception network with weights of the real architecture, drawn at random."""

import hashlib
import importlib
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from mdgan.metrics.chosen import pack, unpack
from mdgan.metrics.extractor import Extractor
from mdgan.metrics.network_files import SHA256, inception
from tests.unit.metrics.small import refusal_of

MODULE = "torch_fidelity.feature_extractor_inceptionv3"


class Weights(NamedTuple):
    path: Path
    sha256: str
    reference: nn.Module


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Weights:
    pytest.importorskip("torch_fidelity")
    fidelity: Any = importlib.import_module(MODULE)

    class Unloaded(fidelity.FeatureExtractorInceptionV3):  # type: ignore[misc]  # it has no types
        def load_state_dict(self, *_: object) -> None:
            """The weights stay as they were drawn."""

    path = tmp_path_factory.mktemp("inception") / "weights.pth"
    torch.save({}, path)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network: nn.Module = Unloaded("reference", ["2048", "logits_unbiased"], path)
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):  # as initialised, 94 layers shrink all to 1e-10
                nn.init.constant_(module.weight, 1.6)
    torch.save(network.state_dict(), path)
    return Weights(path, hashlib.sha256(path.read_bytes()).hexdigest(), network)


@pytest.fixture(scope="module")
def extractor(weights: Weights) -> Extractor:
    return inception(weights.path, weights.sha256)


def test_features_and_probabilities_are_torch_fidelitys(
    weights: Weights, extractor: Extractor
) -> None:
    assert extractor.describe() == {
        "name": "Inception",
        "sha256": weights.sha256,
        "features": 2048,
        "classes": 1008,
        "accuracy": None,
    }
    pixels = torch.tensor([[0, 255], [127, 3]], dtype=torch.uint8).repeat(2, 3, 4, 4)
    pixels[1] //= 2
    values, logits = weights.reference(pixels)
    features = extractor(pixels.float() / 127.5 - 1)
    assert torch.equal(features.values, values.double())
    assert features.probabilities is not None
    torch.testing.assert_close(features.probabilities, logits.double().softmax(1))
    assert values.std(0).mean() > 1e-6  # else the comparison says nothing
    grey = pixels[:1, :1].float() / 127.5 - 1
    torch.testing.assert_close(extractor(grey).values, features.values[:1], rtol=0, atol=1e-5)


def test_another_file_is_refused_before_it_is_opened(tmp_path: Path) -> None:
    class Payload:
        def __reduce__(self) -> tuple[Callable[[str, str], object], tuple[str, str]]:
            return open, (str(tmp_path / "ran"), "w")

    path = tmp_path / "weights.pth"
    path.write_bytes(pickle.dumps(Payload(), protocol=2))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    message = refusal_of(lambda: inception(path))
    assert f"SHA-256 is {digest[:12]}…, must be {SHA256[:12]}…" in message
    assert "weights-inception-2015-12-05-6726825d.pth" in message
    # Even if its hash is as wanted, nothing in it is called.
    assert "not the weights of this network" in refusal_of(lambda: inception(path, digest))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("content", [{"a": torch.zeros(2)}, [1, 2], {}])
def test_weights_of_another_network(content: object, tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    torch.save(content, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    message = refusal_of(lambda: inception(path, digest))
    assert str(path) in message
    assert "not the weights of this network" in message


def test_torch_fidelity_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch_fidelity", None)
    assert "pip install 'mdgan[inception]'" in refusal_of(
        lambda: inception(tmp_path / "weights.pth")
    )


def test_it_does_not_travel(weights: Weights, extractor: Extractor, tmp_path: Path) -> None:
    fields, tensors = pack(extractor)
    assert tensors == {}
    torch.manual_seed(4)
    state = torch.get_rng_state()
    assert unpack(fields, tensors, weights.path).describe() == extractor.describe()
    assert torch.equal(torch.get_rng_state(), state)
    message = refusal_of(lambda: unpack(fields, tensors, None))
    assert f"Inception (SHA-256 {weights.sha256[:12]}…) does not travel" in message
    assert "--inception-weights FILE" in message
    other = tmp_path / "other.pth"
    other.write_bytes(b"other")
    message = refusal_of(lambda: unpack(fields, tensors, other))
    assert weights.sha256[:12] in message
    assert hashlib.sha256(b"other").hexdigest()[:12] in message
