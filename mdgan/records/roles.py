"""The roles of a run, which are the names of the files in its `trace/` folder.

`server` or another name for the role that owns the generator, `host-N` for a host whose first
worker is N, `scorer` for the process that scores.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from mdgan.records.values import number_in

SERVER, SCORER = "server", "scorer"
_HOST = "host-"


def first_worker(role: str) -> int:
    """N of `host-N`; 0 for a role that is no host."""
    number = role.removeprefix(_HOST)
    return int(number) if number != role and number.isdecimal() else 0


def leader(roles: Iterable[str]) -> str | None:
    """The role that owns the generator; None as long as it has recorded nothing."""
    others = [role for role in roles if role != SCORER and not role.startswith(_HOST)]
    return SERVER if SERVER in others else next(iter(others), None)


def is_alone(roles: Iterable[str]) -> bool:
    """Whether one role does everything, without hosts; false as long as none has recorded."""
    known = list(roles)
    return leader(known) not in (None, SERVER) and not any(map(first_worker, known))


def num_workers(config: Mapping[str, Any]) -> int:
    """N by the settings of a run that has workers."""
    return max(0, int(number_in(config, "world_size") or 1) - 1)
