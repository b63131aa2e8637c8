"""The messages of data-parallel training: weights go out, gradients come back."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from mdgan.engine.answers import AnswerForm
from mdgan.families.data_parallel.replica import OF_BOTH, OF_DISCRIMINATOR, OF_GENERATOR, Reduction
from mdgan.families.data_parallel.scaling import BatchSizes, WorkerShare
from mdgan.gan.model_state import part_of, under
from mdgan.gan.weighted_mean import WEIGHTED
from mdgan.messages import Message

TRAIN = "TRAIN"
KINDS = {"DGRADIENT": OF_DISCRIMINATOR, "GGRADIENT": OF_GENERATOR, "GRADIENTS": OF_BOTH}
"""The kinds of answer: which gradients are in each."""
KIND_OF = {reduction: kind for kind, reduction in KINDS.items()}
_MOMENTS = "moments."


def gradient_form(reduction: Reduction, shape: tuple[int, ...]) -> AnswerForm:
    """How gradients of a shape, that of `GradientVector`, travel back."""
    return AnswerForm(KIND_OF[reduction], shape, arithmetic=WEIGHTED)


@dataclass(frozen=True)
class TrainQuestion:
    """What workers are asked in which each trains both networks: gradients of a reduction."""

    reduction: Reduction
    shares: Mapping[int, WorkerShare]
    lag: int = 0
    """How many iterations ago the images were made that discriminators learn from."""
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    """Weights by the names of `weight_vectors`, those that the host does not have."""
    rates: Mapping[str, float] | None = None
    """By network, what the learning rate is multiplied by, where hosts are to step themselves."""
    moments: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)
    """What optimizers keep, by network and name, where such a host does not have it."""
    is_again: bool = False
    """Whether the host is to answer with what it has found already."""

    @property
    def weights(self) -> dict[int, float]:
        """Of each worker in the mean."""
        return {worker: share.weight for worker, share in self.shares.items()}


def train(iteration: int, question: TrainQuestion) -> Message:
    """Server → host: find gradients with these weights."""
    fields = {
        "answer": KIND_OF[question.reduction],
        "lag": question.lag,
        "shares": {
            str(n): [*share.batch_sizes, share.weight] for n, share in question.shares.items()
        },
        "again": question.is_again,
    }
    if question.rates is not None:
        fields |= {"rates": dict(question.rates), "moments": list(question.moments)}
    tensors = dict(question.tensors)
    for network, moments in question.moments.items():
        tensors |= under(f"{_MOMENTS}{network}.", moments)
    return Message(TRAIN, iteration, fields, tensors)


def read_train(message: Message, device: torch.device) -> TrainQuestion:
    """Reads what `train` made; tensors go to a device."""
    fields, tensors = message.fields, {n: t.to(device) for n, t in message.tensors.items()}
    shares = {
        int(worker): WorkerShare(BatchSizes(int(learning), int(judging)), float(weight))
        for worker, (learning, judging, weight) in fields["shares"].items()
    }
    rates = fields.get("rates")
    return TrainQuestion(
        KINDS[fields["answer"]],
        shares,
        int(fields["lag"]),
        {name: tensor for name, tensor in tensors.items() if not name.startswith(_MOMENTS)},
        None if rates is None else {name: float(factor) for name, factor in rates.items()},
        {n: part_of(tensors, f"{_MOMENTS}{n}.") for n in fields.get("moments", ())},
        bool(fields["again"]),
    )
