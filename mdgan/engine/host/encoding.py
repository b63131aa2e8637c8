"""What a host tells before training so that all sites can encode samples alike, and learns."""

import hashlib
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from mdgan.engine.counting import counts_form, published_digest, read_learnt
from mdgan.engine.host.protocol import OutOfTurn
from mdgan.engine.stages.contract import HostPath, Leaving
from mdgan.messages import Kind, Message
from mdgan.samples.contract import SampleKind


class HostEncoding:
    """Counts once, and lets the algorithm begin when the counts of all sites are there.

    Args:
        counts: by worker, its counts, int64, with noise if they must have some; called once.
        noisy: whether they have.
    """

    def __init__(
        self, kind: SampleKind, counts: Callable[[], Mapping[int, Tensor]], *, noisy: bool = False
    ) -> None:
        self._kind = kind
        self._counts = counts
        self._noisy = noisy
        self.learnt = ""  # the digest of what was learnt, for `Statement`
        self._waiting: list[Callable[[], None]] = []
        self.is_known = not kind.num_counts  # whether samples can be encoded

    def once_known(self, then: Callable[[], None]) -> None:
        """Calls a function as soon as samples can be encoded."""
        if self.is_known:
            then()
        else:
            self._waiting.append(then)

    def answer(self, question: Message, path: HostPath) -> Message:
        """Host → server: the counts of all workers here; the server sees sums alone if it must."""
        if not self._kind.num_counts:
            raise OutOfTurn("it asks for counts, and there is nothing to count")
        counts = self._counts()
        if not path.hides_answers:
            total = {"counts": torch.stack(list(counts.values())).sum(0)}
            return Message(Kind.COUNTS, question.iteration, tensors=total)
        told = {worker: own.double() for worker, own in counts.items()}
        about, form = hashlib.sha256(b"counts").digest(), counts_form(self._kind.num_counts)
        return path.pack(Leaving.in_one_sum(question, told, about, form))

    def learn(self, message: Message) -> None:
        """Takes in the counts of all sites, from the server; raises as `read_learnt`.

        They do not change: encoded otherwise, the same samples would tell more.
        """
        counts = read_learnt(message, self._kind.num_counts)
        learnt = published_digest(self._kind, counts, noisy=self._noisy)
        if self.learnt not in ("", learnt):
            raise ValueError("other counts than before")
        self._kind.learn(counts)
        self.learnt = learnt
        self.is_known = True
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()
