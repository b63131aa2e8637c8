"""The main loop of rank 0: waits for workers, runs the algorithm, records, saves, ends the run."""

import contextlib
import time
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial

from mdgan.engine.server.hosts import workers_of
from mdgan.engine.server.running_engine import RunningEngine
from mdgan.errors import BadInput, Interrupted
from mdgan.observe.tracer import memory_bytes
from mdgan.spelling import count, flag, key
from mdgan.storage.fence import Fenced
from mdgan.storage.manifest import Manifest

_TELL_SECONDS = 10.0
_SETTLE_SECONDS = 1.0  # hosts that join within this long of each other are logged in one line
_SAVE_SECONDS = 30.0


@dataclass
class Server:
    """Runs rank 0 with any algorithm."""

    engine: RunningEngine

    def __post_init__(self) -> None:
        engine = self.engine
        self.trainer, self.part, self.settings = engine.trainer, engine.part, engine.settings
        self.peers, self.observer = engine.peers, engine.observer
        self.checkpoints, self.timeouts = engine.checkpoints, engine.timeouts
        self._goes_on = self._replaces_another = False

    def go_on(
        self, manifest: Manifest, changed: Collection[str], *, replaces_another: bool
    ) -> None:
        """Prepares to continue from a checkpoint whose state has been loaded.

        A server that replaces a dead one (`replaces_another`) gives workers less time to join.
        """
        ended = manifest.iteration == manifest.settings.get("iterations")
        self.part.go_on(manifest.progress, changed, ended=ended)
        self.peers.admission.restore(manifest, takes_over=replaces_another)
        # Swaps move discriminators, and only the previous server knew which worker trained which.
        self.peers.strikes.excuse(manifest.workers)
        self._goes_on, self._replaces_another = True, replaces_another

    def run(self) -> None:
        """Waits for all workers, trains, and ends the run.

        Raises:
            BadInput: not all workers joined in time.
            Interrupted: the user asked the server to stop; the run is saved.
            AllWorkersLost: no worker is left; the run is saved.
            Fenced: a later server has taken over; nothing more is written.
        """
        with contextlib.closing(self.part):
            self._begin()
            self._train_and_save()

    def _begin(self) -> None:
        try:
            self._await_workers()
            self.peers.begin()
            self.part.begin(self.engine)
            if (learnt := self.engine.encoding.learn_from(self.engine, self.part.path)) is not None:
                self.engine.scoring.learnt(learnt)
            self.observer.begin(self.part.holdings(self.engine), self.engine.done)
        except Fenced:
            self.peers.transport.close()
            raise
        except BaseException as error:
            self._dismiss(self._why(error))
            state = "stopped" if isinstance(error, Interrupted) else "failed"
            self.observer.write_status(state, self.engine.done)
            raise

    def _await_workers(self) -> None:
        """Waits until every expected rank is ready; a resumed run begins without late ones."""
        limits = self.timeouts
        patience = limits.liveness if self._replaces_another else limits.connect
        begin = told_at = time.monotonic()
        logged = set[int]()
        while absent := self.peers.absent():
            ranks, unable = ",".join(map(str, absent)), self.peers.admission.cannot_join
            none_comes = all(rank in unable for rank in absent)
            is_over = none_comes or self.engine.all_failed
            remaining = 0.0 if is_over else begin + patience - time.monotonic()
            may_begin = self._goes_on and (self._replaces_another or self.peers.taking_part())
            if remaining <= 0 and may_begin:
                why = "cannot join" if none_comes else f"did not come within {patience:g} s"
                self.observer.note(
                    f"going on without rank(s) {ranks}, which {why}; "
                    "their discriminators are left out, and who comes later gets a copy"
                )
                return
            if none_comes:
                raise BadInput("; ".join(dict.fromkeys(unable[rank] for rank in absent)))
            if remaining <= 0:
                raise BadInput(
                    f"rank(s) {ranks} did not join within {limits.connect:g} s",
                    way_out=f"start them with {flag('ranks', ranks)} or mdgan join, "
                    f"or wait longer with {key('connect_timeout', 'SECONDS')}",
                )
            self.engine.take_in(self.peers.transport.receive(min(remaining, _SETTLE_SECONDS)))
            waited = time.monotonic() - told_at
            newcomers = set(workers_of(self.peers.taking_part())) - logged
            if self.peers.absent() and waited >= (_SETTLE_SECONDS if newcomers else _TELL_SECONDS):
                waits = f"waiting for rank(s) {','.join(map(str, self.peers.absent()))}"
                joined = ",".join(map(str, sorted(newcomers)))
                holdings = self.peers.holdings(newcomers).values()
                num_samples = sum(holding["samples"] for holding in holdings)
                line = f"rank(s) {joined} joined ({count(num_samples, 'sample')}); {waits}"
                self.observer.note(line if newcomers else f"{waits} to join")
                told_at = time.monotonic()
                logged |= newcomers

    def _train_and_save(self) -> None:
        """Trains; then, however that ended, dismisses the hosts and completes the run's files."""
        state, reason = "failed", ""
        try:
            self._train()
            self._await_last_words()
            state = "finished"
        except Fenced:
            state = "fenced"  # another server has taken over the folder and the hosts
            raise
        except BaseException as error:
            state = "stopped" if isinstance(error, Interrupted) else "failed"
            reason = self._why(error)
            raise
        finally:
            if state == "fenced":
                self.peers.transport.close()
            else:
                self._end(state, reason)

    def _train(self) -> None:
        """Has the algorithm advance to the last iteration; records, scores and saves its steps."""
        engine, part, last = self.engine, self.part, self.settings.training.iterations
        if engine.done == 0:
            self._save_if_due(-1)  # so that a run that fails early can be resumed
        while engine.done < last and not self._over:
            done = engine.done
            advance = part.advance(done, engine)
            if advance is not None:
                engine.done = advance.iteration
            if engine.done < last:
                engine.retire_spent()
            if advance is not None:
                if self.trainer.average is not None:
                    self.trainer.average.take_in(done, engine.done)
                self.observer.iteration(*advance)
                holdings = partial(part.holdings, engine)
                engine.scoring.score_after(
                    done, engine.done, self.trainer.shown, holdings=holdings, ends=self._over
                )
                if engine.done == last or self.checkpoints.due(done, engine.done):
                    part.look_back(self.trainer.shown, engine)
                self._save_if_due(done)
                self.checkpoints.poll()
                self.peers.attendance.tell_of_absent()
                if self.observer.tracer.due():
                    self._tell_spans()

    @property
    def _over(self) -> bool:
        return self.engine.all_spent or self.part.over

    def _save_if_due(self, before: int) -> None:
        engine = self.engine
        if engine.all_spent:
            engine.save(alone=True)
        elif self.checkpoints.due(before, engine.done, ends=self._over):
            if self._over or engine.done == self.settings.training.iterations:
                engine.await_files()  # training is over, so the checkpoint before can be completed
            engine.save()

    def _await_last_words(self) -> None:
        """Waits until all hosts have saved their workers and sent their statistics for scores."""
        engine = self.engine

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
            self.engine.scoring.finish()
        self.checkpoints.close(_SAVE_SECONDS)
        self.peers.attendance.tell_counts(self.engine.done)
        newest = self.checkpoints.kept.newest
        self.observer.end(state, self.engine.done, None if newest is None else newest.iteration)

    def _dismiss(self, reason: str) -> None:
        self.engine.see_off(reason)
        self._tell_spans(at_end=True)

    def _why(self, error: BaseException) -> str:
        """What the server tells hosts when training ends early."""
        if isinstance(error, Interrupted):
            return f"the server was asked to stop after iteration {self.engine.done}"
        return str(error) if isinstance(error, BadInput) else "the server failed"

    def _tell_spans(self, *, at_end: bool = False) -> None:
        tracer = self.observer.tracer
        traffic = self.peers.transport.traffic
        moves = bool(traffic.sent or traffic.received)
        role, done = self.part.role, self.engine.done
        self.observer.spans(
            role,
            done,
            tracer.take(),
            sent_bytes=traffic.sent if moves else None,
            received_bytes=traffic.received if moves else None,
            memory_bytes=memory_bytes(),
        )
        fetcher = self.trainer.fetcher
        fetching = None if fetcher is None else fetcher.tell(at_end=at_end)
        profile = tracer.profile(at_end=at_end)
        self.observer.of_process(role, done, {"fetching": fetching, "profile": profile})
