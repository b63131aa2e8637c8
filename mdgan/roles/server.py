"""Rank 0: owns the generator, assigns batches, collects feedback, orders swaps."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from mdgan import messages
from mdgan.algorithms.mdgan import GeneratorLearner, aggregate, assign, resolve_kappa
from mdgan.algorithms.swap import Moves, draw_swap
from mdgan.config import Experiment, Timeouts
from mdgan.errors import BadInput, Interrupted
from mdgan.messages import Kind, Message
from mdgan.observe.run_observer import RunObserver
from mdgan.roles.roster import Roster
from mdgan.transport.base import Asked, Joined, Lost, Received, Refused, ServerTransport


class AllWorkersLost(RuntimeError):
    """Nobody is left to train with."""


@dataclass
class _Swap:
    """A swap under way: its moves, and the digests reported so far."""

    iteration: int
    moves: Moves
    sits_out: list[int]
    given: dict[int, str] = field(default_factory=dict)
    taken: dict[int, str] = field(default_factory=dict)


class Server:
    """The server's side of Algorithm 1 (Hardy et al. 2019), with server-drawn swaps."""

    def __init__(
        self,
        experiment: Experiment,
        learner: GeneratorLearner,
        transport: ServerTransport,
        roster: Roster,
        observer: RunObserver,
        timeouts: Timeouts,
        device: torch.device,
    ) -> None:
        self._experiment = experiment
        self._learner = learner
        self._transport = transport
        self._roster = roster
        self._observer = observer
        self._timeouts = timeouts
        self._device = device
        self._iteration = 0
        self._num_swaps = 0
        self._swap: _Swap | None = None

    def run(self) -> None:
        """Waits for all workers, trains, and says goodbye.

        Raises:
            BadInput: not all workers came in time.
            Interrupted: somebody asked to stop; the run is saved.
            AllWorkersLost: nobody is left; the run is saved.
        """
        reason = "the server failed"
        try:
            self._await_workers()
            self._observer.begin()
            self._train_and_save()
            reason = ""
        except BadInput as error:
            reason = str(error)
            raise
        except Interrupted:
            reason = f"the server was asked to stop after iteration {self._iteration}"
            raise
        finally:
            for host in self._roster.hosts():
                self._transport.send(host, messages.stop(self._iteration, reason))
            self._transport.close()

    def _train_and_save(self) -> None:
        state = "failed"
        try:
            self._train()
            state = "finished"
        except Interrupted:
            state = "stopped"
            raise
        finally:
            self._observer.end(state, self._iteration)

    def _train(self) -> None:
        swap_every = self._experiment.swap_every(self._roster.mean_shard_size)
        for i in range(1, self._experiment.iterations + 1):
            # 1. Generate κ batches in one forward pass.
            workers = self._live_workers(i)
            kappa = resolve_kappa(self._experiment.kappa, len(workers))
            generated = self._learner.generate(kappa)

            # 2. Assign: worker n judges X^(n mod κ) and trains on X^((n+1) mod κ).
            assignment = assign(workers, kappa)
            last = i == self._experiment.iterations
            swap_follows = swap_every > 0 and i % swap_every == 0 and not last
            for host, carried in self._roster.hosts().items():
                share = {worker: assignment[worker] for worker in carried}
                batches = messages.batches(
                    i, generated, share, swap_follows=swap_follows, last=last
                )
                self._transport.send(host, batches)

            # 3, 4. Workers train and answer.
            feedbacks, losses = self._collect(i)

            # 5. One backward pass and one optimizer step from all feedback.
            self._learner.update(aggregate(feedbacks, assignment, kappa))
            self._iteration = i

            # 6. Swap.
            if swap_follows:
                self._order_swap(i)
            self._observer.iteration(i, losses, len(feedbacks))

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
        for message in self._messages_until(iteration, feedbacks):
            if message.kind is Kind.FEEDBACK and message.iteration == iteration:
                workers = message.fields["workers"]
                answers = message.tensors["feedback"].to(self._device)
                feedbacks.update(zip(workers, answers, strict=True))
                losses.update(zip(workers, message.tensors["losses"], strict=True))
            elif message.kind is Kind.SWAPPED:
                self._note_swapped(message)
        return feedbacks, torch.stack([losses[worker] for worker in sorted(losses)])

    def _messages_until(self, iteration: int, answered: dict[int, Tensor]) -> Iterator[Message]:
        """Messages as they come, until every live worker has answered."""
        deadline = time.monotonic() + self._timeouts.answer
        while missing := set(self._roster.workers()) - answered.keys():
            event = self._transport.receive(max(0.0, deadline - time.monotonic()))
            if isinstance(event, Received):
                yield event.message
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

    def _order_swap(self, iteration: int) -> None:
        workers = self._roster.workers()
        moves = draw_swap(self._experiment.swap, self._experiment.seed, self._num_swaps, workers)
        self._num_swaps += 1
        self._swap = _Swap(iteration, moves, sorted(set(workers) - moves.keys()))
        host_of = self._roster.host_of()
        for host, carried in self._roster.hosts().items():
            share = {
                giver: taker
                for giver, taker in moves.items()
                if giver in carried or taker in carried
            }
            self._transport.send(host, messages.swap(iteration, share, host_of))

    def _note_swapped(self, message: Message) -> None:
        """Records a swap once everybody has reported, and whether every bit arrived."""
        swap = self._swap
        if swap is None or message.iteration != swap.iteration:
            return
        swap.given.update({int(n): digest for n, digest in message.fields["given"].items()})
        swap.taken.update({int(n): digest for n, digest in message.fields["taken"].items()})
        if swap.given.keys() < swap.moves.keys():
            return
        self._swap = None
        self._observer.event(
            "swap",
            swap.iteration,
            moves=sorted(swap.moves.items()),
            sits_out=swap.sits_out,
            given=swap.given,
            taken=swap.taken,
            exact=all(swap.taken.get(to) == swap.given[giver] for giver, to in swap.moves.items()),
        )
