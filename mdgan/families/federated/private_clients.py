"""What federated algorithms cannot have beside differential privacy; quickly, without torch."""

from typing import TYPE_CHECKING

from mdgan.errors import BadInput

if TYPE_CHECKING:
    from mdgan.families.federated.settings import FederatedSettings


def check_private_clients(settings: "FederatedSettings") -> None:
    """Refuses what needs more of clients than they tell, and clients without a home.

    Raises:
        BadInput: there is such a setting.
    """
    asked = settings.dp_flag or "--batch-sampling poisson"
    if settings.draws_poisson and settings.clients is not None:
        raise BadInput(
            f"--clients {settings.clients}: with {asked} clients have a home, where a machine "
            "remembers what they have spent; leave --clients out"
        )
    if settings.draws_poisson and settings.training_load.name == "measured":
        raise BadInput(
            f"--training-load measured: with {asked} a client takes no step to try how long it "
            "takes; leave one of the two out"
        )
    by_classes = {
        f"--sampling {settings.sampling}": settings.sampling == "balanced",
        f"--weighting {settings.weighting}": settings.weighting == "kl",
        f"--clusters {settings.clusters}": bool(settings.clusters.number),
    }
    for given in (given for given, needs_classes in by_classes.items() if needs_classes):
        if not settings.tells("classes"):
            raise BadInput(
                f"{given}: goes by the classes of workers, which they do not tell with "
                f"{asked}; add --dp-tell classes, or give --sampling random --weighting uniform"
            )
