"""The two messages of every round of a federated algorithm: models go out, models come back."""

from collections.abc import Mapping
from functools import partial

from torch import Tensor

from mdgan.engine.answers import AnswerForm, pack_answers
from mdgan.families.federated.model_average import weighted_sum
from mdgan.families.federated.training_load import Load
from mdgan.gan.codec_form import CodecForm
from mdgan.gan.codecs import Codec
from mdgan.gan.model_vector import ModelVector
from mdgan.messages import Message

ROUND = "ROUND"
UPDATE = "UPDATE"


def update_form(codec: CodecForm, vector: ModelVector) -> AnswerForm:
    """How models travel back.

    Args:
        codec: how they are written.
        vector: of both models.
    """
    return AnswerForm(UPDATE, vector.shape, Codec.of(codec))


def order(
    iteration: int, models: Tensor, loads: Mapping[int, Load], weights: Mapping[int, float]
) -> Message:
    """Server → host: train these models.

    Args:
        iteration: i after the round.
        models: float32 `ModelVector.shape`.
        loads: of the host's workers that take part.
        weights: of the same workers, for the mean.

    Returns:
        fields `loads`: worker → [iterations, batch size]; `weights`: worker → w; tensor `models`.
    """
    fields = {
        "loads": {
            str(worker): [load.iterations, load.batch_size] for worker, load in loads.items()
        },
        "weights": {str(worker): weights[worker] for worker in loads},
    }
    return Message(ROUND, iteration, fields, {"models": models})


def read_order(message: Message) -> tuple[Tensor, dict[int, Load], dict[int, float]]:
    """Reads a ROUND message.

    Returns:
        The models, the loads and the weights of the workers that take part.
    """
    loads = {int(worker): Load(*load) for worker, load in message.fields["loads"].items()}
    weights = {int(worker): float(w) for worker, w in message.fields["weights"].items()}
    return message.tensors["models"], loads, weights


def update(
    iteration: int,
    models: Mapping[int, Tensor],
    losses: Mapping[int, Tensor],
    weights: Mapping[int, float],
    form: AnswerForm,
) -> Message:
    """Host → server: the models as the host's workers have trained them.

    Three or more are added up.

    Args:
        iteration: i after the round.
        models: by worker, float32 `ModelVector.shape`; with a codec that loses something, the
            differences to the models that were sent.
        losses: J_disc and J_gen by worker, float32 [2].
        weights: what each is multiplied by before it is added to others.
        form: how models travel.

    Returns:
        As `pack_answers`, each answer a vector of models.
    """
    together = dict.fromkeys(models, 0)
    add_up = partial(weighted_sum, weights=weights)
    return pack_answers(iteration, models, losses, together, form, add_up=add_up)
