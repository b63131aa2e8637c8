"""Loads networks from files: Inception's weights, and a user's own extractor.

Inception (of FID, Heusel et al. 2017, and of the Inception score) is torch-fidelity's InceptionV3,
with the weights of TensorFlow's 2015-12-05 release: the network of the published figures. mdgan
downloads nothing.

A user's own extractor, a TorchScript file or a class in a Python file, is a program. TorchScript
also runs the content of a file as soon as it is loaded, and its operators can read and write files.
So no file comes from another machine: the user names it, or the settings of a run that the user
opens.
"""

import hashlib
import importlib
import importlib.util
import io
import warnings
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor, nn

from mdgan.data.dataset_file import import_file
from mdgan.errors import BadInput, reason_of, users_code
from mdgan.gan.independence import why_dependent
from mdgan.gan.randomness import RandomState
from mdgan.metrics.extractor import CPU, Extractor, affordable_at_once, run_network
from mdgan.metrics.settings import INCEPTION_URL
from mdgan.samples.contract import Shape
from mdgan.samples.pictures.reading import float_to_pixels
from mdgan.spelling import Mention, flag
from mdgan.storage.foreign_file import open_regular

SHA256 = "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2"
"""The SHA-256 of weights-inception-2015-12-05-6726825d.pth, torch-fidelity's release v0.2.0."""

_EXTRACTOR = flag("extractor")
_KINDS = "a TorchScript file ending in .pt, or FILE.py:NAME with the name of an nn.Module class"


def _read(path: Path, asked: Mention, way_out: str = "") -> tuple[bytes, str]:
    """A file's content and its SHA-256, read once, so that the checked bytes are the used ones."""
    try:
        with open_regular(path) as file:
            content = file.read()
    except OSError as error:
        raise BadInput(asked, f"cannot be read ({error.strerror})", way_out) from error
    return content, hashlib.sha256(content).hexdigest()


def shortened(sha256: str) -> str:
    """12 digits of a SHA-256, enough to tell files apart by eye, and the name after its colon."""
    digits, colon, name = sha256.partition(":")
    return f"{digits[:12]}…{colon}{name}"


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
    """The Inception network with weights from a file; it converts grey images to RGB.

    Its SHA-256 is checked before anything in the file is interpreted; torch reads only tensors.
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
    """The bytes of the file with the weights; errors as `inception`."""
    asked = flag("inception_weights", weights)
    if importlib.util.find_spec("torch_fidelity") is None:
        why = "the Inception network needs torch-fidelity"
        raise BadInput(asked, why, "install it with pip install 'mdgan[inception]'")
    content, actual = _read(weights, asked, f"download it from {INCEPTION_URL}")
    if actual != sha256:
        why = f"SHA-256 is {shortened(actual)}, must be {shortened(sha256)}"
        raise BadInput(asked, why, f"download it again from {INCEPTION_URL}")
    return content


def _build(kind: Any, weights: Path, content: bytes) -> nn.Module:
    try:
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        # The constructor would download a file, or read one with torch.load, which is not safe.
        # So it gets a file in memory with only the tensors that were just read.
        tensors_only = io.BytesIO()
        torch.save(state, tensors_only)
        tensors_only.seek(0)
        with RandomState(0, CPU).in_place():
            network: nn.Module = kind(
                "inception-v3-compat", ["2048", "logits_unbiased"], tensors_only
            )
    except (RuntimeError, ValueError, TypeError, EOFError, UnpicklingError) as error:
        why = f"not the weights of this network ({reason_of(error)})"
        way_out = f"download it from {INCEPTION_URL}"
        raise BadInput(flag("inception_weights", weights), why, way_out) from error
    return network


def from_file(path: Path, shape: Shape, setting: Mention = _EXTRACTOR) -> Extractor:
    """Loads the user's network and tries it on images; it must judge each image by itself.

    It takes float32 [n, *shape] in [−1, 1] and returns features [n, d], or features and logits
    [n, K], in evaluation mode. Either kind of file runs like any of the user's programs.

    Args:
        path: `FILE.pt`, read by `torch.jit.load`, or `FILE.py:NAME`, a class that is called without
            arguments and loads its own weights. Exported programs (.pt2) are refused: torch
            unpickles parts of them.
        setting: the setting that names the file, for messages.
    """
    asked = _given(setting, path)
    file, name = _split(path, asked)
    content, sha256 = _read(file, _given(setting, file))
    with RandomState(0, CPU).in_place():
        network = _from_python(file, name, asked) if name else _from_torchscript(content, asked)
        network.eval()
        for parameter in network.parameters():  # TorchScript modules lack requires_grad_
            parameter.requires_grad_(False)
        with torch.no_grad():
            values, logits = run_network(asked, network, torch.zeros(2, *shape))
            _check_independence(asked, network, shape)
    return Extractor(
        kind="file",
        name=f"{file.name}:{name}" if name else file.name,
        sha256=f"{sha256}:{name}" if name else sha256,
        shape=shape,
        num_features=values.shape[1],
        num_classes=0 if logits is None else logits.shape[1],
        accuracy=None,
        network=network,
        num_at_once=affordable_at_once(shape),
    )


def _check_independence(asked: Mention, network: nn.Module, shape: Shape) -> None:
    """Refuses a network if the features of a sample depend on other samples of the batch."""

    def judge(samples: Tensor) -> list[Tensor]:
        features, logits = run_network(asked, network, samples)
        return [features] if logits is None else [features, logits]

    for place, feature in enumerate(judge(torch.rand(2, *shape) * 2 - 1)[0][0].flatten()):
        if not feature.isfinite():
            raise BadInput(asked, f"features are not finite, first feature {place}", "name another")
    if why := why_dependent(network, judge, shape):
        raise BadInput(
            asked,
            f"the features of a sample depend {why}",
            "a network must judge each sample by itself, so replace the layer (BatchNorm needs "
            "track_running_stats=True)",
        )


def _given(setting: Mention, path: Path) -> Mention:
    """The setting with its file, for messages."""
    return Mention(f"{setting!s} {path}", f"{setting.in_python}={path}", setting.setting, str(path))


def _split(path: Path, asked: Mention) -> tuple[Path, str]:
    """The file, and the name of the class in it; an empty name if it is not a Python file."""
    file, colon, name = str(path).rpartition(":")
    if colon and file.endswith(".py") and name.isidentifier():
        return Path(file), name
    if path.suffix != ".pt":
        way_out = "save it with torch.jit.save instead" if path.suffix == ".pt2" else ""
        raise BadInput(asked, f"must be {_KINDS}", way_out)
    return path, ""


def _from_torchscript(content: bytes, asked: Mention) -> nn.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # deprecated; what is not unpickles
            network: nn.Module = torch.jit.load(  # type: ignore[no-untyped-call]  # torch leaves it unannotated
                io.BytesIO(content), map_location="cpu"
            )
    except (RuntimeError, ValueError) as error:
        raise BadInput(
            asked, f"no TorchScript file ({reason_of(error)})", "write it with torch.jit.save"
        ) from error
    return network


def _from_python(file: Path, name: str, asked: Mention) -> nn.Module:
    module = import_file(file, "extractor", asked)
    with users_code(f"{asked}: cannot be built"):
        kind = getattr(module, name, None)
        network = None if kind is None else kind()
    if network is None:
        raise BadInput(asked, f"the file defines no {name}")
    if not isinstance(network, nn.Module):
        raise BadInput(asked, f"makes {type(network).__name__}, must make an nn.Module")
    return network
