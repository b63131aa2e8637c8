"""The two messages of every round of a federated algorithm: models go out, models come back."""

from collections.abc import Mapping
from functools import partial

from torch import Tensor

from mdgan.families.federated.model_average import weighted_sum
from mdgan.families.federated.training_load import Load
from mdgan.families.mdgan.messages import Form, feedback
from mdgan.gan.codecs import parse_codec
from mdgan.gan.model_vector import ModelVector
from mdgan.messages import Kind, Message
from mdgan.settings.experiment import Experiment


def round_form(experiment: Experiment, vector: ModelVector) -> Form:
    """How models travel.

    Args:
        experiment: what is computed.
        vector: of both models.
    """
    codec = parse_codec(experiment.wire_models)
    return Form(vector.shape, feedback=codec, sums=True, kind=Kind.UPDATE)


def order(
    iteration: int, models: Tensor, loads: Mapping[int, Load], weights: Mapping[int, float]
) -> Message:
    """Server → host: train these models.

    Args:
        iteration: i after the round.
        models: float32 `ModelVector.shape`.
        loads: of those of the host's workers that take part.
        weights: likewise, what the mean weighs them by.

    Returns:
        fields `loads`: worker → [iterations, batch size]; `weights`: worker → w; tensor `models`.
    """
    fields = {
        "loads": {
            str(worker): [load.iterations, load.batch_size] for worker, load in loads.items()
        },
        "weights": {str(worker): weights[worker] for worker in loads},
    }
    return Message(Kind.ROUND, iteration, fields, {"models": models})


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
    form: Form,
) -> Message:
    """Host → server: what the host's workers have made of the models.

    Three or more are added up.

    Args:
        iteration: i after the round.
        models: by worker, float32 `ModelVector.shape`; with a codec that loses something, what has
            changed.
        losses: J_disc and J_gen by worker, float32 [2].
        weights: what each is multiplied by before it is added to others.
        form: how models travel.

    Returns:
        As `iteration_messages.feedback`, models in the place of feedback.
    """
    together = dict.fromkeys(models, 0)
    add_up = partial(weighted_sum, weights=weights)
    return feedback(iteration, models, losses, together, form, add_up=add_up)
