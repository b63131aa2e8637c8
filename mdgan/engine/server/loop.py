"""Rank 0: waits for workers, lets the algorithm train with them, records, saves, says goodbye."""

import time
from collections.abc import Collection, Mapping

from torch import Tensor

from mdgan import messages
from mdgan.engine.parts import ServerFamily, ServerSurroundings
from mdgan.engine.server.attendance import Attendance
from mdgan.engine.server.barrier import Collector
from mdgan.engine.server.checkpoints import Saving, Standing
from mdgan.engine.server.deadline import Deadline
from mdgan.engine.server.membership import Roster
from mdgan.engine.server.reception import Reception
from mdgan.engine.server.scoring import Scoring
from mdgan.engine.server.screening import Screening
from mdgan.errors import BadInput, Interrupted
from mdgan.families.mdgan.server_swaps import Swapping
from mdgan.observe.run_observer import RunObserver
from mdgan.settings.experiment import Experiment
from mdgan.storage.fence import Fenced
from mdgan.storage.manifest import Manifest
from mdgan.timeouts import Timeouts
from mdgan.transport.base import ServerTransport

_LOOK_SECONDS = 0.1
_TELL_SECONDS = 10.0
_SAVE_SECONDS = 30.0


class AllWorkersLost(RuntimeError):
    """Nobody is left to train with, and nobody came in time."""


class Server:
    """What the server does whatever the algorithm: it waits, records, saves, scores, dismisses.

    Args:
        experiment: what is computed.
        family: what the algorithm brings.
        transport: the server's end.
        roster: who takes part.
        deadline: when to go on without feedback that is missing.
        screening: what is no usable answer, and after how much of it a worker is shut out.
        saving: orders checkpoints.
        scoring: is handed generators.
        observer: records the run.
        timeouts: all time limits.
    """

    def __init__(
        self,
        experiment: Experiment,
        family: ServerFamily,
        transport: ServerTransport,
        roster: Roster,
        deadline: Deadline,
        screening: Screening,
        saving: Saving,
        scoring: Scoring,
        observer: RunObserver,
        timeouts: Timeouts,
    ) -> None:
        self._experiment = experiment
        self._transport = transport
        self._roster = roster
        self._saving = saving
        self._scoring = scoring
        self._observer = observer
        self._timeouts = timeouts
        self._attendance = Attendance(observer)
        swapping = Swapping(experiment, transport, roster, observer)
        self._reception = Reception(
            transport,
            roster,
            swapping,
            saving,
            scoring,
            self._attendance,
            observer,
            copies=family.copies,
        )
        self._collector = Collector(
            transport,
            roster,
            self._reception,
            deadline,
            screening,
            self._attendance,
            timeouts,
            family.device,
            family.form,
            counts_busy=family.counts_busy,
        )
        self._part = family.make_part(
            ServerSurroundings(
                experiment,
                transport,
                roster,
                self._collector,
                swapping,
                saving,
                observer,
                family.form,
            )
        )
        self._iteration = roster.iteration
        self._replaces_another = False

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continues where the server's part of a checkpoint was taken.

        Raises:
            KeyError, RuntimeError: it is no such state, or of other models.
        """
        self._part.load_state(state)

    def go_on(self, manifest: Manifest, swap_every: int | None, *, replaces_another: bool) -> None:
        """Training goes on from a checkpoint, whose state has been loaded.

        Args:
            manifest: the checkpoint.
            swap_every: iterations between two swaps; None to work it out anew.
            replaces_another: whether this server takes over from one that died: then workers that
                do not come are left behind.
        """
        self._part.go_on(manifest.progress["num_swaps"], swap_every)
        self._replaces_another = replaces_another

    def run(self) -> None:
        """Waits for all workers, trains, and says goodbye.

        Raises:
            BadInput: not all workers came in time.
            Interrupted: somebody asked to stop; the run is saved.
            AllWorkersLost: nobody is left; the run is saved.
            Fenced: a later server has taken over; nothing more is written.
        """
        try:
            self._await_workers()
            self._roster.begin()
            self._part.begin()
            self._observer.begin(self._roster.holdings(), self._iteration)
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
            state = "fenced"  # the folder and the hosts are another server's now
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
            self._scoring.finish(self._observer)
        self._saving.close(_SAVE_SECONDS)
        self._attendance.tell(self._iteration)
        self._observer.end(state, self._iteration)

    def _why(self, error: BaseException) -> str:
        """What hosts are told when training ends early."""
        if isinstance(error, Interrupted):
            return f"the server was asked to stop after iteration {self._iteration}"
        return str(error) if isinstance(error, BadInput) else "the server failed"

    def _train(self) -> None:
        if self._iteration == 0:
            self._save_if_due(-1)  # from here on nothing is lost for good
        while self._iteration < self._experiment.iterations:
            done = self._iteration
            advance = self._part.advance(done, self._await_hosts)
            if advance is not None:
                self._iteration = advance.iteration
                self._observer.iteration(advance.iteration, advance.losses)
                self._after(done)

    def _after(self, before: int) -> None:
        """What is done between two iterations besides training.

        Args:
            before: the last iteration for which it was done.
        """
        self._scoring.after(before, self._iteration, self._part.generator, self._observer)
        self._ask_for_descriptions()
        self._save_if_due(before)
        self._saving.poll()
        self._attendance.tell_of_absent()
        if self._observer.tracer.due():
            self._tell_spans()

    def _save_if_due(self, before: int) -> None:
        if self._saving.due(before, self._iteration):
            if self._iteration == self._experiment.iterations:
                self._await_files()  # nobody trains any more: the one before can be completed
            with self._observer.tracer.span("checkpoint"):
                self._saving.order(
                    self._standing(), self._part.state(), self._roster.free(), self._transport
                )

    def _await_files(self) -> None:
        """Waits until workers have written the checkpoint that was ordered last."""
        while self._saving.waits_for(self._roster.free()):
            self._reception.take(self._transport.receive(_LOOK_SECONDS))

    def _standing(self) -> Standing:
        return Standing(self._iteration, *self._part.rhythm(), self._observer.seconds())

    def _ask_for_descriptions(self) -> None:
        for host in self._scoring.to_ask(self._roster.taking_part()):
            assert self._scoring.extractor is not None
            self._transport.send(host, self._scoring.extractor)

    def _tell_spans(self) -> None:
        traffic = self._transport.traffic
        rows = self._observer.tracer.take()
        self._observer.spans("server", self._iteration, rows, traffic.sent, traffic.received)

    def _await_workers(self) -> None:
        """Waits until every expected rank is ready to train.

        Raises:
            BadInput: some did not come in time.
        """
        limits = self._timeouts
        patience = limits.liveness if self._replaces_another else limits.connect
        deadline = time.monotonic() + patience
        while absent := self._roster.absent():
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
            self._reception.take(event)
            if event is None and time.monotonic() < deadline:
                self._observer.note(f"waiting for rank(s) {ranks} to join")

    def _await_hosts(self) -> Mapping[int, Collection[int]]:
        """The hosts that take part in the next iteration; waits for some if there are none.

        Raises:
            AllWorkersLost: nobody has come for as long as `--patience`.
        """
        if not self._roster.taking_part():
            self._saving.save_alone(self._standing(), self._part.state())
            self._roster.checkpoint = self._saving.newest()
            self._observer.note(
                f"all workers are gone at iteration {self._iteration + 1}; waiting "
                f"{self._timeouts.patience:g} s for one to come back, or to join (mdgan join)"
            )
        hosts = self._collector.await_enough(time.monotonic() + self._timeouts.patience)
        self._roster.checkpoint = None
        if not hosts:
            raise AllWorkersLost(
                f"all workers are gone at iteration {self._iteration + 1}, and none came within "
                f"{self._timeouts.patience:g} s"
            )
        return hosts

    def _await_last_words(self) -> None:
        """Waits until all hosts have saved their workers, and described their data for scores."""
        deadline = time.monotonic() + self._timeouts.answer
        while time.monotonic() < deadline and not (
            self._saving.complete() and self._scoring.described(self._roster.taking_part())
        ):
            self._scoring.poll(self._observer)
            self._ask_for_descriptions()
            try:
                self._reception.take(self._transport.receive(_LOOK_SECONDS))
            except Interrupted:
                self._scoring.abandon()
                return
        self._scoring.give_up_without_real(self._observer)

    def _dismiss(self, reason: str) -> None:
        """Tells every host to stop, takes in their last words, and closes; once."""
        hosts, stop = set(self._roster.hosts()), messages.stop(self._iteration, reason)
        for host in hosts:
            self._transport.send(host, stop)
        self._reception.see_off(hosts, stop, self._timeouts.farewell)
        self._transport.close()
        self._tell_spans()
