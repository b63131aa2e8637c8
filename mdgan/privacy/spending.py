"""The budgets of a host's workers: a worker leaves before it would exceed its budget."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from mdgan import messages
from mdgan.messages import Message
from mdgan.privacy.budget import Budget, Spent
from mdgan.privacy.canaries import CANARIES


@dataclass(frozen=True)
class Ending:
    """The workers that leave after their present answer, with their budgets."""

    budgets: Mapping[int, Budget]

    def tell(self, iteration: int, send: Callable[[Message], object]) -> None:
        """Tells the server before their last answer, so that it asks these workers no more."""
        if self.budgets:
            limits = {str(worker): budget.limit for worker, budget in self.budgets.items()}
            send(messages.spent(iteration, limits))


class Spending:
    """The budgets of one host's workers; some workers may have none."""

    def __init__(self, budgets: Mapping[int, Budget]) -> None:
        self._budgets = budgets
        self._before: dict[str, dict[str, float]] = {}

    def attend(self, run: Path) -> None:
        """Opens the canaries' files in the run's folder here, once the server lets the host in."""
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
        """The workers whose budget ends with the iterations that each is about to train."""
        budgets = {n: budget for n, budget in self._budgets.items() if n in iterations}
        return Ending({n: b for n, b in budgets.items() if b.iterations_left <= iterations[n]})

    def over(self) -> Ending:
        """The workers that cannot train a single iteration."""
        return self.ending(dict.fromkeys(self._budgets, 0))

    def leaves_early(self, workers: Collection[int]) -> bool:
        """Whether all these workers leave before the run ends, by their own accounts."""
        return all(n in self._budgets and self._budgets[n].ends_early for n in workers)

    def told(self, *, exactly: bool) -> dict[str, dict[str, float]]:
        """The account, or nothing if it has not changed since the last call."""
        account = self.account(exactly=exactly)
        if not self._budgets or account == self._before:
            return {}
        self._before = account
        return account

    def account(self, *, exactly: bool) -> dict[str, dict[str, float]]:
        """The values of `Spent`, by name and then by worker, of all workers with a budget."""
        spent = {str(n): budget.spent(exactly=exactly) for n, budget in self._budgets.items()}
        names = Spent._fields
        return {name: {n: getattr(one, name) for n, one in spent.items()} for name in names}

    def close(self) -> None:
        """Closes all budgets when the host's process ends in order."""
        for budget in self._budgets.values():
            budget.close()
