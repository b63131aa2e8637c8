"""Writes the dataset file of a run whose samples or models are objects of a Python program.

The file imports models that a module defines. It contains the source of models that a script or a
notebook defines, with all that they refer to. So mdgan pickles no model that has a source.
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
    """Refuses a model that is no class or function that makes models."""
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
    """Writes the text of a dataset file with the user's models and registered objects.

    Models that cannot be written as text are pickled for the run's processes. The file then has
    their source only as comments.

    Args:
        samples: the lines that define Partitioner and, if there are held-out samples, HeldOut.
        models: `Generator` and `Discriminator`, or none.
        registered: the losses, optimizers and others of `mdgan.register` that the run uses.

    Returns:
        The text, and the models pickled for `mdgan.data.handed`; empty if they are in the text.
    """
    for name, build in models.items():
        check_model(name.lower(), build)
    pickled_models = b""
    try:
        code = text_defining({**models, **registered})
    except (ValueError, OSError, SyntaxError):
        code, pickled_models = _hand_over(models, registered)
    folders = [p for p in sys.path if p and not p.startswith((sys.prefix, sys.base_prefix))]
    paths = json.dumps([str(Path(path).resolve()) for path in [*folders, "."]])
    lines = [f"SHAPE = {tuple(shape)}"]
    if models:
        files = {"the program's models"}
        with suppress(TypeError, OSError):  # of a notebook, or no class or function
            files = {file_in_words(inspect.getfile(build)) for build in models.values()}
        lines += [f"Z_DIM = {z_dim}", f"MODELS_FROM = {' and '.join(sorted(files))!r}"]
    text = _TEMPLATE.format(paths=paths, samples=samples, sizes="\n".join(lines), models=code)
    return text, pickled_models


def _hand_over(models: Mapping[str, Model], registered: Mapping[str, Any]) -> tuple[str, bytes]:
    """Returns lines that load models by a token, and the pickled models."""
    try:
        lines = [text_defining(registered)]
    except (ValueError, OSError, SyntaxError) as error:
        raise _cannot_hand_over(registered, reason_of(error)) from error
    try:
        token = hashlib.sha256(cloudpickle.dumps(dict(models))).hexdigest()[:16]
        pickled_models = _pickle(token, models)
    except Exception as error:  # the user's own objects may raise anything
        why = cause_of(error, of_user=True)
        raise _cannot_hand_over([name.lower() for name in models], why) from error
    remember(token, models)
    lines += ["from mdgan.data.handed import handed", f'HANDED = "{token}"']
    for name, build in models.items():
        lines += [*_source_of(build), f"def {name}():\n    return handed(HANDED, {name!r})()"]
    return "\n".join(lines), pickled_models


def _cannot_hand_over(names: Iterable[str], why: str) -> BadInput:
    reason = f"cannot be handed to the processes of the run ({why})"
    return BadInput(", ".join(names), reason, "make them in a module of their own")


def _source_of(build: object) -> list[str]:
    try:
        source = inspect.getsource(build)  # type: ignore[arg-type] # raises TypeError for others
    except (TypeError, OSError):
        source = repr(build)
    return [f"# {line}".rstrip() for line in source.splitlines()]


def find_token(file: Path) -> str | None:
    """Finds the token by which a run's dataset file loads pickled models; None if it has text."""
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    line = re.search(r'^HANDED = "([0-9a-f]{16})"$', text, re.MULTILINE)
    return line[1] if line else None


def pickle_again(file: Path) -> bytes:
    """Pickles the models that a run's dataset file loads; empty if this program lacks them."""
    models = remembered(token) if (token := find_token(file)) else None
    return _pickle(token, models) if token and models else b""


def _pickle(token: str, models: Mapping[str, Any]) -> bytes:
    """Pickles models with the name of their file, which errors in them mention."""
    codes = [getattr(getattr(build, "func", build), "__code__", None) for build in models.values()]
    files = {code.co_filename for code in codes if code is not None}
    file = file_in_words(files.pop()) if len(files) == 1 else DYNAMIC
    return bytes(cloudpickle.dumps({token: dict(models), DYNAMIC: file}))


def samples_text(data: Data, num_classes: int | None, *, privately: bool = False) -> str:
    """Writes the lines of a dataset file that read the arrays of `data`; see `Data.known_as`."""
    lines = [
        "from mdgan.data.arrays import Arrays",
        f'SAMPLES = "{data.known_as(privately=privately)}"',
        f"NUM_CLASSES = {num_classes}",
    ]
    for kind, part in (("Partitioner", "train"), ("HeldOut", "held_out")):
        if part in data.parts:
            lines.append(f'class {kind}(Arrays):\n    which = "{part}"')
            lines += [f"    class_names = {data.class_names!r}"] * bool(data.class_names)
    return "\n".join(lines)


def samples_text_of_file(file: DatasetFile, datasets_dir: str | None, *, models: bool) -> str:
    """Writes the lines of a dataset file that uses the samples of another, and maybe its models."""
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


_TEMPLATE = '''"""Models of a Python program; `mdgan.train` wrote this file for its run."""

import sys

{samples}

sys.path += [path for path in {paths} if path not in sys.path]  # for models that lie in modules
KEPT = True
{sizes}

{models}
'''


_LITERAL_TYPES = (bool, int, float, str, bytes, tuple, list, dict, set, type(None))


def text_defining(wanted: Mapping[str, object]) -> str:
    """Writes Python text that defines names; ValueError if a value has no text."""
    text = _Text()
    for name, value in wanted.items():
        text.define(name, value)
    return "\n".join(text.lines)


class _Text:
    """Collects lines that define one name after the other, each after the names that it uses."""

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
            self.lines.append(f"import {value.__name__}" + _alias(value.__name__, name))
        elif _is_importable(value):
            self.lines.append(_import_line(value, name))
        elif isinstance(value, FunctionType | type):
            self._write_down(name, value)
        elif isinstance(value, _LITERAL_TYPES) and _is_literal(value):
            self.lines.append(f"{name} = {value!r}")
        else:
            raise ValueError(f"{name} is of type {type(value).__name__}; make it in a module")

    def _write_down(self, name: str, value: "FunctionType | type") -> None:
        node, names, file = _find_definition(value)
        name_nodes = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
        local = {n.id for n in name_nodes if not isinstance(n.ctx, ast.Load)}
        local |= {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}
        for used in sorted({n.id for n in name_nodes} - local - {node.name}):
            if used in names:
                self.define(used, names[used])
        self.lines += _copy_source(node, linecache.getlines(file), file)
        if name != node.name:
            self._known[node.name] = value
            self.lines.append(f"{name} = {node.name}")


def _copy_source(node: ast.FunctionDef | ast.ClassDef, lines: list[str], file: str) -> list[str]:
    """Copies the lines of a definition; unparses its syntax if they are no code by themselves."""
    first = min(each.lineno for each in (node, *node.decorator_list)) - 1
    copied = dedent("".join(lines[first : node.end_lineno])).splitlines()
    with suppress(SyntaxError):
        if ast.dump(ast.parse("\n".join(copied))) == ast.dump(ast.Module([node], [])):
            return [f"# from {file_in_words(file)}, line {first + 1}, {len(copied)} lines", *copied]
    return [ast.unparse(node)]


def _find_definition(value: Any) -> tuple[ast.FunctionDef | ast.ClassDef, Mapping[str, Any], str]:
    """Finds the syntax of a function or class, the names in its scope, and its file."""
    name = value.__name__
    if isinstance(value, FunctionType):
        if value.__closure__:
            raise ValueError(f"{name} uses variables of the function around it")
        code, names = value.__code__, value.__globals__
    else:
        code, names = _find_code(value), vars(sys.modules[value.__module__])
    tree = ast.parse("".join(linecache.getlines(code.co_filename, names)))
    definitions = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name
        if node.lineno <= code.co_firstlineno + len(node.decorator_list)
        if code.co_firstlineno <= (node.end_lineno or 0)
    ]
    if not definitions:
        raise ValueError(f"{name} has no source; write it by def or class")
    return definitions[-1], names, code.co_filename


def _find_code(value: type) -> CodeType:
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


def _import_line(value: Any, name: str) -> str:
    if value.__module__ == builtins.__name__:
        return f"{name} = {value.__qualname__}" if name != value.__qualname__ else ""
    return f"from {value.__module__} import {value.__qualname__}" + _alias(value.__qualname__, name)


def _alias(original: str, name: str) -> str:
    return "" if original == name else f" as {name}"


def _is_literal(value: object) -> bool:
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError):
        return False
