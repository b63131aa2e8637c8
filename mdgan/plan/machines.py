"""The machines that a planned run is to have, and what each of them carries."""

import heapq
import re
from collections.abc import Sequence
from dataclasses import dataclass

from mdgan.errors import BadInput

_FORM = re.compile(r"(\d{1,5})x ([^\s:/,][^:/,]{0,40}?)(?::([0-9.]{1,12}))?(?:/(\d{1,4}))?")
_EXAMPLE = '"4x fast, 8x slow:0.5"'
_MOST, _MOST_SPEED, _MOST_SLOTS = 10_000, 1e4, 1024


@dataclass(frozen=True)
class Machines:
    """Some machines that are alike.

    Attributes:
        count: how many.
        name: what the user calls them.
        speed: of a worker or a slot there; 1 as here.
        slots: of each of them; None for as many as here.
    """

    count: int
    name: str
    speed: float = 1.0
    slots: int | None = None

    @property
    def shown(self) -> str:
        """How many there are of which name."""
        return f"{self.count}x {self.name}"


def parse_machines(text: str) -> tuple[Machines, ...]:
    """Reads a list of machines: `COUNTx NAME`, with `:SPEED` and `/SLOTS` where they differ.

    Raises:
        BadInput: it is none.
    """
    found = []
    for part in text.split(","):
        match = _FORM.fullmatch(part.strip())
        if match is None:
            raise BadInput(
                f"--machines {part.strip()!r:.60}: must be one, each, or machines such as "
                f"{_EXAMPLE} (COUNTx NAME:SPEED/SLOTS)"
            )
        count, name, speed, slots = match.groups()
        try:
            fast = float(speed or 1)
        except ValueError:
            fast = 0.0
        if not 0 < fast <= _MOST_SPEED:
            raise BadInput(f"--machines {part.strip()}: its speed must be above 0; here it is 1")
        if slots is not None and not 1 <= int(slots) <= _MOST_SLOTS:
            raise BadInput(f"--machines {part.strip()}: slots must be from 1 to {_MOST_SLOTS}")
        found.append(Machines(int(count), name, fast, None if slots is None else int(slots)))
    if not 1 <= sum(each.count for each in found) <= _MOST or not all(m.count for m in found):
        raise BadInput(f"--machines {text!r:.60}: a number of machines must be 1 to {_MOST:,}")
    return tuple(found)


def shared_out(num_workers: int, speeds: Sequence[float]) -> list[int]:
    """How many workers each machine carries so that the last of them is done first.

    All workers cost the same: each goes to the machine that would then be done first, of equal ones
    to the first.

    Args:
        num_workers: N.
        speeds: of the machines.
    """
    counts = [0] * len(speeds)
    queue = [(1 / speed, place) for place, speed in enumerate(speeds)]
    heapq.heapify(queue)
    for _ in range(num_workers):
        _, place = queue[0]
        counts[place] += 1
        heapq.heapreplace(queue, ((counts[place] + 1) / speeds[place], place))
    return counts
