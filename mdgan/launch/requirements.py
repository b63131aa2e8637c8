"""`--require`: conditions that a run must meet for the workers of this machine to take part."""

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
    """The conditions of this machine's user, each as the user wrote it, without spaces."""

    conditions: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ",".join(self.conditions)

    @property
    def ask_for_dp(self) -> bool:
        """Whether some condition is about differential privacy."""
        return any(not each.startswith((_SECURE, _SHARERS)) for each in self.conditions)

    def least(self, name: str) -> int:
        """The largest N of conditions `name>=N`; 0 if there are none."""
        parts = (each.partition(">=") for each in self.conditions)
        return max((int(least) for what, _, least in parts if what == name and least), default=0)


_NONE = Requirements()


def check_required(
    required: Requirements | None, settings: RunSettings, *, from_server: bool = False
) -> None:
    """Refuses settings of a run that do not meet the conditions of this machine.

    Settings `from_server` may disclose nothing without noise, as no condition can bound that.
    """
    required = required or _NONE
    for each in required.conditions:
        if lacks := _lacks(each, settings):
            way_out = "this machine takes part only where it has that"
            raise BadInput(flag("require", each), lacks, way_out)
    disclosed = settings.privacy.dp_disclose
    if from_server and required.ask_for_dp and disclosed is not None and disclosed.names:
        why = f"the run has {flag('dp_disclose', disclosed)}: "
        why += "the server is told what no noise covers"
        way_out = f"if you agree, take part by `mdgan train {flag('ranks')}` with these flags"
        raise BadInput(flag("require", required), why, way_out)


def check_certificates(required: Requirements | None, settings: RunSettings) -> None:
    """Refuses conditions that need several certificates, if all machines share a single one."""
    least, sharers = least_sharers(required), settings.noise.noise_sharers
    minimums = {
        flag("require", f"{_SHARERS}>={least}"): least,
        key("noise_sharers", sharers): sharers or 1,
    }
    for what, number in minimums.items():
        if number > 1 and settings.shares_noise:
            why = "certificates share the noise, and the one here is in a file for all machines"
            way_out = "give each host a certificate of its own (mdgan credentials issue)"
            raise BadInput(what, why, way_out)


def check_delta(
    required: Requirements | None, settings: RunSettings, num_samples: Mapping[int, int]
) -> None:
    """If the user bounds only epsilon, refuses a delta with which a worker may lose a sample."""
    required = required or _NONE
    if not required.ask_for_dp or any(each.startswith("delta") for each in required.conditions):
        return
    delta = settings.privacy.dp_delta
    for rank, count in num_samples.items():
        if delta is not None and delta * count >= 1:
            why = f"the run has delta {shortest(delta)}, with which rank {rank} may give away one"
            way_out = f"if you agree, add delta<={shortest(delta)}"
            raise BadInput(flag("require", required), f"{why} of its {count:,} samples", way_out)


def least_parties(required: Requirements | None) -> int:
    """The least number of hosts in a sum of answers; each host checks it itself."""
    return max(LEAST_PARTIES, (required or _NONE).least(_SECURE))


def least_sharers(required: Requirements | None) -> int:
    """The least number of certificates that share a sum's noise; each host checks it itself."""
    return max(1, (required or _NONE).least(_SHARERS))


def parse_requirements(text: str) -> Requirements:
    """Reads a `--require` value; ValueError if one of its parts is none of `FORMS`."""
    conditions = tuple("".join(part.split()) for part in text.split(","))
    for part in conditions:
        match = _FORM.fullmatch(part)
        if match is None or (match[3] is not None and not _number(match[3]) > 0):
            raise ValueError(f"{part!r:.40} is none of {FORMS}")
    return Requirements(conditions)


def _lacks(requirement: str, settings: RunSettings) -> str:
    """Says why a run does not meet a condition; empty if it does."""
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
