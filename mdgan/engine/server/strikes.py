"""How often each worker's answers could not be used, and whether it is to blame."""

from collections import Counter
from collections.abc import Iterable


class Strikes:
    """Strikes, of which so many put a worker out; `unusable` were the last answers of some."""

    def __init__(self, limit: int) -> None:
        self.unusable: set[int] = set()
        self._limit = limit
        self._counts: Counter[int] = Counter()
        self._excused: set[int] = set()

    def accept(self, worker: int) -> None:
        """A worker's answer can be used."""
        self.unusable.discard(worker)
        self._excused.discard(worker)

    def refuse(self, worker: int) -> None:
        """A worker's answer cannot be used: a strike, unless the worker is excused."""
        self.unusable.add(worker)
        if worker not in self._excused:
            self._counts[worker] += 1

    def blame(self, workers: Iterable[int]) -> None:
        """A strike for some workers, excused or not: what their host said makes no sense."""
        self._counts.update(workers)

    def excuse(self, workers: Iterable[int]) -> None:
        """Workers go on with what others gave them: refusals are no strikes until one answers well.

        A worker that has a strike already is not excused.
        """
        self._excused.update(worker for worker in workers if not self._counts[worker])

    def excuses(self, worker: int) -> bool:
        """Whether a worker is excused."""
        return worker in self._excused

    def strikes_of(self, worker: int) -> int:
        """How many strikes a worker has."""
        return self._counts[worker]

    def is_out(self, worker: int) -> bool:
        """Whether a worker has used up its strikes."""
        return self._counts[worker] >= self._limit
