"""How many slots a host offers: the number of the user, or the number that trains fastest.

Sani et al. 2024, "Pollen", section 3.2: the host adds a slot every few rounds while that makes it
faster. The paper stops when "the execution speed stops improving"; the 2 % and the round for
warming up are ours.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor, isfinite
from statistics import median

import psutil
import torch

from mdgan.families.federated.messages import Offer
from mdgan.families.federated.settings import MOST_SLOTS
from mdgan.settings.climber import HillClimber
from mdgan.settings.machine import num_cores
from mdgan.storage.known_number import KnownNumber
from mdgan.system import processor_name

_log = logging.getLogger(__name__)

ROUNDS_EACH = 3
"""T_c: rounds that count for each number of slots, after one in which the new slot warms up. A
single slow round does not move the median of three."""
_ENOUGH = 1.02  # the host keeps one more slot if it does this many times the work a second
_MEMORY_SHARE = 0.9  # the part of free memory that slots may use


class ConcurrencyEstimator(HillClimber[int]):
    """The search for the number of slots of one machine, which can hold at `most` W_max.

    The score of a number is the median rate of its rounds (work a second).
    """

    def __init__(self, most: int, start: int = 1) -> None:
        super().__init__(range(min(start, most), most + 1), gain=_ENOUGH)
        self._rates: list[float] = []

    def note_round(self, work: float, seconds: float) -> None:
        """Counts a round: the work of all clients on this machine, and the seconds it took."""
        valid = isfinite(work) and isfinite(seconds) and work > 0 and seconds > 0
        if self.settled or not valid:
            return
        self._rates.append(work / seconds)
        if len(self._rates) > ROUNDS_EACH:
            self.note(median(self._rates[1:]))
            self._rates = []


def device_of_slot(device: torch.device, slot: int) -> torch.device:
    """The device of a slot: with several GPUs each slot gets the next, beginning at the host's."""
    if device.type != "cuda" or device.index is None:
        return device
    return torch.device("cuda", (device.index + slot) % max(1, torch.cuda.device_count()))


def most_slots(free_bytes: int, bytes_each: int) -> int:
    """W_max: how many more slots fit into free memory, at least 1."""
    return max(1, floor(free_bytes * _MEMORY_SHARE / bytes_each))


@dataclass
class SlotCount:
    """The slots that one host offers for the next round.

    Args:
        given: the number of the user; None to search for the number that trains fastest.
        about: what the fastest number depends on besides the machine, such as models and batches.
        cores: by slot, in turn, the cores that the user pinned; empty if slots may use all.
    """

    given: int | None
    device: torch.device
    about: str
    cores: Sequence[frozenset[int]] = ()

    def __post_init__(self) -> None:
        about = f"{_device_name(self.device)}, {num_cores()} cores, {self.about}"
        self._known = KnownNumber("slots", about, MOST_SLOTS)
        self._start = self.given or self._known.read() or 1
        self._free_before = _free_bytes(self.device)
        self._search: ConcurrencyEstimator | None = None

    def offer(self) -> Offer:
        """The kind of each slot for the next round; slots that share alike have one kind."""
        number = self._start if self._search is None else self._search.candidate
        full = frozenset(range(num_cores()))
        cores_of = [self.cores[n % len(self.cores)] if self.cores else full for n in range(number)]
        places = [(device_of_slot(self.device, n), at) for n, at in enumerate(cores_of)]
        sharing = Counter(places)
        return [
            f"{_device_name(device)}: {sharing[device, at]} slot(s) on {len(at)} core(s)"
            for device, at in places
        ]

    def note(self, work: float, seconds: float, measure: Callable[[], int]) -> None:
        """Counts a round with these slots; `measure` returns the memory of one slot, or 0."""
        if self.given is not None:
            return
        if self._search is None:  # the first round shows the memory of a slot, and does not count
            free, bytes_each = _free_bytes(self.device), measure()
            if self.device.type == "cuda":
                bytes_each = (self._free_before - free) // self._start
            more = most_slots(free, bytes_each) if bytes_each > 0 else MOST_SLOTS
            self._search = ConcurrencyEstimator(min(MOST_SLOTS, self._start + more), self._start)
        elif not self._search.settled:
            self._search.note_round(work, seconds)
            if self._search.settled:
                number = self._search.candidate
                _log.info("%d slot(s) train fastest here", number)
                self._known.write(number)


def _device_name(device: torch.device) -> str:
    """The system's name of a device, in short printable ASCII, as offers need it."""
    name = processor_name() if device.type == "cpu" else device.type
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    printable = (letter if " " <= letter <= "~" else "?" for letter in name)
    return "".join(printable)[:64]


def _free_bytes(device: torch.device) -> int:
    """Free memory; of several GPUs, that of the fullest times their number."""
    if device.type == "cuda":
        devices = {device_of_slot(device, n) for n in range(MOST_SLOTS)}
        return len(devices) * min(int(torch.cuda.mem_get_info(each)[0]) for each in devices)
    return int(psutil.virtual_memory().available)
