"""The settings of what a run writes down for people."""

from dataclasses import dataclass

from mdgan.observe.trackers import TRACKERS, TrackerNames
from mdgan.settings.declare import Settings, own_setting, parsed, switch, whole


@dataclass(frozen=True)
class RecordSettings(Settings, group="output"):
    """How often pictures and metrics are written, and where else than into the run's folder."""

    tensorboard: bool = own_setting(
        False, "Also log scalars and grids for TensorBoard, into the run's folder.", switch()
    )
    tracker: TrackerNames | None = own_setting(
        None,
        f"Also log scalars and grids to {', '.join(TRACKERS)}; may be given several times. W&B "
        "stays offline unless WANDB_MODE says otherwise.",
        parsed(TrackerNames.parse, several=True),
        metavar="NAME",
    )
    sample_interval: int = own_setting(
        500,
        "Iterations between two sample grids; 0 for none but the last.",
        whole(0, otherwise="must be 0 or more"),
        metavar="N",
    )
    log_interval: int = own_setting(
        50, "Iterations between two lines of metrics.jsonl.", whole(1), metavar="N"
    )

    def trackers(self) -> TrackerNames:
        """All trackers that were asked for, each once."""
        names = [*["tensorboard"] * self.tensorboard, *(self.tracker or ())]
        return TrackerNames(dict.fromkeys(names))
