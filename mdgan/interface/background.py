"""`mdgan.start`: a handle on a run that trains in the background."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdgan.interface.follow import Callback, Reached
from mdgan.interface.run import Run


class Background:
    """A run in the background, which a thread follows; `reached` is None before it logs."""

    def __init__(self, train: Callable[[Callback, threading.Event], Run]) -> None:
        self.reached: Reached | None = None
        self._stop = threading.Event()
        self._run: Run | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._follow, args=(train,), daemon=True)
        self._thread.start()

    def _follow(self, train: Callable[[Callback, threading.Event], Run]) -> None:
        try:
            self._run = train(self._look, self._stop)
        except BaseException as error:  # it is raised where the program waits
            self._error = error

    def _look(self, reached: Reached) -> None:
        self.reached = reached

    @property
    def done(self) -> bool:
        """Whether it is over, however it ended; `wait` tells how."""
        return not self._thread.is_alive()

    @property
    def run(self) -> Run | None:
        """The run; None before its first logged iteration."""
        return self._run if self._run or self.reached is None else self.reached.run

    @property
    def path(self) -> Path | None:
        """The run's folder; None before its first logged iteration."""
        return None if self.run is None else self.run.path

    @property
    def losses(self) -> NDArray[Any]:
        """Those of `Run.losses` so far."""
        return np.empty(0) if self.run is None else self.run.losses

    @property
    def scores(self) -> NDArray[Any]:
        """Those of `Run.scores` so far."""
        return np.empty(0) if self.run is None else self.run.scores

    def wait(self, seconds: float | None = None) -> Run:
        """Waits until it is over.

        Raises:
            TimeoutError: it is not over after that many seconds; it goes on.
            BadInput, RunFailed: as `train`.
        """
        self._thread.join(seconds)
        if self._thread.is_alive():
            raise TimeoutError(f"the run goes on after {seconds:g} s; stop() ends it")
        if self._error is not None:
            raise self._error
        assert self._run is not None
        return self._run

    def stop(self) -> Run:
        """Stops it as Ctrl-C does, and waits until it is saved; `Run.resume` goes on.

        Of a run that has not begun, the `state` is `stopped` and the `iteration` 0.
        """
        self._stop.set()
        return self.wait()

    def __repr__(self) -> str:
        if self.reached is None:
            if self._run is not None:
                return f"<{self._run.path}: {self._run.state} before its first logged iteration>"
            return "<a run that could not begin>" if self.done else "<a run that is starting>"
        at = f"iteration {self.reached.iteration} of {self.reached.iterations}"
        return f"<{self.reached.run.path}: {at}{', over' if self.done else ''}>"
