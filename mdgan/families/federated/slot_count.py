"""How many slots a host offers: as many as the user said, or as many as train fastest here."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence

import psutil
import torch

from mdgan.families.federated.concurrency import Climb, most_slots
from mdgan.families.federated.placed_messages import Offer
from mdgan.families.federated.settings import MOST_SLOTS
from mdgan.settings.machine import num_cores, processor_name
from mdgan.storage.known_number import KnownNumber

_log = logging.getLogger(__name__)


class SlotCount:
    """The slots that one host offers for the next round.

    Args:
        given: `--slots`; None for as many as train fastest.
        rounds_each: T_c.
        device: where clients train.
        about: what decides how many train fastest besides the machine, such as models and batches.
        cores: of each slot in turn, as pinned by the user; empty if slots may use all.
    """

    def __init__(
        self,
        given: int | None,
        rounds_each: int,
        device: torch.device,
        about: str,
        cores: Sequence[frozenset[int]] = (),
    ) -> None:
        self._given = given
        self._rounds_each = rounds_each
        self._device = device
        self._cores = cores
        self._name = _device_name(device)
        about = f"{self._name}, {num_cores()} cores, {about}"
        self._known = KnownNumber("slots", about, MOST_SLOTS)
        self._start = given or self._known.read() or 1
        self._free_before = _free_bytes(device)
        self._climb: Climb | None = None

    def offer(self) -> Offer:
        """The slots for the next round."""
        climb = self._climb
        number = self._start if climb is None else climb.num_slots
        return Offer(self._kinds(number))

    def note(self, work: float, seconds: float, measure: Callable[[], int]) -> None:
        """A round with the slots that were offered is done.

        Args:
            work: iterations of all clients.
            seconds: that the round took.
            measure: gives the memory that one slot takes; 0 if it is not known.
        """
        if self._given is not None:
            return
        if self._climb is None:  # clients were trained and measured; this round does not count
            free, bytes_each = _free_bytes(self._device), measure()
            if self._device.type == "cuda":
                bytes_each = (self._free_before - free) // self._start
            more = most_slots(free, bytes_each) if bytes_each > 0 else MOST_SLOTS
            most = min(MOST_SLOTS, self._start + more)
            self._climb = Climb(most, self._rounds_each, self._start)
            return
        if self._climb.settled:
            return
        self._climb.note(work, seconds)
        if self._climb.settled:
            number = self._climb.num_slots
            _log.info("%d slot(s) train fastest here", number)
            self._known.write(number)

    def _kinds(self, number: int) -> list[str]:
        """What each of so many slots is: those that share cores with equally many are alike."""
        if not self._cores:
            return [f"{self._name}: {number} slot(s) on {num_cores()} core(s)"] * number
        own = [self._cores[slot % len(self._cores)] for slot in range(number)]
        sharing = Counter(own)
        return [f"{self._name}: {sharing[at]} slot(s) on {len(at)} core(s)" for at in own]


def _device_name(device: torch.device) -> str:
    """What the system calls it, as an offer may have it: short, in printable ASCII."""
    name = processor_name() if device.type == "cpu" else device.type
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    printable = (letter if " " <= letter <= "~" else "?" for letter in name)
    return "".join(printable)[:64]


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)
