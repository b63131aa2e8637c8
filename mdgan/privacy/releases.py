"""The one rule for what a worker tells with noise, once: it is charged by what was asked.

A question is all that an answer follows from but the noise: what is counted or added up, within
which bounds, of which samples. Only the identical question is free, and it is answered by what was
told then. Any other one draws noise of its own and is charged: two answers that share noise, or of
which one was not charged, would tell more than the account says.
"""

import hashlib
import json
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from mdgan.privacy.contents import Contents
from mdgan.privacy.ledger import Ledger, remembered

_ANSWER = "answer"


class Releases:
    """What held samples have told once, by the ledger in a folder."""

    def __init__(self, folder: Path, held: Contents) -> None:
        self._folder = folder
        samples = [*held.digests, *(row for row, _ in held.rows)]
        self._samples = hashlib.sha256(b"".join(samples)).hexdigest()

    def question(self, what: str, **about: object) -> bytes:
        """The digest of a question.

        Args:
            what: kind of answer.
            about: all else that the answer follows from, as JSON values.
        """
        text = json.dumps([what, self._samples, about], sort_keys=True)
        return hashlib.sha256(text.encode()).digest()

    def told(self, question: bytes) -> Tensor | None:
        """What a question was answered by; None if it was not."""
        kept = remembered(self._folder, question)
        try:
            return None if kept is None else load(kept)[_ANSWER]
        except (KeyError, SafetensorError):
            return None

    def has_told(self, asked: str) -> bool:
        """Whether something was told by the plan of that `asked`, which may be told again."""
        return self.told(self._by_plan(asked)) is not None

    def keep(self, ledger: Ledger, question: bytes, answer: Tensor) -> None:
        """Keeps what was told; comes before it leaves the worker."""
        by_plan = self._by_plan(ledger.run.plan.asked)
        answers = {question: answer.contiguous(), by_plan: torch.empty(0)}
        ledger.remember({each: save({_ANSWER: told}) for each, told in answers.items()})

    def _by_plan(self, asked: str) -> bytes:
        return self.question("once", asked=asked)
