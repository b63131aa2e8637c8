"""The two messages of every round of a federated algorithm: models go out, models come back."""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from torch import Tensor

from mdgan.engine.answers import AnswerForm
from mdgan.families.federated.settings import FederatedSettings
from mdgan.families.federated.training_load import Load
from mdgan.gan.codecs import Codec
from mdgan.gan.model_vector import ModelVector
from mdgan.gan.weighted_mean import MOST_EXACT, STEPS_PER_UNIT
from mdgan.messages import Message

ROUND = "ROUND"
UPDATE = "UPDATE"
CHARGE = "CHARGE"


def update_form(settings: FederatedSettings, vector: ModelVector) -> AnswerForm:
    """How models travel back.

    Args:
        settings: of the run. A rule that outvotes liars must see each worker's models.
        vector: of both models.
    """
    return AnswerForm(
        UPDATE,
        vector.shape,
        Codec.of(settings.wire.models),
        settings.adds_up,
        steps=STEPS_PER_UNIT if settings.secure.secure_aggregation else 0.0,
        most=MOST_EXACT,
        most_norm=settings.privacy.update_clip if settings.privacy.hides_clients else None,
    )


def charge(iteration: int, about: Mapping[str, Any]) -> Message:
    """Server → host, before a round: what it costs the clients, whether or not they take part.

    Args:
        iteration: i after the round.
        about: see `privacy.clients.Round`.

    Returns:
        these fields.
    """
    return Message(CHARGE, iteration, fields=about)


def order(
    iteration: int,
    models: Tensor,
    loads: Mapping[int, Load],
    weights: Mapping[int, float],
    sums: Mapping[str, Any] | None = None,
) -> Message:
    """Server → host: train these models.

    Args:
        iteration: i after the round.
        models: float32 `ModelVector.shape`.
        loads: of the host's workers that take part; of all workers of the sum, if models are
            masked, so that hosts see that each of them is told the same.
        weights: of the same workers, for the mean.
        sums: which hosts take part in the sum, if models are masked.

    Returns:
        fields `loads`: worker → [iterations, batch size]; `weights`: worker → w; `sums` if models
        are masked; tensor `models`.
    """
    fields = {
        "loads": {
            str(worker): [load.iterations, load.batch_size] for worker, load in loads.items()
        },
        "weights": {str(worker): weights[worker] for worker in loads},
        **({} if sums is None else {"sums": sums}),
    }
    return Message(ROUND, iteration, fields, {"models": models})


def read_order(message: Message) -> tuple[Tensor, dict[int, Load], dict[int, float]]:
    """Reads a ROUND message.

    Returns:
        The models, the loads and the weights of the workers that take part; if models are masked,
        of all that have a part in the sum.
    """
    loads = {int(worker): Load(*load) for worker, load in message.fields["loads"].items()}
    weights = {int(worker): float(w) for worker, w in message.fields["weights"].items()}
    return message.tensors["models"], loads, weights


def digest_of(order: Message) -> bytes:
    """SHA-256 of what all hosts of a sum must be told alike: models, loads and weights."""
    told = json.dumps([order.fields["loads"], order.fields["weights"]], sort_keys=True)
    return sha256(told.encode() + order.tensors["models"].numpy().tobytes()).digest()
