"""What `mdgan plan` must know of FL-GAN and FeGAN: how to play short rounds, and their costs."""

from dataclasses import replace

from mdgan.engine.message_sizes import training_bytes
from mdgan.engine.settings import num_participants
from mdgan.errors import BadInput
from mdgan.families.contract import ClassCounts, Planning, mean_size
from mdgan.families.federated.forms import ClusterForm
from mdgan.families.federated.placed_planning import placed_planning
from mdgan.families.federated.settings import FederatedSettings
from mdgan.gan.build import Models, build_model, num_parameters
from mdgan.gan.model_vector import ModelVector

_FLOAT_BYTES = 4
_PLAYED_ITERATIONS = 4


def planning(
    settings: FederatedSettings, models: Models, class_counts: ClassCounts | None
) -> Planning[FederatedSettings]:
    """See `Builder.planning`; a short run has rounds of a few iterations.

    Raises:
        BadInput: how long a round is depends on m, which the user has not said.
    """
    if class_counts is None and settings.rounds.round_iterations is None:
        raise BadInput(
            f"--round-epochs {settings.rounds.round_epochs or 1:g}: how long a round is depends on "
            "how "
            "many samples a worker has; say --shard-size or --round-iterations"
        )
    both = [build_model(kind, 0) for kind in (models.generator, models.discriminator)]
    mean = mean_size(class_counts or [[]])
    length = min(settings.round_length(mean), settings.training.iterations)
    played = min(length, _PLAYED_ITERATIONS)
    short = settings.but(
        round_iterations=played, round_epochs=None, clusters=ClusterForm()
    )  # noise has labels, and no groups
    fewer_bytes = [{"wire": "models=int8"}] if str(settings.wire.models) == "fp32" else []
    usual = Planning(
        short,
        enough_workers=settings.aggregation.needs_answers,
        iterations=length,
        played_iterations=played,
        worker_bytes=training_bytes(
            (both[0], settings.training.policy("generator")),
            (both[1], settings.training.policy("discriminator")),
        ),
        remedies={"link": fewer_bytes},
        notes=_notes(settings, _FLOAT_BYTES * sum(map(num_parameters, both))),
    )
    if settings.placing.clients is None:
        return usual
    return placed_planning(replace(usual, notes={}), settings, ModelVector(*both), class_counts)


def _notes(settings: FederatedSettings, both: int) -> dict[str, tuple[str, float]]:
    """Tables II and III (Hardy et al. 2019), with the bytes of both models' weights."""
    num_workers = num_participants(settings.participation, settings.num_workers)
    everyone, each = "Table III: {}, N(|θ| + |w|)", "Table III: {} a worker, |θ| + |w|"
    return {
        "server sends": (everyone, both * num_workers),
        "server receives": (everyone, both * num_workers),
        "host receives": (each, both),
        "host sends": (each, both),
        "a further worker in it": ("Table II: O(|θ| + |w|)", 0),
    }
