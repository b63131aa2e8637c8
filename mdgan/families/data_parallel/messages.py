"""The messages of data-parallel training: weights go out, gradients come back."""

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from mdgan.engine.answers import AnswerForm
from mdgan.families.data_parallel.replica import OF_DISCRIMINATOR, OF_GENERATOR, Reduction
from mdgan.messages import Message

TRAIN = "TRAIN"
KINDS = {"DGRADIENT": OF_DISCRIMINATOR, "GGRADIENT": OF_GENERATOR}
"""The kinds of answer: which gradients are in each."""


def kind_of(reduction: Reduction) -> str:
    """The kind of the messages with the gradients of a reduction."""
    (kind,) = (kind for kind, known in KINDS.items() if known == reduction)
    return kind


def gradient_form(reduction: Reduction, shape: tuple[int, ...]) -> AnswerForm:
    """How gradients travel back.

    Args:
        reduction: which gradients.
        shape: of `GradientVector`.
    """
    return AnswerForm(kind_of(reduction), shape)


class Share(NamedTuple):
    """A worker's share of an iteration.

    Attributes:
        batch_size: b_n.
        weight: of its gradients in their mean; all add up to 1.
    """

    batch_size: int
    weight: float


def train(
    iteration: int,
    reduction: Reduction,
    shares: Mapping[int, Share],
    weights: Mapping[str, Tensor],
) -> Message:
    """Server → host: find gradients with these weights.

    Args:
        iteration: i.
        reduction: which gradients.
        shares: of the host's workers.
        weights: by the names of `weight_vectors`, those that the host does not have.

    Returns:
        fields `answer`: the kind of the answer; `shares`: worker → [b, weight]; tensors: the
        weights by name.
    """
    fields = {
        "answer": kind_of(reduction),
        "shares": {str(worker): list(share) for worker, share in shares.items()},
    }
    return Message(TRAIN, iteration, fields, weights)


def read_train(message: Message) -> tuple[Reduction, dict[int, Share]]:
    """Reads a TRAIN message.

    Returns:
        Which gradients, and the shares of the workers that take part.
    """
    shares = message.fields["shares"]
    return (
        KINDS[message.fields["answer"]],
        {int(worker): Share(int(size), float(weight)) for worker, (size, weight) in shares.items()},
    )
