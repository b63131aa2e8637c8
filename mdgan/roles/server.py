"""Rank 0: owns the generator, assigns batches, collects feedback, orders swaps."""

import time
from collections.abc import Collection, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from mdgan import messages
from mdgan.algorithms.aggregation import Aggregation
from mdgan.algorithms.aggregation_rules import parse_aggregation
from mdgan.algorithms.mdgan import Assignment, GeneratorLearner, assign, resolve_kappa
from mdgan.algorithms.model_state import part_of, under
from mdgan.algorithms.screening import Screening
from mdgan.errors import BadInput, Interrupted
from mdgan.experiment import Experiment
from mdgan.observe.run_observer import RunObserver
from mdgan.roles.answers import Collector
from mdgan.roles.attendance import Attendance
from mdgan.roles.deadline import Deadline
from mdgan.roles.iteration_messages import Form, batches
from mdgan.roles.reception import Reception
from mdgan.roles.roster import Roster
from mdgan.roles.saving import Saving, Standing
from mdgan.roles.scoring import Scoring
from mdgan.roles.swapping import Swapping
from mdgan.storage.fence import Fenced
from mdgan.storage.manifest import Manifest
from mdgan.timeouts import Timeouts
from mdgan.transport.base import ServerTransport

_AGGREGATION = "aggregation."
_LOOK_SECONDS = 0.1
_TELL_SECONDS = 10.0
_SAVE_SECONDS = 30.0


class AllWorkersLost(RuntimeError):
    """Nobody is left to train with, and nobody came in time."""


class _Sent(NamedTuple):
    """The batches of one iteration are with the workers."""

    hosts: Mapping[int, Collection[int]]
    assignment: Mapping[int, Assignment]
    kappa: int


class Server:
    """The server's side of Algorithm 1 (Hardy et al. 2019), with server-drawn swaps.

    Args:
        experiment: what is computed.
        learner: G.
        transport: the server's end.
        roster: who takes part.
        deadline: when to go on without feedback that is missing.
        screening: what is no usable feedback, and after how much of it a worker is shut out.
        saving: orders checkpoints.
        scoring: is handed generators.
        observer: records the run.
        timeouts: all time limits.
        form: how batches and feedback travel.
    """

    def __init__(
        self,
        experiment: Experiment,
        learner: GeneratorLearner,
        transport: ServerTransport,
        roster: Roster,
        deadline: Deadline,
        screening: Screening,
        saving: Saving,
        scoring: Scoring,
        observer: RunObserver,
        timeouts: Timeouts,
        form: Form,
    ) -> None:
        self._experiment = experiment
        self._learner = learner
        rule = parse_aggregation(experiment.aggregation, experiment.num_workers)
        self._aggregation = Aggregation(rule)
        self._transport = transport
        self._roster = roster
        self._saving = saving
        self._scoring = scoring
        self._observer = observer
        self._timeouts = timeouts
        self._attendance = Attendance(observer)
        self._swapping = Swapping(experiment, transport, roster, observer)
        self._reception = Reception(
            transport, roster, self._swapping, saving, scoring, self._attendance, observer
        )
        self._collector = Collector(
            transport,
            roster,
            self._reception,
            deadline,
            screening,
            self._attendance,
            timeouts,
            learner.device,
            form,
        )
        self._form = form
        self._iteration = roster.iteration
        self._swap_every = 0
        self._replaces_another = False
        self._ahead: _Sent | None = None

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continues where the server's part of a checkpoint was taken.

        Raises:
            KeyError, RuntimeError: it is no such state, or of another generator.
        """
        of_learner = {n: tensor for n, tensor in state.items() if not n.startswith(_AGGREGATION)}
        self._learner.load_state(of_learner)
        self._aggregation.load_state(part_of(state, _AGGREGATION))

    def go_on(self, manifest: Manifest, swap_every: int | None, *, replaces_another: bool) -> None:
        """Training goes on from a checkpoint, whose state has been loaded.

        Args:
            manifest: the checkpoint.
            swap_every: iterations between two swaps; None to work it out anew.
            replaces_another: whether this server takes over from one that died: then workers that
                do not come are left behind.
        """
        self._swapping.num_swaps = manifest.num_swaps
        self._swap_every = swap_every or 0
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
        if not self._swap_every:
            self._swap_every = self._experiment.swap_every(self._roster.mean_shard_size)
        if self._iteration == 0:
            self._save_if_due()  # from here on nothing is lost for good
        tracer = self._observer.tracer
        span = tracer.span
        while self._iteration < self._experiment.iterations:
            i = self._iteration + 1
            # 1, 2. Generate κ batches and send every worker its two.
            sent = self._ahead or self._send_batches(i, self._await_hosts())
            self._ahead = self._send_ahead(i + 1) if self._may_run_ahead(i) else None

            # 3, 4. Workers train and answer.
            self._roster.iteration = tracer.iteration = i
            with span("wait") as waiting:
                before = self._transport.traffic.received.total()
                answers = self._collector.collect(i, sent.hosts)
                waiting.num_bytes = self._transport.traffic.received.total() - before
            if not answers.losses:  # everybody was lost: the same iteration, with whoever comes
                self._ahead = None
                self._learner.forget()
                continue

            # 5. One optimizer step from all feedback, as a rule after one backward pass.
            with span("aggregate"):
                self._aggregation.update_gradient(
                    self._learner,
                    answers.feedbacks,
                    sent.assignment,
                    sent.kappa,
                    answers.sums,
                    answers.verdicts,
                )
            with span("step"):
                self._learner.step()
            self._iteration = i

            # 6. Swap.
            if self._swap_follows(i):
                with span("swap"):
                    self._swapping.order(i)
            losses = [answers.losses[worker] for worker in sorted(answers.losses)]
            self._observer.iteration(i, torch.stack(losses))
            self._after(i)

    def _send_batches(self, i: int, hosts: Mapping[int, Collection[int]]) -> "_Sent":
        """Steps 1 and 2: X = G(z) in one forward pass, and each host what its workers use of it."""
        tracer = self._observer.tracer
        self._roster.iteration = tracer.iteration = i
        workers = sorted(worker for carried in hosts.values() for worker in carried)
        kappa = resolve_kappa(self._experiment.kappa, len(workers))
        with tracer.span("generate"):
            generated = self._learner.generate(kappa)
        assignment = assign(workers, kappa)
        with tracer.span("send") as sending:
            for host, carried in hosts.items():
                message = batches(
                    i,
                    generated,
                    {worker: assignment[worker] for worker in carried},
                    swap_follows=self._swap_follows(i),
                    last=i == self._experiment.iterations,
                    codec=self._form.images,
                )
                sending.num_bytes += self._transport.send(host, message)
        self._roster.owe(hosts, i)
        return _Sent(hosts, assignment, kappa)

    def _swap_follows(self, i: int) -> bool:
        """Nobody swaps after the last iteration."""
        due = self._swap_every > 0 and i % self._swap_every == 0
        return due and i != self._experiment.iterations

    def _may_run_ahead(self, i: int) -> bool:
        """Whether the batches after i may leave now; not past a swap, a checkpoint or the end."""
        stands_between = self._swap_follows(i) or self._saving.due(i)
        return (
            bool(self._experiment.stale) and not stands_between and i < self._experiment.iterations
        )

    def _send_ahead(self, i: int) -> "_Sent | None":
        """Sends batches to those who may still owe an answer to the iteration before."""
        hosts = self._roster.free(besides=i - 1)
        num_live = sum(map(len, self._roster.taking_part().values()))
        enough = self._collector.is_enough(sum(map(len, hosts.values())), num_live)
        return self._send_batches(i, hosts) if enough else None

    def _after(self, iteration: int) -> None:
        """What is done between two iterations besides training."""
        self._scoring.after(iteration, self._learner.generator, self._observer)
        self._ask_for_descriptions()
        self._save_if_due()
        self._saving.poll()
        self._attendance.tell_of_absent()
        if self._observer.tracer.due():
            self._tell_spans()

    def _save_if_due(self) -> None:
        if self._saving.due(self._iteration):
            if self._iteration == self._experiment.iterations:
                self._await_files()  # nobody trains any more: the one before can be completed
            with self._observer.tracer.span("checkpoint"):
                self._saving.order(
                    self._standing(), self._state(), self._roster.free(), self._transport
                )

    def _await_files(self) -> None:
        """Waits until workers have written the checkpoint that was ordered last."""
        while self._saving.waits_for(self._roster.free()):
            self._reception.take(self._transport.receive(_LOOK_SECONDS))

    def _state(self) -> dict[str, Tensor]:
        """The server's part of a checkpoint."""
        return {**self._learner.state(), **under(_AGGREGATION, self._aggregation.state())}

    def _standing(self) -> Standing:
        return Standing(
            self._iteration, self._swapping.num_swaps, self._swap_every, self._observer.seconds()
        )

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
            self._saving.save_alone(self._standing(), self._state())
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
