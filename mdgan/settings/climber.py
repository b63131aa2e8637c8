"""The one search for numbers that decide speed alone: candidates in turn, while they get better."""

from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class HillClimber(Generic[T]):
    """Tries one candidate after another, and stays with the best once further ones are no better.

    Args:
        gain: how many times the best score so far makes a candidate better; 0: any score does.
        hopeless: at most so many times the best score, a candidate that is not better is the last
            that is tried; as `gain` if not given, so that the first one is.
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
        """The one to use now: the best, once the search is over."""
        return self._candidates[self._place]

    @property
    def tried(self) -> list[tuple[T, float]]:
        """The candidates that have a score, with their last ones."""
        return [(self._candidates[place], score) for place, score in self._scores.items()]

    def note(self, score: float) -> None:
        """The candidate in use has a score ≥ 0, work a second; 0 if it cannot be used."""
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
        """Goes back to the candidate before, as things may have changed, and searches on."""
        self._place = self._best = max(0, self._place - 1)
        self.settled = False
