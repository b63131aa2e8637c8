"""Scores during training, as the server sees them: it hands generators over and never waits."""

import time
from collections.abc import Collection

from torch import nn

from mdgan import messages
from mdgan.errors import BadInput
from mdgan.messages import Kind, Message
from mdgan.metrics.real_statistics import RealStatistics
from mdgan.observe.run_observer import RunObserver
from mdgan.records.milestones import passed
from mdgan.transport.channel import Channel, ChannelClosed

_MOST_PENDING = 4
_ASK_SECONDS = 0.2
_TELL_SECONDS = 2.0


class Scoring:
    """The server's end of scoring.

    Args:
        channel: to the scorer; None if nothing is scored.
        interval: iterations between two scores.
        iterations: I; the last generator is scored too.

    Attributes:
        extractor: what hosts need to describe their data, once the scorer has it.
    """

    def __init__(self, channel: Channel | None, interval: int, iterations: int) -> None:
        self.extractor: Message | None = None
        self._channel = channel
        self._interval = interval
        self._iterations = iterations
        self._asked: set[int] = set()
        self._real: dict[int, RealStatistics] = {}
        self._real_is_known = False
        self._pending = 0
        self._skipped = 0
        self._abandoned = False

    @property
    def on(self) -> bool:
        """Whether generators are scored."""
        return self._channel is not None

    def after(
        self, before: int, iteration: int, generator: nn.Module, observer: RunObserver
    ) -> None:
        """Hands the generator over if it is to be scored, and takes the scores that are there.

        Args:
            before: the iteration for which this was called last.
            iteration: i, just done.
            generator: G.
            observer: is told of scores.
        """
        last = iteration == self._iterations
        if self.on and (passed(self._interval, before, iteration) or last):
            with observer.tracer.span("evaluate"):
                self._submit(iteration, generator, observer)
        self.poll(observer)

    def _submit(self, iteration: int, generator: nn.Module, observer: RunObserver) -> None:
        """Hands over a copy of a generator, unless the scorer is too far behind."""
        if self._pending >= _MOST_PENDING and iteration < self._iterations:
            self._skipped += 1
            if self._skipped == 1:
                observer.note(
                    f"scoring takes longer than {self._interval} iterations; some are left out"
                )
            return
        fields = {"iteration": iteration, "seconds": observer.seconds()}
        self._pending += 1
        self._send(messages.generator(iteration, generator.state_dict(), fields), observer)

    def poll(self, observer: RunObserver, timeout_seconds: float = 0.0) -> None:
        """Takes what the scorer has found, and passes scores on."""
        while self._channel is not None:
            try:
                message = self._channel.receive(timeout_seconds)
            except ChannelClosed:
                self._give_up("the scorer is gone", observer)
                return
            if message is None:
                return
            timeout_seconds = 0.0
            if message.kind is Kind.SCORES:
                self._pending -= 1
                observer.scores(message.iteration, message.fields)
            elif "reason" in message.fields:
                self._give_up(message.fields["reason"], observer)
            else:
                self.extractor = message

    def to_ask(self, hosts: Collection[int]) -> list[int]:
        """The hosts that are to be sent the extractor now; each is named once."""
        if not self.on or self.extractor is None:
            return []
        new = sorted(set(hosts) - self._asked - self._real.keys())
        self._asked.update(new)
        return new

    def forget(self, host: int) -> None:
        """A host is gone: if it comes back without having told of its data, it is asked again."""
        self._asked.discard(host)

    def note_real(
        self, host: int, message: Message, hosts: Collection[int], observer: RunObserver
    ) -> None:
        """Takes in what a host tells of its data; the sum goes to the scorer when all have told.

        Raises:
            BadInput: it tells nothing that makes sense.
        """
        if not self.on:
            return
        if message.fields["reason"]:
            self._give_up(
                f"rank {host} cannot tell of its data: {message.fields['reason']}", observer
            )
            return
        self._real[host] = RealStatistics.from_tensors(message.tensors)
        self.check_complete(hosts, observer)

    def check_complete(self, hosts: Collection[int], observer: RunObserver) -> None:
        """Sends the sum over all hosts to the scorer if nobody is left to wait for."""
        if self.on and self._real and self.described(hosts):
            parts = [self._real[host] for host in sorted(self._real)]
            try:
                total = sum(parts[1:], start=parts[0])
            except BadInput as error:
                self._give_up(str(error), observer)
                return
            self._real_is_known = True
            self._send(messages.real(0, total.tensors()), observer)

    def described(self, hosts: Collection[int]) -> bool:
        """Whether all these hosts have told of their data, or need not."""
        return not self.on or set(hosts) <= self._real.keys()

    def give_up_without_real(self, observer: RunObserver) -> None:
        """Does not wait for scores if no host is left that could tell of its data."""
        if self.on and not self._real_is_known:
            self._give_up("no host has told of its data", observer)

    def finish(self, observer: RunObserver) -> None:
        """Waits for the scores of what was handed over."""
        told = time.monotonic()
        while self._pending and self.on and not self._abandoned:
            if time.monotonic() - told > _TELL_SECONDS:
                told = float("inf")
                observer.note("scoring the last generator (Ctrl-C leaves that out)")
            self.poll(observer, _ASK_SECONDS)

    def abandon(self) -> None:
        """Does not wait for further scores; may be called from a signal handler."""
        self._abandoned = True

    def _send(self, message: Message, observer: RunObserver) -> None:
        assert self._channel is not None
        try:
            self._channel.send(message)
        except ChannelClosed:
            self._give_up("the scorer is gone", observer)

    def _give_up(self, reason: str, observer: RunObserver) -> None:
        if self._channel is not None:
            self._channel.close()
        self._channel = None
        observer.note(f"scores are left out: {reason}")
        observer.event("unscored", 0, reason=reason)
