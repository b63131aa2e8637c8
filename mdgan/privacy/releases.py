"""The one rule for what a worker tells with noise, once: it is charged by what was asked.

A question is all that an answer follows from but the noise: what is counted or added up, within
which bounds, of which samples. Only the identical question is free, and it is answered by what was
told then. Any other one draws noise of its own and is charged: two answers that share noise, or of
which one was not charged, would tell more than the account says.
"""

import hashlib
import json

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from mdgan.privacy.contents import Contents
from mdgan.privacy.ledger import Plan

_ANSWER = "answer"


def question_of(what: str, held: Contents, **about: object) -> bytes:
    """The digest of a question.

    Args:
        what: kind of answer.
        held: the samples that it is about.
        about: all else that the answer follows from, as JSON values.
    """
    samples = hashlib.sha256(b"".join(held.digests)).hexdigest()
    return hashlib.sha256(json.dumps([what, samples, about], sort_keys=True).encode()).digest()


def once_more(plan: Plan, held: Contents) -> bytes:
    """Under what a ledger notes that some samples have told once, by a plan, what it keeps."""
    return question_of("once", held, plan=plan.asked)


def as_bytes(answer: Tensor) -> bytes:
    """An answer as a ledger keeps it."""
    return save({_ANSWER: answer.contiguous()})


def answer_in(kept: bytes) -> Tensor | None:
    """An answer that a ledger has kept; None if it cannot be read."""
    try:
        return load(kept)[_ANSWER]
    except (KeyError, SafetensorError):
        return None
