"""Writing beside training: a slow or full disk costs checkpoints, not iterations."""

import errno
import threading
import time
from collections.abc import Callable

Job = Callable[[], None]
OnError = Callable[[OSError], None]


class BackgroundWriter:
    """One thread that writes. One job may wait while another is under way, no more.

    States that wait to be written take memory, so a disk that cannot keep up must cost jobs.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: tuple[Job, OnError] | None = None
        self._busy = False
        self._closed = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="background-writer", daemon=True)
        self._thread.start()

    def submit(self, job: Job, on_error: OnError) -> bool:
        """Has a job done as soon as those before it are done.

        Args:
            job: writes; runs in another thread.
            on_error: called in that thread with the job's OSError, such as a full disk.

        Returns:
            False if a job is waiting already, or after `close`: this one will not be done.

        Raises:
            BaseException: what an earlier job raised besides an OSError; once.
        """
        with self._changed:
            self._raise_failure()
            if self._waiting is not None or self._closed:
                return False
            self._waiting = (job, on_error)
            self._changed.notify_all()
            return True

    def submit_newest(self, job: Job, on_error: OnError) -> bool:
        """`submit`, but in place of a job that is waiting: the newest is worth most.

        The `on_error` of that job is called here.

        Returns:
            False after `close`: this one will not be done.

        Raises:
            BaseException: what an earlier job raised besides an OSError; once.
        """
        with self._changed:
            displaced, self._waiting = self._waiting, None
            taken = self.submit(job, on_error)
        if displaced is not None:
            displaced[1](OSError(errno.EAGAIN, "the disk cannot keep up"))
        return taken

    def drain(self, timeout_seconds: float) -> bool:
        """Waits until everything is written.

        Returns:
            Whether it is.

        Raises:
            BaseException: what a job raised besides an OSError; once.
        """
        done = self._wait_idle(timeout_seconds)
        with self._changed:
            self._raise_failure()
        return done

    def close(self, timeout_seconds: float) -> bool:
        """Takes no more jobs, and waits until those it has are done.

        Returns:
            Whether they are; if not, they end with the process.
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

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _work(self) -> None:
        while (next_one := self._next()) is not None:
            job, on_error = next_one
            try:
                try:
                    job()
                except OSError as error:
                    on_error(error)
            except BaseException as error:  # the thread that trains must hear of it
                with self._changed:
                    self._failure = error
            del job, on_error, next_one  # with the states that they hold
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def _next(self) -> tuple[Job, OnError] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting is not None or self._closed)
            taken, self._waiting = self._waiting, None
            self._busy = taken is not None
            return taken
