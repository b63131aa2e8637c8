"""How often each worker's answers could not be used, and whether it is to blame."""

from collections.abc import Collection, Iterable


class Conduct:
    """Strikes, shared by those that screen answers to different questions.

    Args:
        limit: strikes after which a worker is out.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._strikes: dict[int, int] = {}
        self._unusable: set[int] = set()
        self._excused: set[int] = set()

    @property
    def unusable(self) -> Collection[int]:
        """The workers whose last answer could not be used."""
        return self._unusable

    def accept(self, worker: int) -> None:
        """A worker's answer can be used."""
        self._unusable.discard(worker)
        self._excused.discard(worker)

    def refuse(self, worker: int) -> None:
        """A worker's answer cannot be used: a strike, unless the worker is excused."""
        self._unusable.add(worker)
        if worker not in self._excused:
            self._strikes[worker] = self.strikes_of(worker) + 1

    def blame(self, workers: Iterable[int]) -> None:
        """A strike for some workers, excused or not: what their host said makes no sense."""
        for worker in workers:
            self._strikes[worker] = self.strikes_of(worker) + 1

    def excuse(self, workers: Iterable[int]) -> None:
        """Workers go on with what others gave them: refusals are no strikes until one answers well.

        A worker that has a strike already is not excused.
        """
        self._excused.update(worker for worker in workers if not self.strikes_of(worker))

    def excuses(self, worker: int) -> bool:
        """Whether a worker is excused."""
        return worker in self._excused

    def strikes_of(self, worker: int) -> int:
        """How many strikes a worker has."""
        return self._strikes.get(worker, 0)

    def is_out(self, worker: int) -> bool:
        """Whether a worker has used up its strikes."""
        return self.strikes_of(worker) >= self._limit
