"""Writes in a thread beside training: a slow or full disk costs checkpoints, not iterations."""

import errno
import threading
import time
from collections.abc import Callable

Job = Callable[[], None]
OnError = Callable[[OSError], None]


class BackgroundWriter:
    """One thread that writes. While it works on a job, one more may wait.

    A waiting job holds states in memory, so jobs are dropped if the disk cannot keep up.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: tuple[Job, OnError] | None = None
        self._busy = False
        self._closed = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="background-writer", daemon=True)
        self._thread.start()

    def submit_newest(self, job: Job, on_error: OnError) -> bool:
        """Queues a job in place of one that is waiting: the newest checkpoint is worth most.

        Args:
            on_error: called in that thread with the job's OSError, such as a full disk; or in the
                thread that replaces the job by a newer one.

        Returns:
            False after `close`: then this job never runs.

        Raises:
            BaseException: an earlier job has failed with it, and not with an OSError; raised once.
        """
        self.drain(0.0)
        with self._changed:
            if self._closed:
                return False
            displaced, self._waiting = self._waiting, (job, on_error)
            self._changed.notify_all()
        if displaced is not None:
            displaced[1](OSError(errno.EAGAIN, "the disk cannot keep up"))
        return True

    def drain(self, timeout_seconds: float) -> bool:
        """Waits until all jobs have ended; raises as `submit_newest`."""
        done = self._wait_idle(timeout_seconds)
        with self._changed:
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        return done

    def close(self, timeout_seconds: float) -> bool:
        """Accepts no more jobs, and waits until those that it has accepted have ended.

        Returns:
            Whether they have ended in time; if not, they are cut off when the process ends.
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
        while (next_one := self._next()) is not None:
            job, on_error = next_one
            try:
                try:
                    job()
                except OSError as error:
                    on_error(error)
            except BaseException as error:  # `drain` tells the thread that trains
                with self._changed:
                    self._failure = error
            del job, on_error, next_one  # frees the states that the job holds
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def _next(self) -> tuple[Job, OnError] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting is not None or self._closed)
            taken, self._waiting = self._waiting, None
            self._busy = taken is not None
            return taken
