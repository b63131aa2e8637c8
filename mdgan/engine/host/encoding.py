"""A host's counts before training, and the sum over all sites by which it encodes samples."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from mdgan.engine.counting import counts_form, published_digest, read_learnt
from mdgan.engine.host.protocol import OutOfTurn
from mdgan.engine.stages.contract import HostPath, Leaving
from mdgan.engine.stages.noise_parts import OF_COUNTS, least_noise, parts_of_noise
from mdgan.messages import Kind, Message
from mdgan.samples.contract import SampleKind


class HostEncoding:
    """Counts once, and lets the algorithm begin when the counts of all sites have come.

    Args:
        counts: computes each worker's counts from its part of the noise; called once.
        noisy: whether the counts have noise, and the form of `SampleKind.noisy_form`.
        noises: by worker, σ of its account.
    """

    def __init__(
        self,
        kind: SampleKind,
        counts: Callable[[Mapping[int, float]], Mapping[int, Tensor]],
        *,
        noisy: bool = False,
        noises: Mapping[int, float] = {},
    ) -> None:
        self._kind = kind
        self._counts = counts
        self._noisy, self._noises = noisy, noises
        self.learnt = ""  # the digest of the counts of all sites, for `Statement`
        self._waiting: list[Callable[[], None]] = []
        self.is_known = not kind.num_counts  # whether samples can be encoded

    def once_known(self, then: Callable[[], None]) -> None:
        """Calls a function as soon as samples can be encoded."""
        if self.is_known:
            then()
        else:
            self._waiting.append(then)

    def tell(self) -> dict[str, Any]:
        """The noise of each worker's counts, for the READY message."""
        return {OF_COUNTS: {str(n): own for n, own in self._noises.items()}} if self._noises else {}

    def answer(self, question: Message, path: HostPath) -> Message:
        """The message with this host's counts; masked where the server may see only a sum."""
        if not self._kind.num_counts:
            raise OutOfTurn("it asks for counts, and there is nothing to count")
        if not path.hides_answers:
            total = {"counts": torch.stack(list(self._counts({}).values())).sum(0)}
            return Message(Kind.COUNTS, question.iteration, tensors=total)
        counts = self._counts(parts_of_noise(question, path, self._noises))
        told = {worker: own.double() for worker, own in counts.items()}
        about = hashlib.sha256(f"counts {least_noise(question)!r}".encode()).digest()
        form = counts_form(self._kind, noisy=self._noisy)
        return path.pack(Leaving.in_one_sum(question, told, about, form=form))

    def learn(self, message: Message) -> None:
        """Takes in the counts of all sites from the server; raises as `read_learnt`.

        Other counts later are refused: samples encoded in two ways would reveal more.
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
