"""Follows a run while it trains: shows a progress bar, and calls the user's functions."""

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
    """How far a run is; `mdgan.train` passes it to callbacks."""

    iteration: int  # the iteration of the losses or the scores
    iterations: int  # how many the run will have
    # The newest losses of `generator` and `discriminator`; NaN for one that was not finite.
    losses: dict[str, float]
    scores: dict[str, float]  # by name, such as `fid`; empty if this iteration was not scored
    run: Run  # such as for `run.sample()`, which uses the newest generator that was saved


Callback = Callable[[Reached], object]
"""A function that mdgan calls for each logged iteration and each score; True stops the run."""

_CLOSED_OUTPUT = (AttributeError, OSError, ValueError)  # errors of a closed output
_NUM_SAMPLES_SCORED = 1000  # for each call of the user's functions


class Screen:
    """Shows the user lines, and on terminals and in notebooks a progress bar.

    Args:
        first: the first line; empty if there is none.
        quiet: whether to show nothing.
    """

    def __init__(self, first: str = "", *, quiet: bool = False) -> None:
        shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
        is_notebook = type(shell).__name__ == "ZMQInteractiveShell"
        self._quiet = quiet
        self._redraws = not quiet and is_notebook
        self._bar: Any = None
        with contextlib.suppress(*_CLOSED_OUTPUT):
            self._redraws |= not quiet and sys.stdout.isatty()
        if first:
            self.show(first)

    def show(self, line: LineLogged | str) -> None:
        """Shows a line that the user's code printed, or one of mdgan, with the time in a file."""
        if isinstance(line, LineLogged):
            if line.shown == "live" and self._bar is not None:  # the bar shows it
                return
            if line.shown == "result":
                self.close()
            has_time = line.shown != "result" and not self._redraws
            stamp = time.strftime("%Y-%m-%d %H:%M:%S ") if has_time else ""
            line = f"{stamp}{'mdgan: ' * line.is_warning}{line.text}"
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        line = line.rstrip("\n").encode(encoding, "replace").decode(encoding)
        with contextlib.suppress(*_CLOSED_OUTPUT):
            if self._bar is not None:
                self._bar.write(line)
            elif not self._quiet:
                sys.stdout.write(line + "\n")
                sys.stdout.flush()

    def begin_bar(self, begun: TrainingBegun) -> None:
        """Begins a bar if the output can redraw one."""
        if not self._redraws:
            return
        with warnings.catch_warnings(), contextlib.suppress(ImportError, *_CLOSED_OUTPUT):
            warnings.simplefilter("ignore")  # without ipywidgets it is a bar of text
            bar = import_module("tqdm.auto").tqdm
            self._bar = bar(unit="it", total=begun.iterations, initial=begun.iteration)

    def advance_bar(self, reached: Reached) -> None:
        """Moves the bar to the newest iteration."""
        if self._bar is not None:
            values = {name: f"{v:.3g}" for name, v in (reached.losses | reached.scores).items()}
            self._bar.n = max(self._bar.n, reached.iteration)  # scores arrive late
            with contextlib.suppress(*_CLOSED_OUTPUT):
                self._bar.set_postfix(values)

    def close(self) -> None:
        """Ends the bar, which stays on the screen as it is."""
        bar, self._bar = self._bar, None
        with contextlib.suppress(*_CLOSED_OUTPUT):
            bar.close()


@dataclass
class Follower:
    """Calls the user's callbacks while a run trains, and scores it by the user's functions."""

    run: Run
    screen: Screen
    callbacks: Sequence[Callback] = ()
    # Functions of samples by name. The follower calls them whenever training scores.
    scores: "Mapping[str, Callable[[Tensor], float]] | None" = None
    _iterations: int = 0
    _losses: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_functions(self.callbacks, self.scores)

    def train(
        self, request: TrainingRequest, pickled_models: bytes = b"", stop: Event | None = None
    ) -> None:
        """Trains in a child process until the end, or until the user stops it; see `run_child`."""
        with contextlib.closing(self.screen):
            run_child(request, pickled_models, show=self.screen.show, follow=self.follow, stop=stop)

    def follow(self, event: ProgressEvent) -> bool:
        """Passes an event to the screen and the callbacks; True if a callback stops the run."""
        if isinstance(event, TrainingBegun):
            self._iterations = event.iterations
            self.screen.begin_bar(event)
            return False
        scores: dict[str, float] = {}
        if isinstance(event, IterationLogged):
            self._losses = {name: nan if v is None else v for name, v in event.losses.items()}
        else:
            scores = {name: value for name, value in event.scores.items() if value is not None}
            scores |= self._score()
        reached = Reached(
            event.iteration, self._iterations, losses=self._losses, scores=scores, run=self.run
        )
        self.screen.advance_bar(reached)
        answers = [callback(reached) for callback in self.callbacks]
        return any(answer is True for answer in answers)

    def _score(self) -> dict[str, float]:
        """Scores samples of the newest generator by the user's functions, and records that."""
        if not self.scores:
            return {}
        samples = self.run.sample(_NUM_SAMPLES_SCORED)
        values = {name: float(score(samples)) for name, score in self.scores.items()}
        record = {"event": OWN_SCORES, "iteration": self.run.iteration, "scores": values}
        with contextlib.suppress(OSError):  # a full disk stops no training
            RunDirectory(self.run.path).append_metrics(record)
        return values
