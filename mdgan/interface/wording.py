"""What commands say, in the words of Python: calls instead of commands, keywords for flags."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.launch.resolve import known_settings

_RUN = r"(\S+?)(?=[),;]*(?:\s|$))"
"""A run's folder, without the punctuation of the sentence around it."""
_COMMAND = re.compile(rf"mdgan (report|sample|evaluate|audit) {_RUN}")
_RESUME = re.compile(rf"mdgan train --resume {_RUN}(?: --(iterations) (\w+))?")
_FLAG = re.compile(r"(?:--set )?(?:--|(?<=--set ))([a-z][a-z0-9_-]*)(?:[= ]([^\s,;:)]+))?(:?)")
_VALUE = re.compile(r"""[\d.]+|[A-Z][A-Z_]*|["'].*|.*[:{].*""")


@contextmanager
def refusals_in_python() -> Iterator[None]:
    """Refusals in the block, or in a function that this decorates, are in the words of Python."""
    try:
        yield
    except BadInput as error:
        raise BadInput(in_python(str(error))) from error


def in_python(text: str, own: str = "") -> str:
    """One line of a command, as a program that calls mdgan needs it.

    Args:
        own: the arguments of `Run.open` that hand over what only the program has.
    """
    text = _RESUME.sub(
        lambda found: _call(found[1], own, "resume", "=".join(filter(None, found.groups()[1:]))),
        text,
    )
    text = _COMMAND.sub(
        lambda found: _call(found[2], "" if found[1] == "report" else own, found[1]), text
    )
    text = text.replace("Z_DIM=", "z_dim=")
    return _FLAG.sub(_keyword, text)


def _call(run: str, own: str, method: str, arguments: str = "") -> str:
    return f'mdgan.Run.open("{run}"{own and f", {own}"}).{method}({arguments})'


def _keyword(found: re.Match[str]) -> str:
    name, value, colon = found[1].replace("-", "_"), found[2], found[3]
    if name not in known_settings():
        return found[0]
    declared = registry.declared_settings().get(name)
    is_switch = declared is not None and declared.kind.type is bool
    if value is None or is_switch:
        rest = "" if value is None else f" {value}"
        return f"{name}{'=True' if is_switch and not colon else ''}{rest}{colon}"
    is_value = colon or found[0].startswith("--set") or _VALUE.fullmatch(value)
    return f"{name}{'=' if is_value else ' '}{value}{colon}"
