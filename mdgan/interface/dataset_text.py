"""The dataset file of a run whose samples or models are objects of a Python program."""

import hashlib
import inspect
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cloudpickle
from torch import nn

from mdgan.data.dataset_file import DatasetFile
from mdgan.data.handed import remember, remembered
from mdgan.errors import BadInput, reason_of
from mdgan.interface.data import Data, Model
from mdgan.interface.source import text_defining
from mdgan.samples.contract import Shape


def check_model(name: str, build: object) -> None:
    """Checks that something can make models."""
    if isinstance(build, nn.Module):
        raise BadInput(
            f"{name}: is one model, but each worker needs its own; give the class, or a function "
            "that makes one"
        )
    if not callable(build):
        raise BadInput(f"{name}: must be a class, or a function, that makes a model")


def dataset_text(
    samples: str,
    shape: Shape,
    z_dim: int,
    models: Mapping[str, Model],
    registered: Mapping[str, Any],
) -> tuple[str, bytes]:
    """The text of a dataset file with the user's models in it, and what the user has registered.

    Models that cannot be written down are handed to the run's processes as they are. The file has
    their source, for its readers alone.

    Args:
        samples: the lines that define Partitioner and, if there are held-out samples, HeldOut.
        models: Generator and Discriminator, or none.

    Returns:
        The text, and the models as `mdgan.data.handed` takes them; empty if they are in the text.
    """
    for name, build in models.items():
        check_model(name.lower(), build)
    content = b""
    try:
        own_code = text_defining({**models, **registered})
    except (ValueError, OSError, SyntaxError):
        own_code, content = _handed_over(models, registered)
    own = [path for path in sys.path if path and not path.startswith((sys.prefix, sys.base_prefix))]
    paths = json.dumps([str(Path(path).resolve()) for path in [*own, "."]])
    lines = [f"SHAPE = {tuple(shape)}", *([f"Z_DIM = {z_dim}"] if models else [])]
    text = _TEXT.format(paths=paths, samples=samples, sizes="\n".join(lines), models=own_code)
    return text, content


def _handed_over(models: Mapping[str, Model], registered: Mapping[str, Any]) -> tuple[str, bytes]:
    """Lines that ask for models by a token, and the models."""
    try:
        lines = [text_defining(registered)]
    except (ValueError, OSError, SyntaxError) as error:
        raise BadInput(
            f"{', '.join(registered)}: cannot be handed to the processes of the run "
            f"({reason_of(error)}); make them in a module of their own"
        ) from error
    try:
        token = hashlib.sha256(cloudpickle.dumps(dict(models))).hexdigest()[:16]
        content = cloudpickle.dumps({token: dict(models)})
    except Exception as error:  # the user's own objects may raise anything
        raise BadInput(
            f"{', '.join(models).lower()}: cannot be handed to the processes of the run "
            f"({type(error).__name__}: {reason_of(error)}); make them in a module of their own"
        ) from error
    remember(token, models)
    lines += ["from mdgan.data.handed import handed", f'HANDED = "{token}"']
    for name, build in models.items():
        lines += [*_source_of(build), f"def {name}():\n    return handed(HANDED, {name!r})()"]
    return "\n".join(lines), content


def _source_of(build: object) -> list[str]:
    try:
        source = inspect.getsource(build)  # type: ignore[arg-type] # it says what it cannot read
    except (TypeError, OSError):
        source = repr(build)
    return [f"# {line}".rstrip() for line in source.splitlines()]


def token_of(file: Path) -> str | None:
    """By which a run's dataset file asks for models that were handed over; None if it has text."""
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    found = re.search(r'^HANDED = "([0-9a-f]{16})"$', text, re.MULTILINE)
    return found[1] if found else None


def handed_again(file: Path) -> bytes:
    """The models that a run's file asks for, as far as this program has them; else empty."""
    token = token_of(file)
    models = None if token is None else remembered(token)
    return b"" if models is None else cloudpickle.dumps({token: models})


def samples_of(data: Data, num_classes: int | None, *, privately: bool = False) -> str:
    """The lines of a dataset file that read what `Data` has written; see `Data.known_as`."""
    lines = [
        "from mdgan.data.arrays import Arrays",
        f'SAMPLES = "{data.known_as(privately=privately)}"',
        f"NUM_CLASSES = {num_classes}",
    ]
    for kind, what in (("Partitioner", "train"), ("HeldOut", "held_out")):
        if what in data.parts:
            lines.append(f'class {kind}(Arrays):\n    which = "{what}"')
    return "\n".join(lines)


def samples_of_file(file: DatasetFile, datasets_dir: str | None, *, models: bool) -> str:
    """The lines of a dataset file that take the samples of another, and its models if wanted."""
    lines = [
        "from mdgan.data.dataset_file import load",
        f"_file = load({file.name!r}, {datasets_dir!r})",
        "Partitioner, HeldOut = _file.partitioner, _file.held_out",
        "NUM_CLASSES = _file.num_classes",
    ]
    if models:
        lines += [
            "Generator, Discriminator = _file.models.generator, _file.models.discriminator",
            "DEFAULTS = dict(_file.defaults)",
        ]
    return "\n".join(lines)


_TEXT = '''"""Models of a Python program; `mdgan.train` wrote this file for its run."""

import sys

{samples}

sys.path += [path for path in {paths} if path not in sys.path]  # for models that lie in modules
KEPT = True
{sizes}

{models}
'''
