"""`--require`: what a run must have for the workers of this machine to take part."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from mdgan.engine.settings import RunSettings, num_participants
from mdgan.errors import BadInput
from mdgan.privacy.secure_settings import LEAST_PARTIES
from mdgan.settings.declare import shortest
from mdgan.spelling import flag, key

FORMS = (
    "dp, epsilon<=E, delta<=D, secure-aggregation, secure-aggregation>=N, noise-sharers>=N "
    "(so many certificates that share the noise of a sum)"
)
_SECURE, _SHARERS = "secure-aggregation", "noise-sharers"
_FORM = re.compile(
    rf"dp|{_SECURE}(>=[0-9]{{1,9}})?|{_SHARERS}>=[0-9]{{1,9}}|(epsilon|delta)<=([0-9.eE+-]+)"
)


@dataclass(frozen=True)
class Requirements:
    """What the user of this machine insists on, each as it was written, without spaces."""

    given: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ",".join(self.given)

    @property
    def ask_for_dp(self) -> bool:
        """Whether they bound what samples lose."""
        return any(not each.startswith((_SECURE, _SHARERS)) for each in self.given)

    def least(self, name: str) -> int:
        """The largest number that stands behind a name and >=; 0 without one."""
        parts = (each.partition(">=") for each in self.given)
        return max((int(least) for asked, _, least in parts if asked == name and least), default=0)


_NONE = Requirements()


def check_required(
    required: Requirements | None, settings: RunSettings, *, told: bool = False
) -> None:
    """Checks the settings of this machine, which a server must have, too, to let it join.

    If a server has told them, it has chosen what no number bounds.
    """
    required = required or _NONE
    for each in required.given:
        if lacks := _lacks(each, settings):
            way_out = "this machine takes part only where it has that"
            raise BadInput(flag("require", each), lacks, way_out)
    disclosed = settings.privacy.dp_disclose
    if told and required.ask_for_dp and disclosed is not None and disclosed.names:
        raise BadInput(
            flag("require", required),
            f"the run has {flag('dp_disclose', disclosed)}: "
            "the server is told what no noise covers",
            f"if you agree, take part by `mdgan train {flag('ranks')}` with these flags",
        )


def check_certificates(required: Requirements | None, settings: RunSettings) -> None:
    """Checks that one certificate is enough, since all machines share the file with it."""
    least, sharers = least_sharers(required), settings.noise.noise_sharers
    asked = {
        flag("require", f"{_SHARERS}>={least}"): least,
        key("noise_sharers", sharers): sharers or 1,
    }
    for what, number in asked.items():
        if number > 1 and settings.shares_noise:
            why = "certificates share the noise, and the one here is in a file for all machines"
            way_out = "give each host a certificate of its own (mdgan credentials issue)"
            raise BadInput(what, why, way_out)


def check_delta(
    required: Requirements | None, settings: RunSettings, num_samples: Mapping[int, int]
) -> None:
    """Checks that delta makes epsilon mean something, where the user bounds epsilon alone."""
    required = required or _NONE
    if not required.ask_for_dp or any(each.startswith("delta") for each in required.given):
        return
    delta = settings.privacy.dp_delta
    for rank, count in num_samples.items():
        if delta is not None and delta * count >= 1:
            why = f"the run has delta {shortest(delta)}, with which rank {rank} may give away one"
            way_out = f"if you agree, add delta<={shortest(delta)}"
            raise BadInput(flag("require", required), f"{why} of its {count:,} samples", way_out)


def least_parties(required: Requirements | None) -> int:
    """How many hosts' answers a sum must have at least, which each host checks itself."""
    return max(LEAST_PARTIES, (required or _NONE).least(_SECURE))


def least_sharers(required: Requirements | None) -> int:
    """How many certificates must share the noise of a sum, which each host checks itself."""
    return max(1, (required or _NONE).least(_SHARERS))


def parse_requirements(text: str) -> Requirements:
    """Reads a `--require` value; ValueError if one of its parts is none of `FORMS`."""
    given = tuple("".join(part.split()) for part in text.split(","))
    for part in given:
        match = _FORM.fullmatch(part)
        if match is None or (match[3] is not None and not _number(match[3]) > 0):
            raise ValueError(f"{part!r:.40} is none of {FORMS}")
    return Requirements(given)


def _lacks(requirement: str, settings: RunSettings) -> str:
    """What the run has instead; empty if it has what is required."""
    secure = flag("secure_aggregation")
    if requirement.startswith(_SECURE):
        if not settings.secure.secure_aggregation:
            return f"the run has no {secure}"
        at_a_time = num_participants(settings.participation, settings.num_workers)
        few = f"a sum has the answers of {at_a_time} worker(s) at most"
        return "" if at_a_time >= Requirements((requirement,)).least(_SECURE) else few
    if requirement.startswith(_SHARERS):
        if not settings.shares_noise:
            return f"the run's workers share no noise ({secure} with {flag('dp_epsilon')})"
        few = f"{settings.num_workers} worker(s) share the noise"
        is_met = settings.num_workers >= Requirements((requirement,)).least(_SHARERS)
        return "" if is_met else few
    if not settings.privacy.keeps_ledger:
        return f"the run has no differential privacy ({flag('dp_epsilon')})"
    if settings.privacy.hides_clients and not settings.secure.secure_aggregation:
        unit = flag("dp_unit", "client")
        return f"the server adds the noise ({unit}), which this machine cannot see"
    name, _, most = requirement.partition("<=")
    if not most:
        return ""
    has = settings.privacy.dp_epsilon if name == "epsilon" else settings.privacy.dp_delta
    if has is None:
        return f"the run bounds no {name}"
    return "" if has <= _number(most) else f"the run has {name} {shortest(has)}"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
