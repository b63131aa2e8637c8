"""`--require`: what a run must have for the workers of this machine to take part."""

import re
from dataclasses import dataclass

from mdgan.engine.secure_settings import SecureSumSettings
from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.privacy.settings import PrivacySettings
from mdgan.settings.declare import shortest

FORMS = "dp, epsilon<=E, delta<=D, secure-aggregation"
_FORM = re.compile(r"dp|secure-aggregation|(epsilon|delta)<=([0-9.eE+-]+)")


@dataclass(frozen=True)
class Requirements:
    """What the user of this machine insists on.

    Attributes:
        given: each as the user wrote it, without spaces.
    """

    given: tuple[str, ...]

    def __str__(self) -> str:
        """As the command line has it."""
        return ",".join(self.given)


def check_required(required: Requirements | None, settings: RunSettings) -> None:
    """Checks the settings of this machine, which a server must have, too, to let it join.

    Args:
        required: what its user insists on; None: nothing.
        settings: of the run.

    Raises:
        BadInput: the run lacks something; nothing has left this machine.
    """
    for each in () if required is None else required.given:
        if lacks := _lacks(each, settings):
            raise BadInput(
                f"--require {each}: {lacks}; this machine takes part only where it has that"
            )


def parse_requirements(text: str) -> Requirements:
    """Reads a `--require` value.

    Raises:
        ValueError: one of its parts is none of `FORMS`.
    """
    given = tuple("".join(part.split()) for part in text.split(","))
    for part in given:
        match = _FORM.fullmatch(part)
        if match is None or (match[2] is not None and not _number(match[2]) > 0):
            raise ValueError(f"{part!r:.40} is none of {FORMS}")
    return Requirements(given)


def _lacks(requirement: str, settings: RunSettings) -> str:
    """What the run has instead; empty if it has what is required."""
    if requirement == "secure-aggregation":
        secure = isinstance(settings, SecureSumSettings) and settings.secure_aggregation
        return "" if secure else "the run has no --secure-aggregation"
    private = isinstance(settings, PrivacySettings) and settings.keeps_ledger
    if not isinstance(settings, PrivacySettings) or not private:
        return "the run has no differential privacy (--dp-epsilon)"
    name, _, most = requirement.partition("<=")
    if not most:
        return ""
    has = settings.dp_epsilon if name == "epsilon" else settings.dp_delta
    if has is None:
        return f"the run bounds no {name}"
    return "" if has <= _number(most) else f"the run has {name} {shortest(has)}"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
