"""Rank 0: waits for workers, lets the algorithm train with them, records, saves, says goodbye."""

import contextlib
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial

from torch import Tensor

from mdgan import messages
from mdgan.data.fetching import Fetcher
from mdgan.engine.parts import ServerPart
from mdgan.engine.server.attendance import Attendance
from mdgan.engine.server.barrier import Hosts, workers_of
from mdgan.engine.server.checkpoints import Standing
from mdgan.engine.server.engine import Engine
from mdgan.engine.server.scoring import Scoring
from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput, Interrupted
from mdgan.gan.average import GeneratorAverage
from mdgan.gan.model_state import part_of, under
from mdgan.observe.tracer import memory_bytes
from mdgan.storage.fence import Fenced
from mdgan.storage.manifest import Manifest
from mdgan.timeouts import Timeouts

_AVERAGE = "ema."
"""Before the names of the generator's average in a checkpoint."""
_LOOK_SECONDS = 0.1
_TELL_SECONDS = 10.0
_SAVE_SECONDS = 30.0
_HURRY_SECONDS = 0.5


class AllWorkersLost(RuntimeError):
    """No worker is left to train with, and none came in time."""


class Server:
    """What the server does, whatever the algorithm. Made by `build_server`.

    Args:
        part: the algorithm's share.
        engine: what the algorithm works with.
        attendance: counts answers.
        scoring: gets generators to score.
        settings: of the run.
        timeouts: the time limits.
        average: of the generator; None if there is none.
        fetcher: reads samples ahead, if the server's part has the data itself.
    """

    def __init__(
        self,
        part: ServerPart,
        engine: Engine,
        attendance: Attendance,
        scoring: Scoring,
        settings: RunSettings,
        timeouts: Timeouts,
        average: GeneratorAverage | None = None,
        fetcher: Fetcher | None = None,
    ) -> None:
        self._part = part
        self._average = average
        self._fetcher = fetcher
        self._engine = engine
        self._transport = engine.transport
        self._members = engine.members
        self._checkpoints = engine.checkpoints
        self._observer = engine.observer
        self._attendance = attendance
        self._scoring = scoring
        self._settings = settings
        self._timeouts = timeouts
        self._iteration = engine.members.iteration
        self._replaces_another = False
        engine.await_hosts = self._await_hosts
        engine.stop_if_asked = self._stop_if_asked

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continues where the server's part of a checkpoint was taken.

        Raises:
            KeyError, RuntimeError: the state is malformed, or of other models.
        """
        own = part_of(state, _AVERAGE)
        self._part.load_state({n: t for n, t in state.items() if not n.startswith(_AVERAGE)})
        if self._average is not None and own:
            self._average.load_state(own)
        elif self._average is not None:  # the run had none until now
            self._average.begin_anew()

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
        self._engine.conduct.excuse(manifest.workers)
        self._replaces_another = replaces_another
        if replaces_another:  # with --resume the user has started every host anew
            self._members.kept_out.update(manifest.shut_out)

    def run(self) -> None:
        """Waits for all workers, trains, and says goodbye.

        Raises:
            BadInput: not all workers came in time.
            Interrupted: the user asked the server to stop; the run is saved.
            AllWorkersLost: no worker is left; the run is saved.
            Fenced: a later server has taken over; nothing more is written.
        """
        try:
            self._run()
        finally:
            self._part.close()

    def _run(self) -> None:
        try:
            self._await_workers()
            self._members.begin()
            self._part.begin(self._engine)
            self._observer.begin(self._part.holdings(self._engine), self._iteration)
        except Fenced:
            self._transport.close()
            raise
        except BaseException as error:
            self._dismiss(self._why(error))
            self._observer.gave_up(self._iteration)
            raise
        self._train_and_save()

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
                self._transport.close()
            else:
                self._end(state, reason)

    def _end(self, state: str, reason: str) -> None:
        self._dismiss(reason)
        if state == "finished":
            self._scoring.finish()
        self._checkpoints.close(_SAVE_SECONDS)
        self._attendance.tell(self._iteration)
        self._observer.end(state, self._iteration, self._checkpoints.last)

    def _why(self, error: BaseException) -> str:
        """What hosts are told when training ends early."""
        if isinstance(error, Interrupted):
            return f"the server was asked to stop after iteration {self._iteration}"
        return str(error) if isinstance(error, BadInput) else "the server failed"

    def _train(self) -> None:
        self._engine.desk.finishes_first = True
        if self._iteration == 0:
            self._save_if_due(-1)  # from here on nothing is lost for good
        while self._iteration < self._settings.training.iterations and not self._over:
            done = self._iteration
            advance = self._part.advance(done, self._engine)
            if advance is not None:
                self._iteration = advance.iteration
            if self._iteration < self._settings.training.iterations:
                self._engine.desk.let_spent_go()
            if advance is not None:
                if self._average is not None:
                    self._average.take_in(done, self._iteration)
                self._observer.iteration(*advance)
                self._after(done)

    @property
    def _over(self) -> bool:
        """Whether training ends here, although iterations may be left."""
        return self._engine.desk.all_spent or self._part.over

    def _after(self, before: int) -> None:
        """What is done between two iterations besides training.

        Args:
            before: the last iteration for which it was done.
        """
        shown = self._part.generator if self._average is None else self._average.model
        holdings = partial(self._part.holdings, self._engine)
        self._scoring.after(before, self._iteration, shown, holdings, ends=self._over)
        self._scoring.ask(self._transport)
        self._save_if_due(before)
        self._checkpoints.poll()
        self._attendance.tell_of_absent()
        if self._observer.tracer.due():
            self._tell_spans()

    def _save_if_due(self, before: int) -> None:
        if self._engine.desk.all_spent:
            self._checkpoints.save_alone(self._standing(), self._state())
        elif self._checkpoints.due(before, self._iteration, ends=self._over):
            if self._over or self._iteration == self._settings.training.iterations:
                self._await_files()  # no worker trains any more: the one before can be completed
            self._save()

    def _save(self) -> None:
        with self._observer.tracer.span("checkpoint"):
            self._checkpoints.order(
                self._standing(), self._state(), self._members.free(), self._transport
            )

    def _stop_if_asked(self) -> None:
        """Between two iterations: makes a checkpoint and stops, if the user has asked for that.

        Raises:
            Interrupted: the user has.
        """
        if not self._engine.desk.stop_asked:
            return
        if self._settings.checkpoints.checkpoint_interval:
            self._await_files()
            if not self._members.workers():
                self._checkpoints.save_alone(self._standing(), self._state())
            elif self._checkpoints.ordered != self._iteration:
                self._save()
            self._await_reports(lambda: False)
        raise Interrupted

    def _await_files(self) -> None:
        """Waits until workers have written the checkpoint that was ordered last."""
        while self._checkpoints.waits_for(self._members.free()):
            self._engine.desk.take(self._transport.receive(_LOOK_SECONDS))

    def _state(self) -> dict[str, Tensor]:
        """A copy of everything here that the next iteration depends on."""
        average = {} if self._average is None else self._average.state()
        return {**self._part.state(), **under(_AVERAGE, average)}

    def _standing(self) -> Standing:
        so_far = self._part.progress(), self._observer.seconds()
        return Standing(self._iteration, *so_far, frozenset(self._members.kept_out))

    def _tell_spans(self, *, at_end: bool = False) -> None:
        traffic, rows = self._transport.traffic, self._observer.tracer.take()
        told = self._part.role, self._iteration, rows
        if traffic.sent or traffic.received:
            self._observer.spans(*told, traffic.sent, traffic.received, memory_bytes())
        else:
            self._observer.spans(*told, memory_bytes=memory_bytes())
        fetching = None if self._fetcher is None else self._fetcher.tell(at_end=at_end)
        profile = self._observer.tracer.profile(at_end=at_end)
        about = {"fetching": fetching, "profile": profile}
        self._observer.of_process(self._part.role, self._iteration, about)

    def _await_workers(self) -> None:
        """Waits until every expected rank is ready to train.

        Raises:
            BadInput: some did not come in time.
        """
        limits = self._timeouts
        patience = limits.liveness if self._replaces_another else limits.connect
        deadline = time.monotonic() + patience
        while absent := self._members.absent():
            left = deadline - time.monotonic()
            ranks = ",".join(map(str, absent))
            if left <= 0 and self._replaces_another:
                self._observer.note(f"going on without rank(s) {ranks}, which did not come back")
                return
            if left <= 0:
                raise BadInput(
                    f"rank(s) {ranks} did not join within {self._timeouts.connect:g} s; start them "
                    f"with --ranks {ranks}, or wait longer with --connect-timeout"
                )
            event = self._transport.receive(min(left, _TELL_SECONDS))
            self._engine.desk.take(event)
            if event is None and time.monotonic() < deadline:
                self._observer.note(f"waiting for rank(s) {ranks} to join")

    def _await_hosts(self) -> Hosts:
        """The hosts that take part in the next iteration; waits for some if there are none.

        Raises:
            AllWorkersLost: none has come for as long as `--patience`.
        """
        self._stop_if_asked()
        here = workers_of(self._members.taking_part())
        lacking = self._engine.barrier.lacking
        gone = lacking(here)
        if not here:
            self._checkpoints.save_alone(self._standing(), self._state())
        if gone:
            self._members.checkpoint = self._checkpoints.newest()
            if here:  # a newcomer gets a rank with which training can go on
                self._members.waits_for = lambda rank: (
                    not self._engine.barrier.lacking([*here, rank])
                )
            self._observer.note(
                f"{gone} are gone at iteration {self._iteration + 1}; waiting "
                f"{self._timeouts.patience:g} s for one to come back, or to join (mdgan join)"
            )
        hosts = self._engine.barrier.await_enough(time.monotonic() + self._timeouts.patience)
        self._members.checkpoint, self._members.waits_for = None, lambda _rank: False
        self._stop_if_asked()
        if not hosts:
            gone = lacking(workers_of(self._members.taking_part()))
            raise AllWorkersLost(
                f"{gone} are gone at iteration {self._iteration + 1}, and none came within "
                f"{self._timeouts.patience:g} s"
            )
        return hosts

    def _await_last_words(self) -> None:
        """Waits until all hosts have saved their workers, and described their data for scores."""

        def lacks_descriptions() -> bool:
            self._scoring.poll()
            self._scoring.ask(self._transport)
            return not (self._scoring.described() or self._engine.desk.stop_asked)

        with contextlib.suppress(Interrupted):
            self._await_reports(lacks_descriptions)
        if not self._engine.desk.stop_asked:
            self._scoring.give_up_without_real()

    def _await_reports(self, also: Callable[[], bool]) -> None:
        """Waits until all hosts have saved their workers, and while something else is true, too.

        Raises:
            Interrupted: the user has asked the server once more to stop.
        """
        deadline = time.monotonic() + self._timeouts.answer
        while time.monotonic() < deadline and (also() or not self._checkpoints.complete()):
            self._engine.desk.take(self._transport.receive(_LOOK_SECONDS))

    def _dismiss(self, reason: str) -> None:
        """Tells every host to stop, takes in their last words, and closes; once."""
        stop = messages.stop(self._iteration, reason)
        desk, farewell = self._engine.desk, self._timeouts.farewell
        desk.see_off(stop, min(farewell, _HURRY_SECONDS) if desk.hurries else farewell)
        self._transport.close()
        self._tell_spans(at_end=True)
