"""A user's own extractor: a TorchScript file, or a class in a Python file.

Either is a program. TorchScript, too, runs what is in the file as soon as it is loaded, and its
operators can read and write files. So no file comes from another machine: a user names it, or the
settings of a run that a user opens do.
"""

import io
import warnings
from pathlib import Path

import torch
from torch import nn

from mdgan.data.dataset_file import import_file
from mdgan.data.images import Shape
from mdgan.errors import BadInput, reason_of
from mdgan.gan.randomness import RandomState
from mdgan.metrics.extractor import (
    CPU,
    Extractor,
    affordable_at_once,
    read_bytes,
    run_network,
)

_KINDS = "a TorchScript file ending in .pt, or FILE.py:NAME with the name of an nn.Module class"


def digest(path: Path) -> str:
    """SHA-256 of the file's bytes, and of the class's name in it if it is Python.

    Raises:
        BadInput: it cannot be read or is no extractor file.
    """
    file, name = _split(path)
    _, sha256 = read_bytes(file)
    return sha256 + (f":{name}" if name else "")


def from_file(path: Path, shape: Shape) -> Extractor:
    """The user's extractor, tried on two images.

    It takes float32 [n, C, H, W] in [−1, 1] and gives features [n, d], or features and logits
    [n, K]. It runs in evaluation mode. Either kind of file is run like any of the user's programs.

    Args:
        path: `FILE.pt`, read by `torch.jit.load`, or `FILE.py:NAME`, a class that is called without
            arguments and loads its own weights. Exported programs (.pt2) are refused: torch
            unpickles parts of them.

    Raises:
        BadInput: it cannot be read or run, or returns something else.
    """
    file, name = _split(path)
    sha256 = digest(path)
    with RandomState(0, CPU).in_place():
        network = _from_python(file, name) if name else _from_torchscript(file)
        network.eval()
        for parameter in network.parameters():
            parameter.requires_grad_(False)
        with torch.no_grad():
            values, logits = run_network(f"--extractor {path}", network, torch.zeros(2, *shape))
    return Extractor(
        kind="file",
        name=f"{file.name}:{name}" if name else file.name,
        sha256=sha256,
        shape=shape,
        num_features=values.shape[1],
        num_classes=0 if logits is None else logits.shape[1],
        accuracy=None,
        network=network,
        num_at_once=affordable_at_once(shape),
    )


def _split(path: Path) -> tuple[Path, str]:
    """The file, and the name of the class in it; an empty name if it is not a Python file."""
    file, colon, name = str(path).rpartition(":")
    if colon and file.endswith(".py") and name.isidentifier():
        return Path(file), name
    if path.suffix != ".pt":
        way_out = "; save it with torch.jit.save instead" if path.suffix == ".pt2" else ""
        raise BadInput(f"--extractor {path}: must be {_KINDS}{way_out}")
    return path, ""


def _from_torchscript(file: Path) -> nn.Module:
    content, _ = read_bytes(file)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # deprecated; what is not unpickles
            network: nn.Module = torch.jit.load(  # type: ignore[no-untyped-call]  # torch leaves it unannotated
                io.BytesIO(content), map_location="cpu"
            )
    except (RuntimeError, ValueError) as error:
        raise BadInput(
            f"--extractor {file}: no TorchScript file ({reason_of(error)}); write it with "
            "torch.jit.save"
        ) from error
    return network


def _from_python(file: Path, name: str) -> nn.Module:
    module = import_file(file, "extractor", f"--extractor {file}:{name}")
    try:
        kind = getattr(module, name, None)
        network = None if kind is None else kind()
    except Exception as error:  # the user's own code may raise anything; show the user what it said
        raise BadInput(
            f"--extractor {file}:{name}: cannot be built: {type(error).__name__}: "
            f"{reason_of(error)}"
        ) from error
    if network is None:
        raise BadInput(f"--extractor {file}:{name}: the file defines no {name}")
    if not isinstance(network, nn.Module):
        raise BadInput(
            f"--extractor {file}:{name}: makes {type(network).__name__}, must make an nn.Module"
        )
    return network
