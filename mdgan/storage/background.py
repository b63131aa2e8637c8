"""Writes in a second thread: a slow or full disk costs checkpoints, not iterations."""

import errno
import threading
import time
from collections.abc import Callable

Job = Callable[[], None]
OnError = Callable[[OSError], None]


class BackgroundWriter:
    """A thread that writes one job at a time, while at most one more job waits.

    A waiting job holds states in memory, so a newer job replaces it if the disk is too slow.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: tuple[Job, OnError] | None = None
        self._busy = False
        self._closed = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="background-writer", daemon=True)
        self._thread.start()

    def submit_newest(self, job: Job, on_error: OnError) -> None:
        """Queues a job; it replaces a waiting one, as the newest checkpoint is worth most.

        After `close` the job never runs.

        Args:
            on_error: called with the job's OSError in the writing thread; or, if a newer job
                replaces this one, in the thread that submits the newer job.

        Raises:
            BaseException: what an earlier job has raised, other than an OSError; raised once.
        """
        self.drain(0.0)
        with self._changed:
            if self._closed:
                return
            displaced, self._waiting = self._waiting, (job, on_error)
            self._changed.notify_all()
        if displaced is not None:
            displaced[1](OSError(errno.EAGAIN, "the disk cannot keep up"))

    def drain(self, timeout_seconds: float) -> bool:
        """Waits until all jobs have ended; raises as `submit_newest`."""
        done = self._wait_idle(timeout_seconds)
        with self._changed:
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        return done

    def close(self, timeout_seconds: float) -> bool:
        """Accepts no more jobs, and waits until the accepted ones have ended.

        Returns:
            Whether they have ended in time. If not, the end of the process cuts them off.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        deadline = time.monotonic() + timeout_seconds
        done = self._wait_idle(timeout_seconds)
        self._thread.join(max(0.0, deadline - time.monotonic()))
        return done

    def _wait_idle(self, timeout_seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(
                lambda: self._waiting is None and not self._busy, timeout_seconds
            )

    def _work(self) -> None:
        while (entry := self._next()) is not None:
            job, on_error = entry
            try:
                try:
                    job()
                except OSError as error:
                    on_error(error)
            except BaseException as error:  # `drain` raises it in the thread that trains
                with self._changed:
                    self._failure = error
            del job, on_error, entry  # frees the states that the job holds
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def _next(self) -> tuple[Job, OnError] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting is not None or self._closed)
            entry, self._waiting = self._waiting, None
            self._busy = entry is not None
            return entry
