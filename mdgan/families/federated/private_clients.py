"""What federated algorithms cannot have beside differential privacy; quickly, without torch."""

from math import inf
from typing import TYPE_CHECKING

from mdgan.errors import BadInput

if TYPE_CHECKING:
    from mdgan.families.federated.settings import FederatedSettings

_TOO_LARGE_TO_MASK = 512.0
"""A host with larger values takes no part in a sum, nor do its other clients then."""


def check_private_clients(settings: "FederatedSettings") -> None:
    """Refuses what needs more of clients than they tell, and clients without a home.

    Raises:
        BadInput: there is such a setting.
    """
    asked = settings.privacy.poisson_flag
    if settings.privacy.draws_poisson and settings.placing.clients is not None:
        raise BadInput(
            f"--clients {settings.placing.clients}: with {asked} clients have a home, where a "
            "machine "
            "remembers what they have spent; leave --clients out, or hide each of them as a whole "
            "(--dp-unit client)"
        )
    if settings.privacy.draws_poisson and settings.rounds.training_load.name == "measured":
        raise BadInput(
            f"--training-load measured: with {asked} a client takes no step to try how long it "
            "takes; leave one of the two out"
        )
    by_classes = {
        f"--sampling {settings.rounds.sampling}": settings.rounds.sampling == "balanced",
        f"--weighting {settings.rounds.weighting}": settings.rounds.weighting == "kl",
        f"--clusters {settings.rounds.clusters}": bool(settings.rounds.clusters.number),
    }
    for given in (given for given, needs_classes in by_classes.items() if needs_classes):
        if not settings.privacy.tells("classes"):
            raise BadInput(
                f"{given}: goes by the classes of workers, which they do not tell with "
                f"{asked}; add --dp-tell classes, or give --sampling random --weighting uniform"
            )


def check_poisson_rounds(settings: "FederatedSettings") -> None:
    """Refuses what a sum of updates cannot have, and what goes round the noise of the server.

    Raises:
        BadInput: there is such a setting.
    """
    hides = settings.privacy.dp_unit == "client"
    if hides and not settings.privacy.has_dp:
        raise BadInput("--dp-unit client: is for --dp-epsilon or --dp-noise; give one, too")
    asked = "--dp-unit client" if hides else "--sampling poisson"
    rounds = {
        f"--weighting {settings.rounds.weighting}": (
            settings.rounds.weighting != "uniform",
            "all updates weigh the same, for other weights follow clients' data; give --weighting "
            "uniform",
        ),
        f"--aggregation {settings.aggregation}": (
            not settings.adds_up,
            "updates are added up; leave it out",
        ),
        f"--wire-models {settings.wire.wire_models}": (
            str(settings.wire.wire_models) != "fp32",
            "updates travel as they were cut; leave it out",
        ),
        f"--participation {settings.participation:g}": (
            settings.secure.secure_aggregation and settings.participation < 1,
            "--secure-aggregation leaves out sums of fewer than three hosts, which tells who was "
            "drawn; give --participation 1, or leave --secure-aggregation out",
        ),
    }
    private = {
        f"--sampling {settings.rounds.sampling}": (
            settings.rounds.sampling != "poisson",
            "each client takes part by itself, with the same probability; give --sampling poisson",
        ),
        f"--dp-clip {settings.privacy.dp_clip}": (
            settings.secure.secure_aggregation
            and _TOO_LARGE_TO_MASK <= settings.privacy.clip < inf,
            "--secure-aggregation masks values below 512 alone; give less",
        ),
        "--checkpoint-to-server": (
            settings.checkpoints.checkpoint_to_server,
            "what clients keep stays with them; leave it out",
        ),
    }
    if settings.rounds.sampling == "poisson" or hides:
        for given, (is_so, why) in {**(private if hides else {}), **rounds}.items():
            if is_so:
                raise BadInput(f"{given}: with {asked} {why}")
