"""The messages of data-parallel training: weights go out, gradients come back."""

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from mdgan.engine.answers import AnswerForm
from mdgan.families.data_parallel.replica import OF_BOTH, OF_DISCRIMINATOR, OF_GENERATOR, Reduction
from mdgan.families.data_parallel.scaling import BatchSizes
from mdgan.messages import Message

TRAIN = "TRAIN"
KINDS = {"DGRADIENT": OF_DISCRIMINATOR, "GGRADIENT": OF_GENERATOR, "GRADIENTS": OF_BOTH}
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
        batch_sizes: b_n of each network.
        weight: of its gradients in their mean; all add up to 1.
    """

    batch_sizes: BatchSizes
    weight: float


def train(
    iteration: int,
    reduction: Reduction,
    shares: Mapping[int, Share],
    weights: Mapping[str, Tensor],
    lag: int = 0,
) -> Message:
    """Server → host: find gradients with these weights.

    Args:
        iteration: i.
        reduction: which gradients.
        shares: of the host's workers.
        weights: by the names of `weight_vectors`, those that the host does not have.
        lag: how many iterations ago the images were made that discriminators learn from.

    Returns:
        fields `answer`: the kind of the answer; `lag`; `shares`: worker → [b of the
        discriminator, b of the generator, weight]; tensors: the weights by name.
    """
    fields = {
        "answer": kind_of(reduction),
        "lag": lag,
        "shares": {str(n): [*share.batch_sizes, share.weight] for n, share in shares.items()},
    }
    return Message(TRAIN, iteration, fields, weights)


def read_train(message: Message) -> tuple[Reduction, dict[int, Share], int]:
    """Reads a TRAIN message.

    Returns:
        Which gradients, the shares of the workers that take part, and the lag.
    """
    shares = {
        int(worker): Share(BatchSizes(int(learning), int(judging)), float(weight))
        for worker, (learning, judging, weight) in message.fields["shares"].items()
    }
    return KINDS[message.fields["answer"]], shares, int(message.fields["lag"])
