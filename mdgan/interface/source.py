"""The user's functions and classes as Python text, for processes that know nothing of this one.

What lies in a module is imported there. What a script or a notebook defines is written down, with
all that it refers to, so that nothing has to be pickled and a reader of the run sees the models.
"""

import ast
import builtins
import inspect
import linecache
import sys
from collections.abc import Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

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
        node, names = _definition(value)
        found = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
        own = {n.id for n in found if not isinstance(n.ctx, ast.Load)}
        own |= {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}
        for other in sorted({n.id for n in found} - own - {node.name}):
            if other in names:
                self.define(other, names[other])
        self.lines.append(ast.unparse(node))
        if name != node.name:
            self._known[node.name] = value
            self.lines.append(f"{name} = {node.name}")


def _definition(value: Any) -> tuple[ast.FunctionDef | ast.ClassDef, Mapping[str, Any]]:
    """The syntax of a function or class, and the names that it can refer to."""
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
    return found[-1], names


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
