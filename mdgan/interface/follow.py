"""Follows a run under way: progress bars, the user's callbacks, and scores of one's own."""

import contextlib
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from threading import Event
from typing import TYPE_CHECKING, Any

from mdgan.interface.child import Audience
from mdgan.interface.run import OWN_SCORES, Run
from mdgan.records.row_reader import METRICS, RunTail
from mdgan.records.rows import Losses, ScoresRow, typed
from mdgan.records.run_directory import RunDirectory

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Reached:
    """How far a run is, as callbacks are told."""

    iteration: int  # that the losses or the scores are of
    iterations: int  # that the run will have; 0 while that is not known
    # The newest of `generator` and `discriminator`; NaN where one was not finite.
    losses: dict[str, float]
    scores: dict[str, float]  # of this iteration by name, such as `fid`; empty if it was not scored
    run: Run  # for `run.sample()` and all else, of the newest generator that was saved


Callback = Callable[[Reached], object]
"""Told of each logged iteration and of each time that training scored; True stops the run."""

_NUM_SCORED = 1000  # samples that the user's own scores are of


@dataclass
class Follower:
    """Looks at a run's folder while it trains."""

    run: Run
    callbacks: Sequence[Callback] = ()
    # By name, functions of samples that are called whenever training scores.
    scores: "Mapping[str, Callable[[Tensor], float]] | None" = None
    stop: Event | None = None  # asks the run to stop
    begin: int = 0  # up to this iteration nothing is news
    reached: Reached | None = None  # the newest; None before the first logged iteration

    def __post_init__(self) -> None:
        """Begins at the start of the run's records."""
        self._tail = RunTail(self.run.path)
        self._losses: dict[str, float] = {}

    def look(self) -> bool:
        """Tells what is new; whether a callback wants the run to stop."""
        stops = self.stop is not None and self.stop.is_set()
        for news in self._tail.read():
            for record in news.records if news.name == METRICS else ():
                reached = self._understood(record)
                if reached is None:
                    continue
                self.reached = reached
                for callback in self.callbacks:
                    stops |= callback(reached) is True
        return stops

    def _understood(self, record: Mapping[str, Any]) -> Reached | None:
        scores: dict[str, float] = {}
        if not self.begin < int(record.get("iteration", 0)):
            return None
        with contextlib.suppress(ValueError):
            if "generator_loss" in record:
                row = typed(record, Losses)
                both = {"generator": row.generator_loss, "discriminator": row.discriminator_loss}
                self._losses = {k: float("nan") if v is None else v for k, v in both.items()}
            elif record.get("event") == "scores" and record.get("by") is None:
                found = typed(record, ScoresRow).scores
                scores = {name: value for name, value in found.items() if value is not None}
                scores |= self._own_scores()
            else:
                return None
            return Reached(
                int(record["iteration"]), self._iterations(), self._losses, scores, self.run
            )
        return None

    def _iterations(self) -> int:
        with contextlib.suppress(OSError, ValueError):
            content = (self.run.path / "config.json").read_bytes()
            return int(json.loads(content).get("iterations") or 0)
        return 0

    def _own_scores(self) -> dict[str, float]:
        """Records what the user's functions say of samples of the newest generator."""
        if not self.scores:
            return {}
        samples = self.run.sample(_NUM_SCORED)
        found = {name: float(score(samples)) for name, score in self.scores.items()}
        iteration = self.run.iteration
        record = {"event": OWN_SCORES, "iteration": iteration, "scores": found}
        with contextlib.suppress(OSError):  # a full disk stops no training
            RunDirectory(self.run.path).append_metrics(record)
        return found


@contextlib.contextmanager
def shown_to_user(quiet: bool, follower: Follower, own: str) -> Iterator[Audience]:
    """What the user sees of a command: a progress bar on terminals and in notebooks, else lines."""
    bar = None if quiet else _bar()
    if bar is None:
        yield Audience(quiet, look=follower.look, own=own)
        return

    def look() -> bool:
        stops, reached = follower.look(), follower.reached
        if reached is not None:
            bar.total = reached.iterations or None
            bar.n = reached.iteration
            told = {name: f"{value:.3g}" for name, value in reached.losses.items()}
            bar.set_postfix(told | {k: f"{v:.3g}" for k, v in reached.scores.items()})
        return stops

    def write(line: str) -> None:
        if " it/s | " in line:  # the bar says that
            return
        if line.startswith("done: "):
            look()
            bar.close()
        bar.write(line.rstrip("\n"))

    with contextlib.closing(bar):
        yield Audience(quiet, write, look, own)


def _bar() -> Any:
    """A progress bar of tqdm; None where there is none, or output goes to a file."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if not (sys.stdout.isatty() or type(shell).__name__ == "ZMQInteractiveShell"):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without ipywidgets it is a bar of text
        try:
            return import_module("tqdm.auto").tqdm(unit="it", leave=True)
        except ImportError:
            return None
