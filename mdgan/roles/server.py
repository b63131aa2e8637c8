"""Rank 0: owns the generator, assigns batches, collects feedback, orders swaps."""

import time
from collections.abc import Iterator

import torch
from torch import Tensor

from mdgan import messages
from mdgan.algorithms.mdgan import GeneratorLearner, aggregate, assign, resolve_kappa
from mdgan.algorithms.swap import draw_swap
from mdgan.config import Experiment
from mdgan.errors import BadInput, Interrupted
from mdgan.messages import Kind
from mdgan.observe.run_observer import RunObserver
from mdgan.roles.roster import Roster
from mdgan.roles.scoring import Scoring
from mdgan.roles.swap_record import SwapRecord
from mdgan.timeouts import Timeouts
from mdgan.transport.base import Asked, Joined, Lost, Received, Refused, ServerTransport

_LOOK_SECONDS = 0.1


class AllWorkersLost(RuntimeError):
    """Nobody is left to train with."""


class Server:
    """The server's side of Algorithm 1 (Hardy et al. 2019), with server-drawn swaps."""

    def __init__(
        self,
        experiment: Experiment,
        learner: GeneratorLearner,
        transport: ServerTransport,
        roster: Roster,
        observer: RunObserver,
        scoring: Scoring,
        timeouts: Timeouts,
        device: torch.device,
    ) -> None:
        self._experiment = experiment
        self._learner = learner
        self._transport = transport
        self._roster = roster
        self._observer = observer
        self._scoring = scoring
        self._timeouts = timeouts
        self._device = device
        self._iteration = 0
        self._num_swaps = 0
        self._swap: SwapRecord | None = None

    def run(self) -> None:
        """Waits for all workers, trains, and says goodbye.

        Raises:
            BadInput: not all workers came in time.
            Interrupted: somebody asked to stop; the run is saved.
            AllWorkersLost: nobody is left; the run is saved.
        """
        try:
            self._await_workers()
            self._observer.begin(self._roster.holdings())
        except BaseException as error:
            self._dismiss(self._why(error))
            self._observer.gave_up()
            raise
        self._train_and_save()

    def _train_and_save(self) -> None:
        state, reason = "failed", ""
        try:
            self._train()
            self._await_descriptions()
            state = "finished"
        except BaseException as error:
            state = "stopped" if isinstance(error, Interrupted) else "failed"
            reason = self._why(error)
            raise
        finally:
            self._dismiss(reason)
            if state == "finished":
                self._scoring.finish(self._observer)
            self._observer.end(state, self._iteration)

    def _why(self, error: BaseException) -> str:
        """What hosts are told when training ends early."""
        if isinstance(error, Interrupted):
            return f"the server was asked to stop after iteration {self._iteration}"
        return str(error) if isinstance(error, BadInput) else "the server failed"

    def _train(self) -> None:
        swap_every = self._experiment.swap_every(self._roster.mean_shard_size)
        tracer = self._observer.tracer
        span = tracer.span
        for i in range(1, self._experiment.iterations + 1):
            tracer.iteration = i

            # 1. Generate κ batches in one forward pass.
            workers = self._live_workers(i)
            kappa = resolve_kappa(self._experiment.kappa, len(workers))
            with span("generate"):
                generated = self._learner.generate(kappa)

            # 2. Assign: worker n judges X^(n mod κ) and trains on X^((n+1) mod κ).
            assignment = assign(workers, kappa)
            last = i == self._experiment.iterations
            swap_follows = swap_every > 0 and i % swap_every == 0 and not last
            with span("send") as sending:
                for host, carried in self._roster.hosts().items():
                    share = {worker: assignment[worker] for worker in carried}
                    batches = messages.batches(
                        i, generated, share, swap_follows=swap_follows, last=last
                    )
                    sending.num_bytes += self._transport.send(host, batches)

            # 3, 4. Workers train and answer.
            with span("wait") as waiting:
                before = self._transport.traffic.received.total()
                feedbacks, losses = self._collect(i)
                waiting.num_bytes = self._transport.traffic.received.total() - before

            # 5. One backward pass and one optimizer step from all feedback.
            with span("aggregate"):
                self._learner.backward(aggregate(feedbacks, assignment, kappa))
            with span("step"):
                self._learner.step()
            self._iteration = i

            # 6. Swap.
            if swap_follows:
                with span("swap"):
                    self._order_swap(i)
            self._observer.iteration(i, losses)
            self._scoring.after(i, self._learner.generator, self._observer)
            self._ask_for_descriptions()
            if tracer.due():
                self._tell_spans()

    def _ask_for_descriptions(self) -> None:
        for host in self._scoring.to_ask(self._roster.hosts()):
            assert self._scoring.extractor is not None
            self._transport.send(host, self._scoring.extractor)

    def _tell_spans(self) -> None:
        traffic = self._transport.traffic
        rows = self._observer.tracer.take()
        self._observer.spans("server", self._iteration, rows, traffic.sent, traffic.received)

    def _await_workers(self) -> None:
        deadline = time.monotonic() + self._timeouts.connect
        while absent := self._roster.absent():
            left = deadline - time.monotonic()
            event = self._transport.receive(min(left, 10.0)) if left > 0 else None
            if isinstance(event, Joined):
                self._roster.joined(event.host, [int(n) for n in event.hello["workers"]])
            elif isinstance(event, Lost):
                self._roster.lose(event.peer)
                raise BadInput(f"rank {event.peer} was lost before training began: {event.reason}")
            elif isinstance(event, Asked):
                raise Interrupted
            elif left <= 0:
                ranks = ",".join(map(str, absent))
                raise BadInput(
                    f"rank(s) {ranks} did not join within {self._timeouts.connect:g} s; start them "
                    f"with --ranks {ranks}, or wait longer with --connect-timeout"
                )
            elif isinstance(event, Refused):
                self._observer.note(f"refused a host: {event.reason}")
            elif event is None and time.monotonic() < deadline:
                self._observer.note(f"waiting for rank(s) {','.join(map(str, absent))} to join")
        self._roster.close()

    def _collect(self, iteration: int) -> tuple[dict[int, Tensor], Tensor]:
        """F_n of every worker that answers, and their losses [N, 2] in worker order."""
        feedbacks: dict[int, Tensor] = {}
        losses: dict[int, Tensor] = {}
        for event in self._messages_until(iteration, feedbacks):
            message = event.message
            if message.kind is Kind.FEEDBACK and message.iteration == iteration:
                workers = message.fields["workers"]
                answers = message.tensors["feedback"].to(self._device)
                feedbacks.update(zip(workers, answers, strict=True))
                losses.update(zip(workers, message.tensors["losses"], strict=True))
            else:
                self._note(event)
        return feedbacks, torch.stack([losses[worker] for worker in sorted(losses)])

    def _messages_until(self, iteration: int, answered: dict[int, Tensor]) -> Iterator[Received]:
        """Messages as they come, until every live worker has answered."""
        deadline = time.monotonic() + self._timeouts.answer
        while missing := set(self._roster.workers()) - answered.keys():
            event = self._transport.receive(max(0.0, deadline - time.monotonic()))
            if isinstance(event, Received):
                yield event
            elif isinstance(event, Lost):
                self._lose(event.peer, iteration, event.reason)
            elif isinstance(event, Refused):
                self._observer.note(f"refused a host: {event.reason}")
            elif isinstance(event, Asked):
                raise Interrupted
            elif event is None:
                late = {self._roster.host_of()[worker] for worker in missing}
                for host in late:
                    self._transport.drop(host)
                    self._lose(host, iteration, f"no answer in {self._timeouts.answer:g} s")
        if not answered:
            self._live_workers(iteration)

    def _note(self, event: Received) -> None:
        """Takes in what hosts tell besides their feedback."""
        message = event.message
        if message.kind is Kind.SPANS:
            fields = message.fields
            self._observer.spans(
                f"host-{event.sender}",
                message.iteration,
                fields["rows"],
                fields["sent_bytes"],
                fields["received_bytes"],
            )
        elif message.kind is Kind.SWAPPED and self._swap is not None:
            record = self._swap.note(message)
            if record is not None:
                self._observer.event("swap", self._swap.iteration, **record)
                self._swap = None
        elif message.kind is Kind.REAL:
            self._scoring.note_real(event.sender, message, self._roster.hosts(), self._observer)

    def _await_descriptions(self) -> None:
        """Waits until all hosts have told of their data, where generators wait to be scored."""
        deadline = time.monotonic() + self._timeouts.answer
        while not self._scoring.described(self._roster.hosts()) and time.monotonic() < deadline:
            self._scoring.poll(self._observer)
            self._ask_for_descriptions()
            event = self._transport.receive(_LOOK_SECONDS)
            if isinstance(event, Received):
                self._note(event)
            elif isinstance(event, Lost):
                self._lose(event.peer, self._iteration, event.reason)
            elif isinstance(event, Asked):
                self._scoring.abandon()
                return
        self._scoring.give_up_without_real(self._observer)

    def _dismiss(self, reason: str) -> None:
        """Tells every host to stop, takes in their last words, and closes; once."""
        hosts = set(self._roster.hosts())
        for host in hosts:
            self._transport.send(host, messages.stop(self._iteration, reason))
            self._roster.lose(host)
        deadline = time.monotonic() + self._timeouts.farewell
        while hosts and (left := deadline - time.monotonic()) > 0:
            event = self._transport.receive(left)
            if isinstance(event, Received):
                self._note(event)
            elif isinstance(event, Lost):
                hosts.discard(event.peer)
        self._transport.close()
        self._tell_spans()

    def _live_workers(self, iteration: int) -> list[int]:
        workers = self._roster.workers()
        if not workers:
            raise AllWorkersLost(f"all workers are gone at iteration {iteration}")
        return workers

    def _lose(self, host: int, iteration: int, reason: str) -> None:
        workers = self._roster.lose(host)
        if workers:
            ranks = ", ".join(map(str, workers))
            left = len(self._roster.workers())
            self._observer.note(f"lost rank(s) {ranks}: {reason}; {left} worker(s) left")
            self._observer.event("lost", iteration, workers=workers, reason=reason)
            self._scoring.check_complete(self._roster.hosts(), self._observer)

    def _order_swap(self, iteration: int) -> None:
        workers = self._roster.workers()
        moves = draw_swap(self._experiment.swap, self._experiment.seed, self._num_swaps, workers)
        self._num_swaps += 1
        self._swap = SwapRecord(iteration, moves, workers)
        host_of = self._roster.host_of()
        for host, carried in self._roster.hosts().items():
            share = {
                giver: taker
                for giver, taker in moves.items()
                if giver in carried or taker in carried
            }
            self._transport.send(host, messages.swap(iteration, share, host_of))
