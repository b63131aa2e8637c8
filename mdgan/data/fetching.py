"""Samples fetched ahead: threads read what a shard draws next while training computes.

It pays where each sample is read when it is drawn (`Partitioner.read_one_by_one`); a data set in
memory has nothing to wait for. Which samples come next depends on the shard alone, so neither the
number of threads nor what they have already read changes any result.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from math import prod

import psutil
import torch
from torch import Tensor

from mdgan.data.images import Shape
from mdgan.data.readable import Readable
from mdgan.data.settings import DataSettings
from mdgan.errors import BadInput
from mdgan.gan.labels import Samples
from mdgan.settings.declare import flag

_AUTO_THREADS = 2
_AUTO_BATCHES = 4
_FLOAT_BYTES = 4


class Fetcher:
    """The threads of one process that read samples for all its shards.

    They start with the first sample that is asked for, so not before a rank has been forked.

    Args:
        threads: that read at once.
        buffer: how many samples are read ahead for each shard; 0 for none.

    Attributes:
        buffer: how many samples are read ahead for each shard; 0 for none.
    """

    def __init__(self, threads: int, buffer: int) -> None:
        self.buffer = buffer
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._fetched: list[Fetched] = []

    @classmethod
    def of(cls, settings: DataSettings, batch_size: int) -> "Fetcher":
        """As the user has it.

        Args:
            settings: of the run.
            batch_size: b.
        """
        threads, buffer = settings.data_threads, settings.data_buffer
        return cls(
            _AUTO_THREADS if threads == "auto" else threads,
            _AUTO_BATCHES * batch_size if buffer == "auto" else buffer,
        )

    def fetch(self, samples: Readable) -> "Fetched | None":
        """Fetches some samples ahead; None where that gains nothing."""
        if not self.buffer or not samples.read_one_by_one:
            return None
        self._fetched.append(Fetched(samples, self._submit))
        return self._fetched[-1]

    def close(self) -> None:
        """Ends the threads; what they are reading at this moment is still read."""
        for fetched in self._fetched:
            fetched.drop()
        if self._pool is not None:
            self._pool.shutdown()

    def _submit(self, read: Callable[[int], Tensor], position: int) -> Future[Tensor]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="data")
        return self._pool.submit(read, position)


class Fetched:
    """The samples of one shard that have been read, or are being read, before they are drawn.

    Args:
        samples: of the shard.
        submit: has a thread call a function with a position.
    """

    def __init__(
        self,
        samples: Readable,
        submit: Callable[[Callable[[int], Tensor], int], Future[Tensor]],
    ) -> None:
        self._samples = samples
        self._submit = submit
        self._reading: dict[int, Future[Tensor]] = {}

    def take(self, drawn: Tensor, coming: Tensor) -> Samples:
        """The samples that are drawn; those that come next are read while the caller goes on.

        What comes next may change from one call to the next, as when a shard goes back to an
        earlier state. Then other samples are read, and those that are no longer wanted are dropped.

        Args:
            drawn: int64 [b], positions in the shard.
            coming: int64 [k], positions in the order in which they will be drawn.

        Returns:
            As `Readable.samples`.

        Raises:
            BadInput: as `Readable.samples`.
        """
        now, later = drawn.tolist(), coming.tolist()
        self._read([*now, *later])
        try:
            images = [self._reading[position].result() for position in now]
        except Exception:  # a reader may raise anything
            return self._samples.samples(drawn)  # tries again, and replaces what cannot be read
        finally:
            self._read(later)
        return Samples(torch.cat(images), self._samples.labels[drawn])

    def drop(self) -> None:
        """Forgets everything that was read, and waits for what is being read."""
        begun = [future for future in self._reading.values() if not future.cancel()]
        self._reading = {}
        wait(begun)

    def _read(self, positions: list[int]) -> None:
        """Has exactly these samples read, if they are not yet, and forgets all others."""
        before, self._reading = self._reading, {}
        for position in positions:
            if position not in self._reading:
                known = before.pop(position, None)
                self._reading[position] = known or self._submit(self._samples.read, position)
        for future in before.values():
            future.cancel()


def check_buffer(settings: DataSettings, shape: Shape, num_workers: int) -> None:
    """Checks that what is read ahead fits into this machine's memory.

    Args:
        settings: of the run.
        shape: (C, H, W).
        num_workers: how many workers this machine carries.

    Raises:
        BadInput: it does not.
    """
    if settings.data_buffer == "auto":
        return
    needed = settings.data_buffer * num_workers * prod(shape) * _FLOAT_BYTES
    if needed > (memory := psutil.virtual_memory().total):
        raise BadInput(
            f"{flag('data_buffer')} {settings.data_buffer}: {num_workers} worker(s) here would "
            f"hold {needed / 1e9:,.1f} GB of samples read ahead, and this machine has "
            f"{memory / 1e9:,.1f} GB of memory; give fewer"
        )
