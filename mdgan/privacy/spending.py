"""A host's side of budgets: its workers leave before they would spend more than they may."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from mdgan import messages
from mdgan.messages import Message
from mdgan.privacy.budget import Budget, Spent
from mdgan.privacy.canaries import CANARIES


@dataclass(frozen=True)
class Ending:
    """Workers whose present answer is their last, with their budgets."""

    budgets: Mapping[int, Budget]

    def tell(self, iteration: int, send: Callable[[Message], object]) -> None:
        """Tells the server; comes before their answer, so that the server asks no more."""
        if self.budgets:
            limits = {str(worker): budget.limit for worker, budget in self.budgets.items()}
            send(messages.spent(iteration, limits))


class Spending:
    """The budgets of the workers of one host, as far as their samples have one."""

    def __init__(self, budgets: Mapping[int, Budget]) -> None:
        self._budgets = budgets
        self._before: dict[str, dict[str, float]] = {}

    def attend(self, run: Path) -> None:
        """A server has let this host in; canaries are remembered in the run's folder here."""
        for worker, budget in self._budgets.items():
            if budget.canaries is not None:
                budget.canaries.open(run / CANARIES / f"{worker}.json")

    def lets(self, worker: int) -> bool:
        """Whether a worker may train another iteration."""
        return self.most(worker, 1) > 0

    def most(self, worker: int, iterations: int) -> int:
        """How many of some iterations a worker may train."""
        budget = self._budgets.get(worker)
        return iterations if budget is None else min(iterations, budget.iterations_left)

    def ending(self, iterations: Mapping[int, int]) -> Ending:
        """The workers that can train no iteration more after those that each is about to train."""
        budgets = {n: budget for n, budget in self._budgets.items() if n in iterations}
        return Ending({n: b for n, b in budgets.items() if b.iterations_left <= iterations[n]})

    def over(self) -> Ending:
        """The workers that can train no iteration at all."""
        return self.ending(dict.fromkeys(self._budgets, 0))

    def leaves_early(self, workers: Collection[int]) -> bool:
        """Whether all of some workers leave before the end, by their own accounts."""
        return all(n in self._budgets and self._budgets[n].ends_early for n in workers)

    def told(self, *, exactly: bool) -> dict[str, dict[str, float]]:
        """What `Spent` says of each worker, by name and worker, if one has changed since."""
        now = self.account(exactly=exactly)
        if not self._budgets or now == self._before:
            return {}
        self._before = now
        return now

    def account(self, *, exactly: bool) -> dict[str, dict[str, float]]:
        """What `Spent` says of each worker that has a budget, by name and worker."""
        spent = {str(n): own.spent(exactly=exactly) for n, own in self._budgets.items()}
        names = Spent._fields
        return {name: {n: getattr(own, name) for n, own in spent.items()} for name in names}

    def close(self) -> None:
        """The host ends in order."""
        for budget in self._budgets.values():
            budget.close()
