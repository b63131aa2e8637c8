"""Follows a run under way: progress bars, the user's callbacks, and scores of one's own."""

import contextlib
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from math import nan
from threading import Event
from typing import TYPE_CHECKING, Any

from mdgan.interface.child import run_child
from mdgan.interface.messages import LineLogged, TrainingRequest
from mdgan.interface.run import OWN_SCORES, Run
from mdgan.interface.settings import check_functions
from mdgan.observe.events import IterationLogged, ProgressEvent, TrainingBegun
from mdgan.records.run_directory import RunDirectory

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Reached:
    """How far a run is, as callbacks are told."""

    iteration: int  # that the losses or the scores are of
    iterations: int  # that the run will have
    # The newest of `generator` and `discriminator`; NaN where one was not finite.
    losses: dict[str, float]
    scores: dict[str, float]  # of this iteration by name, such as `fid`; empty if it was not scored
    run: Run  # for `run.sample()` and all else, of the newest generator that was saved


Callback = Callable[[Reached], object]
"""Told of each logged iteration and of each time that training scored; True stops the run."""

_CLOSED = (AttributeError, OSError, ValueError)  # of an output that is closed, or read no more
_NUM_SCORED = 1000  # samples that the user's own scores are of


class Screen:
    """What the user sees: lines, and on terminals and in notebooks a progress bar of a training.

    Args:
        first: the first line; empty if there is none.
        quiet: nothing is shown.
    """

    def __init__(self, first: str = "", *, quiet: bool = False) -> None:
        shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
        is_notebook = type(shell).__name__ == "ZMQInteractiveShell"
        self._quiet = quiet
        self._redraws = not quiet and is_notebook
        self._bar: Any = None
        with contextlib.suppress(*_CLOSED):
            self._redraws |= not quiet and sys.stdout.isatty()
        if first:
            self.show(first)

    def show(self, line: LineLogged | str) -> None:
        """Shows a line of mdgan, with the time unless a terminal shows it, or of the program."""
        if isinstance(line, LineLogged):
            if line.shown == "live" and self._bar is not None:  # the bar says that
                return
            if line.shown == "result":
                self.close()
            has_time = line.shown != "result" and not self._redraws
            stamp = time.strftime("%Y-%m-%d %H:%M:%S ") if has_time else ""
            line = f"{stamp}{'mdgan: ' * line.is_warning}{line.text}"
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        line = line.rstrip("\n").encode(encoding, "replace").decode(encoding)
        with contextlib.suppress(*_CLOSED):
            if self._bar is not None:
                self._bar.write(line)
            elif not self._quiet:
                sys.stdout.write(line + "\n")
                sys.stdout.flush()

    def begin_bar(self, begun: TrainingBegun) -> None:
        """Begins a bar, if bars can be redrawn here."""
        if not self._redraws:
            return
        with warnings.catch_warnings(), contextlib.suppress(ImportError, *_CLOSED):
            warnings.simplefilter("ignore")  # without ipywidgets it is a bar of text
            bar = import_module("tqdm.auto").tqdm
            self._bar = bar(unit="it", total=begun.iterations, initial=begun.iteration)

    def advance_bar(self, reached: Reached) -> None:
        """Shows how far the run is."""
        if self._bar is not None:
            told = {name: f"{v:.3g}" for name, v in {**reached.losses, **reached.scores}.items()}
            self._bar.n = reached.iteration
            with contextlib.suppress(*_CLOSED):
                self._bar.set_postfix(told)

    def close(self) -> None:
        """Leaves the bar as it is now."""
        bar, self._bar = self._bar, None
        with contextlib.suppress(*_CLOSED):
            bar.close()


@dataclass
class Follower:
    """Tells callbacks of a run while it trains, and scores it by the user's own functions."""

    run: Run
    screen: Screen
    callbacks: Sequence[Callback] = ()
    # By name, functions of samples that are called whenever training scores.
    scores: "Mapping[str, Callable[[Tensor], float]] | None" = None
    _iterations: int = 0
    _losses: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_functions(self.callbacks, self.scores)

    def train(
        self, request: TrainingRequest, handed: bytes = b"", stop: Event | None = None
    ) -> None:
        """Trains in a child process, to the end or until it is stopped; see `run_child`."""
        with contextlib.closing(self.screen):
            run_child(request, handed, show=self.screen.show, follow=self.follow, stop=stop)

    def follow(self, event: ProgressEvent) -> bool:
        """Tells what is new; whether a callback wants the run to stop."""
        if isinstance(event, TrainingBegun):
            self._iterations = event.iterations
            self.screen.begin_bar(event)
            return False
        scores: dict[str, float] = {}
        if isinstance(event, IterationLogged):
            self._losses = {name: nan if v is None else v for name, v in event.losses.items()}
        else:
            scores = {name: value for name, value in event.scores.items() if value is not None}
            scores |= self._own_scores()
        reached = Reached(
            event.iteration, self._iterations, losses=self._losses, scores=scores, run=self.run
        )
        self.screen.advance_bar(reached)
        answers = [callback(reached) for callback in self.callbacks]
        return any(answer is True for answer in answers)

    def _own_scores(self) -> dict[str, float]:
        """Records what the user's functions say of samples of the newest generator."""
        if not self.scores:
            return {}
        samples = self.run.sample(_NUM_SCORED)
        found = {name: float(score(samples)) for name, score in self.scores.items()}
        record = {"event": OWN_SCORES, "iteration": self.run.iteration, "scores": found}
        with contextlib.suppress(OSError):  # a full disk stops no training
            RunDirectory(self.run.path).append_metrics(record)
        return found
