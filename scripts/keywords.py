"""Writes mdgan/interface/keywords.pyi from the declarations of settings; a test compares the two.

Run `python -m scripts.keywords` after a setting has changed, then `ruff format`.
"""

from pathlib import Path

from mdgan.families import registry
from mdgan.launch.settings import LaunchSettings
from mdgan.settings.declare import Setting

FILE = Path(__file__).resolve().parent.parent / "mdgan" / "interface" / "keywords.pyi"
_HEAD = '''"""The keywords of `mdgan.train`, written by `python -m scripts.keywords`."""

from collections.abc import Sequence
from os import PathLike
from typing import Any, Literal, TypedDict

Text = str | PathLike[str] | Sequence[Any]


class Keywords(TypedDict, total=False):
    """Settings by the names of their flags, with _ for -; see `mdgan train --help-all`."""

'''


def text() -> str:
    """The content of `keywords.pyi`."""
    declared = {**registry.declared_settings(), **LaunchSettings.declared()}
    names = sorted(name for name in declared if name != "dataset")
    return _HEAD + "".join(f"    {name}: {_type(declared[name])}\n" for name in names)


def _type(item: Setting) -> str:
    kind = item.kind
    if kind.type is str:
        choices = ", ".join(f'"{choice}"' for choice in kind.choices)
        annotation = f"Literal[{choices}]" if choices and not kind.grows else "Text"
    else:
        annotation = kind.type.__name__ + (f' | Literal["{kind.word}"]' if kind.word else "")
    return annotation + " | None" * (item.default is None)


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
