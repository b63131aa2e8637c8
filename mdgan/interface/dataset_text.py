"""The dataset file of a run whose samples or models are objects of a Python program.

What lies in a module is imported there. What a script or a notebook defines is written down, with
all that it refers to, so that nothing has to be pickled and a reader of the run sees the models.
"""

import ast
import builtins
import hashlib
import inspect
import json
import linecache
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from textwrap import dedent
from types import CodeType, FunctionType, ModuleType
from typing import Any

import cloudpickle
from torch import nn

from mdgan.data.dataset_file import DatasetFile
from mdgan.data.handed import DYNAMIC, remember, remembered
from mdgan.errors import BadInput, cause_of, file_in_words, reason_of
from mdgan.interface.data import Data, Model
from mdgan.samples.contract import Shape


def check_model(name: str, build: object) -> None:
    """Checks that something can make models."""
    if isinstance(build, nn.Module):
        why = "is one model, but each worker needs its own"
        raise BadInput(name, why, "give the class, or a function that makes one")
    if not callable(build):
        raise BadInput(name, "must be a class, or a function, that makes a model")


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
    lines = [f"SHAPE = {tuple(shape)}"]
    if models:
        files = {"the program's models"}
        with suppress(TypeError, OSError):  # of a notebook, or no class or function
            files = {file_in_words(inspect.getfile(build)) for build in models.values()}
        lines += [f"Z_DIM = {z_dim}", f"MODELS_FROM = {' and '.join(sorted(files))!r}"]
    text = _TEXT.format(paths=paths, samples=samples, sizes="\n".join(lines), models=own_code)
    return text, content


def _handed_over(models: Mapping[str, Model], registered: Mapping[str, Any]) -> tuple[str, bytes]:
    """Lines that ask for models by a token, and the models."""
    try:
        lines = [text_defining(registered)]
    except (ValueError, OSError, SyntaxError) as error:
        raise _not_handed(registered, reason_of(error)) from error
    try:
        token = hashlib.sha256(cloudpickle.dumps(dict(models))).hexdigest()[:16]
        content = _pickled(token, models)
    except Exception as error:  # the user's own objects may raise anything
        why = cause_of(error, of_user=True)
        raise _not_handed([name.lower() for name in models], why) from error
    remember(token, models)
    lines += ["from mdgan.data.handed import handed", f'HANDED = "{token}"']
    for name, build in models.items():
        lines += [*_source_of(build), f"def {name}():\n    return handed(HANDED, {name!r})()"]
    return "\n".join(lines), content


def _not_handed(names: Iterable[str], why: str) -> BadInput:
    said = f"cannot be handed to the processes of the run ({why})"
    return BadInput(", ".join(names), said, "make them in a module of their own")


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
    models = remembered(token) if (token := token_of(file)) else None
    return _pickled(token, models) if token and models else b""


def _pickled(token: str, models: Mapping[str, Any]) -> bytes:
    """Models as `mdgan.data.handed` takes them, and the file that they are from, for errors."""
    codes = [getattr(getattr(build, "func", build), "__code__", None) for build in models.values()]
    files = {code.co_filename for code in codes if code is not None}
    file = file_in_words(files.pop()) if len(files) == 1 else DYNAMIC
    return bytes(cloudpickle.dumps({token: dict(models), DYNAMIC: file}))


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
            lines += [f"    class_names = {data.class_names!r}"] * bool(data.class_names)
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


_PLAIN = (bool, int, float, str, bytes, tuple, list, dict, set, type(None))


def text_defining(wanted: Mapping[str, object]) -> str:
    """Python text that defines names; ValueError if something cannot be written down."""
    text = _Text()
    for name, value in wanted.items():
        text.define(name, value)
    return "\n".join(text.lines)


class _Text:
    """Lines that define one name after the other."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._known: dict[str, object] = {}

    def define(self, name: str, value: object) -> None:
        if name in self._known:
            if self._known[name] is not value:
                raise ValueError(f"{name} stands for two things")
            return
        self._known[name] = value
        if isinstance(value, ModuleType):
            self.lines.append(f"import {value.__name__}" + _as(value.__name__, name))
        elif _is_importable(value):
            self.lines.append(_import_of(value, name))
        elif isinstance(value, FunctionType | type):
            self._write_down(name, value)
        elif isinstance(value, _PLAIN) and _is_literal(value):
            self.lines.append(f"{name} = {value!r}")
        else:
            raise ValueError(f"{name} is of type {type(value).__name__}; make it in a module")

    def _write_down(self, name: str, value: "FunctionType | type") -> None:
        node, names, file = _definition(value)
        found = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
        own = {n.id for n in found if not isinstance(n.ctx, ast.Load)}
        own |= {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}
        for other in sorted({n.id for n in found} - own - {node.name}):
            if other in names:
                self.define(other, names[other])
        self.lines += _as_it_stands(node, linecache.getlines(file), file)
        if name != node.name:
            self._known[node.name] = value
            self.lines.append(f"{name} = {node.name}")


def _as_it_stands(node: ast.FunctionDef | ast.ClassDef, lines: list[str], file: str) -> list[str]:
    """The lines of a definition, and where they stand; others if they cannot stand alone."""
    first = min(each.lineno for each in (node, *node.decorator_list)) - 1
    own = dedent("".join(lines[first : node.end_lineno])).splitlines()
    with suppress(SyntaxError):
        if ast.dump(ast.parse("\n".join(own))) == ast.dump(ast.Module([node], [])):
            return [f"# from {file_in_words(file)}, line {first + 1}, {len(own)} lines", *own]
    return [ast.unparse(node)]


def _definition(value: Any) -> tuple[ast.FunctionDef | ast.ClassDef, Mapping[str, Any], str]:
    """The syntax of a function or class, the names that it can refer to, and its file."""
    name = value.__name__
    if isinstance(value, FunctionType):
        if value.__closure__:
            raise ValueError(f"{name} uses variables of the function around it")
        code, names = value.__code__, value.__globals__
    else:
        code, names = _code_in(value), vars(sys.modules[value.__module__])
    tree = ast.parse("".join(linecache.getlines(code.co_filename, names)))
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name
        if node.lineno <= code.co_firstlineno + len(node.decorator_list)
        if code.co_firstlineno <= (node.end_lineno or 0)
    ]
    if not found:
        raise ValueError(f"{name} has no source; write it by def or class")
    return found[-1], names, code.co_filename


def _code_in(value: type) -> CodeType:
    for member in vars(value).values():
        function = inspect.unwrap(member) if callable(member) else member
        if isinstance(function, FunctionType):
            return function.__code__
    raise ValueError(f"{value.__name__} has no method of its own; make it in a module")


def _is_importable(value: Any) -> bool:
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if module in (None, "__main__") or not isinstance(name, str) or not name.isidentifier():
        return False
    return getattr(sys.modules.get(module), name, None) is value


def _import_of(value: Any, name: str) -> str:
    if value.__module__ == builtins.__name__:
        return f"{name} = {value.__qualname__}" if name != value.__qualname__ else ""
    return f"from {value.__module__} import {value.__qualname__}" + _as(value.__qualname__, name)


def _as(own: str, name: str) -> str:
    return "" if own == name else f" as {name}"


def _is_literal(value: object) -> bool:
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError):
        return False
