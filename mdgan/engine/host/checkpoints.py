"""A host's side of checkpoints: writes the files of its workers, and loads them again."""

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mdgan import messages
from mdgan.engine.host.protocol import OutOfTurn
from mdgan.engine.parts import Learner
from mdgan.messages import Message
from mdgan.observe.tracer import Tracer
from mdgan.storage.background import BackgroundWriter
from mdgan.storage.checkpoints import Checkpoints, worker_file
from mdgan.storage.state_file import Damaged, StoredFile, write_state

_CLOSE_SECONDS = 10.0


class HostCheckpoints:
    """Writes and loads the states of one host's workers.

    Args:
        folder: from the server's welcome, gives the folder of the run's checkpoints here.
        keep: how many checkpoints stay, beside unfinished ones; see `Checkpoints.prune_worker`.
        to_server: whether this host's own settings let states go to the server.
    """

    def __init__(
        self, folder: Callable[..., Path], tracer: Tracer, keep: int, *, to_server: bool = False
    ) -> None:
        self._folder, self._tracer = folder, tracer
        self._keep, self.to_server = keep, to_server
        self._writer = BackgroundWriter()
        self._path: Path | None = None

    def attend(self, welcome: Mapping[str, Any]) -> Path:
        """Notes that a server let this host in; returns the run's folder here, always the same."""
        if self._path is None:
            self._path = self._folder(welcome)
            self._checkpoints = Checkpoints(self._path, self._keep)
        return self._path.parent

    def save(
        self, order: Message, workers: Mapping[int, Learner], send: Callable[[Message], Any]
    ) -> None:
        """Copies the states of all workers; writes them, and reports, in the background."""
        kept = [*map(int, order.fields["kept"])]
        wants_states = order.fields["to_server"]
        if wants_states and not self.to_server:
            raise OutOfTurn("it wants states of workers, and no checkpoint_to_server is set here")
        states = {rank: worker.state() for rank, worker in workers.items()}
        if wants_states:
            send(messages.state(order.iteration, states, "checkpoint"))
            return
        checkpoints = self._checkpoints

        def write() -> None:
            self._tracer.reach("write", order.iteration)
            files = {}
            for rank, state in states.items():
                folder = checkpoints.make_folder_of(order.iteration)
                files[rank] = write_state(folder, worker_file(rank), state).as_record()
                checkpoints.prune_worker(rank, kept, order.iteration)
            self._tracer.reach("report", order.iteration)
            send(messages.checkpointed(order.iteration, files))

        def failed(error: OSError) -> None:
            reason = error.strerror or type(error).__name__  # str(error) may name a file
            send(messages.checkpointed(order.iteration, {}, reason))

        self._writer.submit_newest(write, failed)

    def restore(self, newest: Mapping[str, Any], workers: Mapping[int, Learner]) -> list[int]:
        """Loads the workers whose files of the newest checkpoint are here; returns their ranks."""
        loaded = []
        for rank, worker in workers.items():
            record = newest["files"].get(str(rank))
            if record is None:
                continue
            # The server finds another state for a worker whose file is damaged or of other models.
            with contextlib.suppress(Damaged, KeyError, RuntimeError):
                stored = StoredFile.from_record(record)
                state = self._checkpoints.find(int(newest["iteration"]), stored)
                if state is not None:
                    worker.load_state(state)
                    loaded.append(rank)
        return loaded

    def close(self) -> None:
        """Waits until everything is written."""
        self._writer.close(_CLOSE_SECONDS)
