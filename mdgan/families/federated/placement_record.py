"""What a run records of the placement of one round, for the report."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from mdgan.families.federated.cohort import Round
from mdgan.families.federated.placed_messages import Trained
from mdgan.families.federated.training_time import TrainingTimes

_DECIMALS = 4


class PlacementRecord:
    """One round; begins when it is made.

    Args:
        wanted: the round.
        strategy: `rr`, `bb`, `lb` or `pull`.
        times: predicts; None if this round was placed without predictions.
        names_clients: whether it is recorded which clients were trained, and how many.
    """

    def __init__(
        self,
        wanted: Round,
        strategy: str,
        times: TrainingTimes | None,
        *,
        names_clients: bool = True,
    ) -> None:
        self._names_clients = names_clients
        self._wanted = wanted
        self._strategy = strategy
        self._times = times
        self._begin = time.monotonic()
        self._slots: dict[tuple[int, int], list[Trained]] = {}
        self._kinds: dict[tuple[int, int], str] = {}

    def note(self, host: int, kinds: Sequence[str], trained: Sequence[Trained]) -> None:
        """A host has trained clients.

        Args:
            host: its number.
            kinds: of the slots that it offered.
            trained: each client.
        """
        for number, kind in enumerate(kinds):
            self._slots.setdefault((host, number), [])
            self._kinds[host, number] = kind
        for each in trained:
            self._slots.setdefault((host, each.slot), []).append(each)

    def fields(self) -> dict[str, Any]:
        """The fields of the event: how long slots were busy, and in some rounds also with whom."""
        is_shown = self._names_clients and _is_round(self._wanted.number)
        curves = {} if self._times is None else self._times.curves
        return {
            "number": self._wanted.number,
            "strategy": self._strategy,
            "makespan": round(time.monotonic() - self._begin, _DECIMALS),
            "slots": [
                {
                    "host": host,
                    "slot": number,
                    "kind": self._kinds.get((host, number), ""),
                    "work": sum(self._iterations_of(each) for each in trained),
                    "busy": _rounded(sum(each.seconds for each in trained)),
                    **(
                        self._lists(self._kinds.get((host, number), ""), trained)
                        if is_shown
                        else {}
                    ),
                }
                for (host, number), trained in sorted(self._slots.items())
            ],
            "num_slots": Counter(str(host) for host, _ in self._slots),
            "fits": {kind: list(curve) for kind, curve in curves.items()} if is_shown else {},
        }

    def _iterations_of(self, each: Trained) -> int:
        return self._wanted.loads[each.client].iterations if self._names_clients else 0

    def _lists(self, kind: str, trained: Sequence[Trained]) -> dict[str, Any]:
        batches = [self._wanted.loads[each.client].iterations for each in trained]
        predicted: list[float] = []
        if self._times is not None and self._times.curves:
            predicted = [_rounded(self._times.seconds(kind, x)) for x in batches]
        return {
            "clients": [each.client for each in trained],
            "batches": batches,
            "begin": [_rounded(each.begin) for each in trained],
            "seconds": [_rounded(each.seconds) for each in trained],
            "predicted": predicted,
        }


def _is_round(number: int) -> bool:
    """Whether only the first digit of a number is not zero: 0 to 9, 10, 20, …, 90, 100, 200, …."""
    return not str(number)[1:].strip("0")


def _rounded(seconds: float) -> float:
    return round(seconds, _DECIMALS)
