"""The server's side of scores: hands generators to the scorer's process, and does not wait."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from mdgan import messages
from mdgan.engine.channel import Channel, ChannelClosed
from mdgan.engine.server.peers import Peers
from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput, one_line
from mdgan.messages import Kind, Message
from mdgan.metrics.real_statistics import RealStatistics
from mdgan.records.values import passed

_MOST_PENDING = 4
_ASK_SECONDS = 0.2
_TELL_SECONDS = 2.0


@dataclass
class ScorerLink:
    """The server's connection to the scorer's process."""

    channel: Channel | None = None  # None if nothing is scored
    # Whether hosts send no statistics: the scorer judges without them, or privacy forbids them.
    knows_real: bool = False
    abandoned: bool = False  # whether the server no longer waits for the last scores

    def abandon(self) -> None:
        """Stops waiting for scores; may be called from a signal handler."""
        self.abandoned = True


class Scoring:
    """Sends generators to the scorer, and the statistics of real data that hosts send."""

    def __init__(self, link: ScorerLink, settings: RunSettings, peers: Peers) -> None:
        self._link = link
        self._channel = link.channel
        self._interval = settings.scores.eval_interval
        self._iterations = settings.training.iterations
        self._as_data = settings.training.label_prior == "data"
        self._peers = peers
        self._observer = peers.observer
        self._extractor: Message | None = None
        self._asked_hosts: set[int] = set()
        self._owing: set[int] = set()  # asked hosts that have not answered
        self._real: dict[int, RealStatistics] = {}
        self._summed: set[int] = set()
        self._silent: dict[int, str] = {}  # host → why it sends no statistics of its data
        self._pending = 0
        self._has_skipped = False

    @property
    def on(self) -> bool:
        """Whether generators are scored."""
        return self._channel is not None

    def learnt(self, message: Message) -> None:
        """Sends the scorer the counts by which samples are encoded."""
        if self.on:
            self._send(message)

    def score_after(
        self,
        before: int,
        iteration: int,
        generator: nn.Module,
        holdings: Callable[[], Mapping[str, Any]] = dict,
        *,
        ends: bool = False,
    ) -> None:
        """Hands the generator over if it is its turn, and takes in scores that have come.

        `before` is the iteration of the last call; `label_prior=data` needs the holdings.
        """
        last = ends or iteration == self._iterations
        if self.on and (passed(self._interval, before, iteration) or last):
            with self._observer.tracer.span("evaluate"):
                self._submit(iteration, generator, holdings)
        self.poll()

    def _submit(
        self, iteration: int, generator: nn.Module, holdings: Callable[[], Mapping[str, Any]]
    ) -> None:
        """Hands over a copy of a generator, unless the scorer is too far behind."""
        if self._pending >= _MOST_PENDING and iteration < self._iterations:
            if not self._has_skipped:
                self._observer.note(
                    f"scoring takes longer than {self._interval} iterations; some are left out"
                )
            self._has_skipped = True
            return
        fields: dict[str, Any] = {"iteration": iteration, "seconds": self._observer.seconds()}
        if self._as_data:
            fields["held"] = [holding["classes"] for holding in holdings().values()]
        self._pending += 1
        self._send(Message(Kind.GENERATOR, iteration, fields, tensors=generator.state_dict()))

    def poll(self, timeout_seconds: float = 0.0) -> None:
        """Handles messages of the scorer: records scores, and asks hosts for statistics."""
        while self._channel is not None:
            try:
                message = self._channel.receive(timeout_seconds)
            except ChannelClosed:
                self._give_up("the scorer is gone")
                return
            if message is None:
                self._ask()
                return
            timeout_seconds = 0.0
            if message.kind == Kind.SCORES:
                self._pending -= 1
                self._observer.scores(message.iteration, message.fields)
            elif "reason" in message.fields:
                self._give_up(message.fields["reason"])
            else:
                self._extractor = message

    def _ask(self) -> None:
        """Sends the extractor to hosts that take part and have not got it yet."""
        if self._link.knows_real or self._extractor is None:
            return
        hosts = self._peers.taking_part().keys() - self._asked_hosts - self._real.keys()
        for host in sorted(hosts):
            self._asked_hosts.add(host)
            self._owing.add(host)
            self._peers.transport.send(host, self._extractor)

    def note_real(self, host: int, message: Message) -> None:
        """Takes in the statistics of a host's data; sends the scorer the sum once all have come.

        Raises:
            ValueError: the host was not asked, or has sent its statistics already.
        """
        if not self.on:
            return
        if host not in self._owing:
            raise ValueError("it was not asked for its data")
        self._owing.discard(host)
        reason = message.fields["reason"]
        if reason:
            self._leave_out(host, f"rank {host} cannot tell of its data: {one_line(reason)}")
        else:
            self._real[host] = RealStatistics.from_tensors(message.tensors)
        self._check_complete()

    def _leave_out(self, host: int, reason: str) -> None:
        """Leaves one host's data out of the scores, so that the other hosts still have scores."""
        self._real.pop(host, None)
        if host not in self._silent:
            self._observer.note(f"scores know nothing of some data: {reason}")
        self._silent[host] = reason

    def on_lost(self) -> None:
        """Stops waiting for lost hosts; the server asks them again if they come back.

        If no other statistics are missing, the sum is complete.
        """
        self._asked_hosts.intersection_update(self._peers.hosts())
        self._owing &= self._asked_hosts
        self._check_complete()

    def _check_complete(self) -> None:
        """Sends the sum over all hosts to the scorer, unless a host has not sent its part yet."""
        hosts = self._peers.hosts()
        if not (self.on and self._have_described(hosts)):
            return
        # Leaves out statistics that cannot be added to those of the majority.
        sizes = {host: (real.num_features, real.num_classes) for host, real in self._real.items()}
        usual = [size for size, n in Counter(sizes.values()).items() if 2 * n > len(sizes)]
        for host, size in sizes.items():
            if usual and size != usual[0]:
                self._leave_out(host, f"rank {host} describes it by another network")
        if self._silent and not self._real and hosts:
            self._give_up(next(iter(self._silent.values())))
        elif self._real and self._summed != self._real.keys():
            summed_before, self._summed = self._summed, set(self._real)
            parts = [self._real[host] for host in sorted(self._real)]
            try:
                total = sum(parts[1:], start=parts[0])
            except BadInput as error:
                self._give_up(str(error))
                return
            self._send(messages.real(0, total.tensors()))
            if summed_before:
                self._observer.note(
                    f"from now on scores compare with {total.num_samples:,} real samples, as other "
                    "hosts have told of theirs; earlier scores, and what real data get, are of "
                    "fewer or others"
                )
                about = {"num_samples": total.num_samples, "hosts": sorted(self._summed)}
                self._observer.event("real", self._peers.iteration, **about)

    def described(self) -> bool:
        """Whether all hosts that take part have sent their statistics, or need not."""
        return not self.on or self._have_described(self._peers.taking_part())

    def _have_described(self, hosts: Collection[int]) -> bool:
        return self._link.knows_real or set(hosts) <= self._real.keys() | self._silent.keys()

    def finish(self) -> None:
        """Waits for the scores of all generators that were handed over."""
        told_at = time.monotonic()
        while self._pending and self.on and not self._link.abandoned:
            if time.monotonic() - told_at > _TELL_SECONDS:
                told_at = float("inf")
                self._observer.note("scoring the last generator (Ctrl-C leaves that out)")
            self.poll(_ASK_SECONDS)

    def give_up_without_real(self) -> None:
        """Gives scores up if no host has sent statistics; called when none can any more."""
        if self.on and not (self._link.knows_real or self._summed):
            self._give_up("no host has told of its data")

    def _send(self, message: Message) -> None:
        assert self._channel is not None
        try:
            self._channel.send(message)
        except ChannelClosed:
            self._give_up("the scorer is gone")

    def _give_up(self, reason: str) -> None:
        if self._channel is not None:
            self._channel.close()
        self._channel = None
        self._observer.note(f"scores are left out: {reason}")
        self._observer.event("unscored", 0, reason=reason)
