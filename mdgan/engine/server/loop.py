"""Rank 0: waits for workers, lets the algorithm train with them, records, saves, says goodbye."""

import contextlib
import time
from collections.abc import Collection
from functools import partial

from mdgan.engine.server.checkpoints import ServerCheckpoints
from mdgan.engine.server.engine import Engine
from mdgan.engine.server.peers import Peers
from mdgan.engine.server.scoring import ScorerLink
from mdgan.engine.server.secure_sums import lacking_for_sums
from mdgan.engine.server.trainer import Trainer
from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput, Interrupted
from mdgan.observe.tracer import memory_bytes
from mdgan.storage.fence import Fenced
from mdgan.storage.manifest import Manifest
from mdgan.timeouts import Timeouts

_TELL_SECONDS = 10.0
_SAVE_SECONDS = 30.0


class Server:
    """What the server does, whatever the algorithm.

    Args:
        trainer: the algorithm's share, and what goes with its generator.
        settings: of the run.
        peers: the hosts and workers that take part.
        checkpoints: of the run.
        scorer: gets generators to score.
        timeouts: the time limits.
    """

    def __init__(
        self,
        trainer: Trainer,
        settings: RunSettings,
        peers: Peers,
        checkpoints: ServerCheckpoints,
        scorer: ScorerLink,
        timeouts: Timeouts,
    ) -> None:
        part = trainer.part
        lacking = partial(lacking_for_sums, part, peers) if part.form.steps else part.lacking
        self._engine = Engine(trainer, settings, peers, checkpoints, scorer, timeouts, lacking)
        self._part = part
        self._trainer = trainer
        self._settings = settings
        self._peers = peers
        self._observer = peers.observer
        self._checkpoints = checkpoints
        self._timeouts = timeouts
        self._replaces_another = False

    def go_on(
        self, manifest: Manifest, changed: Collection[str], *, replaces_another: bool
    ) -> None:
        """Training goes on from a checkpoint, whose state has been loaded.

        Args:
            manifest: the checkpoint.
            changed: the names of settings that have other values since.
            replaces_another: whether this server takes over from one that died: then workers that
                do not come are left behind.
        """
        ended = manifest.iteration == manifest.settings.get("iterations")
        self._part.go_on(manifest.progress, changed, ended=ended)
        # What they hold may be what others gave them, which only the last server knew.
        self._peers.strikes.excuse(manifest.workers)
        self._replaces_another = replaces_another
        if replaces_another:  # with --resume the user has started every host anew
            self._peers.admission.keep_out(manifest.shut_out)

    def run(self) -> None:
        """Waits for all workers, trains, and says goodbye.

        Raises:
            BadInput: not all workers came in time.
            Interrupted: the user asked the server to stop; the run is saved.
            AllWorkersLost: no worker is left; the run is saved.
            Fenced: a later server has taken over; nothing more is written.
        """
        try:
            self._begin()
            self._train_and_save()
        finally:
            self._part.close()

    def _begin(self) -> None:
        try:
            self._await_workers()
            self._peers.begin()
            self._part.begin(self._engine)
            self._observer.begin(self._part.holdings(self._engine), self._engine.done)
        except Fenced:
            self._peers.transport.close()
            raise
        except BaseException as error:
            self._dismiss(self._why(error))
            self._observer.gave_up(self._engine.done)
            raise

    def _await_workers(self) -> None:
        """Waits until every expected rank is ready to train.

        Raises:
            BadInput: some did not come in time.
        """
        limits = self._timeouts
        patience = limits.liveness if self._replaces_another else limits.connect
        deadline = time.monotonic() + patience
        while absent := self._peers.absent():
            left = deadline - time.monotonic()
            ranks = ",".join(map(str, absent))
            if left <= 0 and self._replaces_another:
                self._observer.note(f"going on without rank(s) {ranks}, which did not come back")
                return
            if left <= 0:
                raise BadInput(
                    f"rank(s) {ranks} did not join within {limits.connect:g} s; start them "
                    f"with --ranks {ranks}, or wait longer with --connect-timeout"
                )
            event = self._peers.transport.receive(min(left, _TELL_SECONDS))
            self._engine.take_in(event)
            if event is None and time.monotonic() < deadline:
                self._observer.note(f"waiting for rank(s) {ranks} to join")

    def _train_and_save(self) -> None:
        state, reason = "failed", ""
        try:
            self._train()
            self._await_last_words()
            state = "finished"
        except Fenced:
            state = "fenced"  # another server has the folder and the hosts now
            raise
        except BaseException as error:
            state = "stopped" if isinstance(error, Interrupted) else "failed"
            reason = self._why(error)
            raise
        finally:
            if state == "fenced":
                self._peers.transport.close()
            else:
                self._end(state, reason)

    def _train(self) -> None:
        engine, part, last = self._engine, self._part, self._settings.iterations
        if engine.done == 0:
            self._save_if_due(-1)  # from here on nothing is lost for good
        while engine.done < last and not self._over:
            done = engine.done
            advance = part.advance(done, engine)
            if advance is not None:
                engine.done = advance.iteration
            if engine.done < last:
                engine.retire_spent()
            if advance is not None:
                if self._trainer.average is not None:
                    self._trainer.average.take_in(done, engine.done)
                self._observer.iteration(*advance)
                self._after(done)

    @property
    def _over(self) -> bool:
        """Whether training ends here, although iterations may be left."""
        return self._engine.all_spent or self._part.over

    def _after(self, before: int) -> None:
        """What is done between two iterations besides training.

        Args:
            before: the last iteration for which it was done.
        """
        engine = self._engine
        holdings = partial(self._part.holdings, engine)
        engine.scoring.after(before, engine.done, self._trainer.shown, holdings, ends=self._over)
        self._save_if_due(before)
        self._checkpoints.poll()
        self._peers.tell_of_absent()
        if self._observer.tracer.due():
            self._tell_spans()

    def _save_if_due(self, before: int) -> None:
        engine = self._engine
        if engine.all_spent:
            engine.save_alone()
        elif self._checkpoints.due(before, engine.done, ends=self._over):
            if self._over or engine.done == self._settings.iterations:
                engine.await_files()  # no worker trains any more: the one before can be completed
            engine.save()

    def _await_last_words(self) -> None:
        """Waits until all hosts have saved their workers, and described their data for scores."""
        engine = self._engine

        def lacks_descriptions() -> bool:
            engine.scoring.poll()
            return not (engine.scoring.described() or engine.stop_asked)

        with contextlib.suppress(Interrupted):
            engine.await_reports(lacks_descriptions)
        if not engine.stop_asked:
            engine.scoring.give_up_without_real()

    def _end(self, state: str, reason: str) -> None:
        self._dismiss(reason)
        if state == "finished":
            self._engine.scoring.finish()
        self._checkpoints.close(_SAVE_SECONDS)
        self._peers.tell_counts(self._engine.done)
        self._observer.end(state, self._engine.done, self._checkpoints.last)

    def _dismiss(self, reason: str) -> None:
        """Tells every host to stop, takes in their last words, and closes."""
        self._engine.see_off(reason)
        self._tell_spans(at_end=True)

    def _why(self, error: BaseException) -> str:
        """What hosts are told when training ends early."""
        if isinstance(error, Interrupted):
            return f"the server was asked to stop after iteration {self._engine.done}"
        return str(error) if isinstance(error, BadInput) else "the server failed"

    def _tell_spans(self, *, at_end: bool = False) -> None:
        observer, traffic = self._observer, self._peers.transport.traffic
        role, done = self._part.role, self._engine.done
        rows, moves = observer.tracer.take(), bool(traffic.sent or traffic.received)
        moved = (traffic.sent, traffic.received) if moves else (None, None)
        observer.spans(role, done, rows, *moved, memory_bytes=memory_bytes())
        fetcher = self._trainer.fetcher
        fetching = None if fetcher is None else fetcher.tell(at_end=at_end)
        profile = observer.tracer.profile(at_end=at_end)
        observer.of_process(role, done, {"fetching": fetching, "profile": profile})
