"""The names of a run's roles, which are also those of the files in its `trace/` folder.

`host-N` is the host whose first worker is N, and `scorer` the process that scores. `server`, or any
other name, is the role that owns the generator.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from mdgan.records.values import number_in

SERVER, SCORER = "server", "scorer"
_HOST = "host-"


def first_worker(role: str) -> int:
    """N of `host-N`; 0 if the role is not a host."""
    number = role.removeprefix(_HOST)
    return int(number) if number != role and number.isdecimal() else 0


def leader(roles: Iterable[str]) -> str | None:
    """The role that owns the generator; None before that role has recorded anything."""
    others = [role for role in roles if role != SCORER and not role.startswith(_HOST)]
    return SERVER if SERVER in others else next(iter(others), None)


def is_alone(roles: Iterable[str]) -> bool:
    """Whether one role trains without server and hosts; False before any role has recorded."""
    names = list(roles)
    return leader(names) not in (None, SERVER) and not any(map(first_worker, names))


def num_workers(config: Mapping[str, Any]) -> int:
    """N, the number of workers by the settings of a run."""
    return max(0, int(number_in(config, "world_size") or 1) - 1)
