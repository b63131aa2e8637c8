"""A rule for every refusal: a Python program reads keywords in it, never flags."""

import re
import sys
from functools import cache
from types import FrameType

from mdgan.families import registry
from mdgan.launch.settings import LaunchSettings
from mdgan.spelling import MARKS, spelled

_FLAG = re.compile(r"(?<![\w-])--(?:set )?([a-z][a-z0-9_-]*)")
_COMMAND = re.compile(r"\bmdgan (?:report|sample|evaluate|audit|train --resume)\b")
_SECOND_HALF = re.compile(rf"{MARKS[2]}([a-z][a-z0-9_]*)")  # values may have any character


@cache
def _settings() -> frozenset[str]:
    return frozenset({**registry.declared_settings(), **LaunchSettings.declared()})


def plainly_named(text: str) -> list[str]:
    """The settings and commands that a text spells as the command line alone takes them."""
    flags = [
        match[0] for match in _FLAG.finditer(text) if match[1].replace("-", "_") in _settings()
    ]
    return flags + _COMMAND.findall(text)


def misspelled(marked: str, room: str) -> list[str]:
    """What is wrong with a sentence of a refusal, as its two readers see it.

    Args:
        marked: with the marks of mentions.
        room: of mdgan, whose code says it.
    """
    texts = [spelled(marked, in_python=in_python) for in_python in (False, True)]
    halves = [name for text in texts for name in _SECOND_HALF.findall(text) if name in _settings()]
    problems = [f"half a mention of {name} in {texts[0]!r}" for name in halves]
    # A server sends its hosts text, in which flags are spelled as on the command line.
    is_apart = room in ("", "cli") or marked.startswith("the server refused this host")
    named = () if is_apart else plainly_named(texts[1])
    return problems + [f"{each} in {texts[1]!r}" for each in named]


def room_that_refuses() -> str:
    """The room of mdgan whose code makes a refusal now; empty if it is none of mdgan's."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_globals["__name__"] in ("contextlib", "mdgan.errors"):
        frame = frame.f_back  # in a `with` block of that code
    package, _, name = str(frame and frame.f_globals["__name__"]).partition(".")
    return name.partition(".")[0] if package == "mdgan" else ""
