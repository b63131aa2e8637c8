"""The Inception network of FID (Heusel et al. 2017) and of the Inception score.

It is torch-fidelity's InceptionV3, with the weights of TensorFlow's 2015-12-05 release: the network
of the published figures. Nothing is downloaded here.
"""

import importlib
import importlib.util
import io
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor, nn

from mdgan.data.images import float_to_pixels
from mdgan.errors import BadInput, reason_of
from mdgan.gan.randomness import RandomState
from mdgan.metrics.extractor import CPU, Extractor, read_bytes, shortened

SHA256 = "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2"
"""The SHA-256 of weights-inception-2015-12-05-6726825d.pth, torch-fidelity's release v0.2.0."""

_URL = (
    "https://github.com/toshas/torch-fidelity/releases/download/v0.2.0/"
    "weights-inception-2015-12-05-6726825d.pth"
)


class _Inception(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The pooled 2,048 features and the 1,008 logits without bias of [n, 1 or 3, H, W]."""
        pixels = float_to_pixels(images)
        if pixels.shape[1] == 1:
            pixels = pixels.expand(-1, 3, -1, -1)
        features, logits = self.network(pixels)
        return features, logits


def inception(weights: Path, sha256: str = SHA256) -> Extractor:
    """The Inception network with weights from a file; grey images are given as RGB.

    Args:
        weights: the file, compared with `sha256` before anything in it is interpreted, and then
            read as tensors only.

    Raises:
        BadInput: torch-fidelity is not installed; the file is missing or damaged,
            or has another SHA-256.
    """
    content = read_weights(weights, sha256)
    fidelity = importlib.import_module("torch_fidelity.feature_extractor_inceptionv3")
    network = _build(fidelity.FeatureExtractorInceptionV3, weights, content)
    return Extractor(
        kind="inception",
        name="Inception",
        sha256=sha256,
        shape=None,
        num_features=2048,
        num_classes=1008,
        accuracy=None,
        network=_Inception(network).eval(),
        num_at_once=32,
    )


def read_weights(weights: Path, sha256: str = SHA256) -> bytes:
    """The bytes of the file with the weights.

    Raises:
        BadInput: torch-fidelity is not installed, or the file is missing or has
            another SHA-256.
    """
    if importlib.util.find_spec("torch_fidelity") is None:
        raise BadInput(
            f"--inception-weights {weights}: the Inception network needs torch-fidelity; install "
            "it with pip install 'mdgan[inception]'"
        )
    content, found = read_bytes(weights, "--inception-weights")
    if found != sha256:
        raise BadInput(
            f"--inception-weights {weights}: SHA-256 is {shortened(found)}, must be "
            f"{shortened(sha256)}; download it again from {_URL}"
        )
    return content


def _build(kind: Any, weights: Path, content: bytes) -> nn.Module:
    try:
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        # The constructor reads a file with torch.load, which is not safe, or else it downloads
        # one. So it is given a file in memory that holds only the tensors that were just read.
        tensors_only = io.BytesIO()
        torch.save(state, tensors_only)
        tensors_only.seek(0)
        with RandomState(0, CPU).in_place():
            network: nn.Module = kind(
                "inception-v3-compat", ["2048", "logits_unbiased"], tensors_only
            )
    except (RuntimeError, ValueError, TypeError, EOFError, UnpicklingError) as error:
        raise BadInput(
            f"--inception-weights {weights}: not the weights of this network "
            f"({reason_of(error)}); download it from {_URL}"
        ) from error
    return network
