"""The messages of data-parallel training: weights go out, gradients come back."""

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from mdgan.engine.answers import AnswerForm
from mdgan.families.data_parallel.replica import OF_BOTH, OF_DISCRIMINATOR, OF_GENERATOR, Reduction
from mdgan.families.data_parallel.scaling import BatchSizes
from mdgan.gan.model_state import part_of, under
from mdgan.gan.weighted_mean import WEIGHTED
from mdgan.messages import Message

TRAIN = "TRAIN"
_MOMENTS = "moments."
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
    return AnswerForm(kind_of(reduction), shape, arithmetic=WEIGHTED)


class Share(NamedTuple):
    """A worker's share of an iteration.

    Attributes:
        batch_sizes: b_n of each network.
        weight: of its gradients in their mean; all add up to 1.
    """

    batch_sizes: BatchSizes
    weight: float


class ForRing(NamedTuple):
    """What a host needs to take steps itself.

    Attributes:
        rates: what the learning rate of each network is multiplied by.
        moments: what optimizers keep, by network and name, where the host does not have it.
    """

    rates: Mapping[str, float]
    moments: Mapping[str, Mapping[str, Tensor]]


def train(
    iteration: int,
    reduction: Reduction,
    shares: Mapping[int, Share],
    weights: Mapping[str, Tensor],
    lag: int = 0,
    for_ring: ForRing | None = None,
    *,
    again: bool = False,
) -> Message:
    """Server → host: find gradients with these weights.

    Args:
        iteration: i.
        reduction: which gradients.
        shares: of the host's workers.
        weights: by the names of `weight_vectors`, those that the host does not have.
        lag: how many iterations ago the images were made that discriminators learn from.
        for_ring: what the host needs besides where a ring is to add gradients up.
        again: whether the host is to answer with what it has found already.

    Returns:
        fields `answer`: the kind of the answer; `lag`; `shares`: worker → [b of the
        discriminator, b of the generator, weight]; for a ring `rates`, and `moments`: of which
        networks they come; `again`, if it is. Tensors: the weights by name, and `moments.…`.
    """
    fields = {
        "answer": kind_of(reduction),
        "lag": lag,
        "shares": {str(n): [*share.batch_sizes, share.weight] for n, share in shares.items()},
        **({"again": True} if again else {}),
    }
    if for_ring is not None:
        fields |= {"rates": dict(for_ring.rates), "moments": list(for_ring.moments)}
        weights = {**weights, **_of_moments(for_ring.moments)}
    return Message(TRAIN, iteration, fields, weights)


def _of_moments(moments: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    named = (under(f"{_MOMENTS}{name}.", moments[name]) for name in moments)
    return {name: tensor for part in named for name, tensor in part.items()}


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


def is_again(message: Message) -> bool:
    """Whether a TRAIN message asks for what the host has found already."""
    return bool(message.fields.get("again"))


def read_weights(message: Message) -> dict[str, Tensor]:
    """The weights in a TRAIN message, by the names of `weight_vectors`."""
    return {n: tensor for n, tensor in message.tensors.items() if not n.startswith(_MOMENTS)}


def read_for_ring(message: Message) -> ForRing | None:
    """What a TRAIN message has for a ring; None if there is none."""
    fields = message.fields
    if "rates" not in fields:
        return None
    return ForRing(
        {name: float(factor) for name, factor in fields["rates"].items()},
        {name: part_of(message.tensors, f"{_MOMENTS}{name}.") for name in fields["moments"]},
    )
