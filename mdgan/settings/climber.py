"""Hill climbing over candidates such as numbers of slots, for settings that change speed alone."""

from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class HillClimber(Generic[T]):
    """Tries candidates in order until one is no better, and then uses the best.

    Args:
        gain: a candidate is better if its score is at least `gain` times the best; 0: it always is.
        hopeless: if a candidate is not better, the search goes on only if its score is above
            `hopeless` times the best. By default `gain`: the search then ends.
    """

    def __init__(self, candidates: Sequence[T], gain: float, hopeless: float | None = None) -> None:
        self._candidates = candidates
        self._gain = gain
        self._hopeless = gain if hopeless is None else hopeless
        self._place = self._best = 0
        self._scores: dict[int, float] = {}
        self.settled = len(candidates) == 1

    @property
    def candidate(self) -> T:
        """The candidate to use now; once the search is over, the best."""
        return self._candidates[self._place]

    @property
    def tried(self) -> list[tuple[T, float]]:
        """The candidates that have been scored, each with its last score."""
        return [(self._candidates[place], score) for place, score in self._scores.items()]

    def note(self, score: float) -> None:
        """Takes the score of the current candidate: work a second, or 0 if it cannot be used."""
        if self.settled:
            return
        best = self._scores.get(self._best, 0.0)
        is_better = self._place == self._best or score >= self._gain * best
        self._scores[self._place] = score
        if is_better:
            self._best = self._place
        is_last = self._place == len(self._candidates) - 1
        self.settled = is_last or not (is_better or score > self._hopeless * best)
        self._place = self._best if self.settled else self._place + 1

    def back(self) -> None:
        """Returns to the candidate before and searches on, since conditions may have changed."""
        self._place = self._best = max(0, self._place - 1)
        self.settled = False
