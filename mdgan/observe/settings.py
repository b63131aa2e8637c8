"""The settings of what a run writes down for people."""

from dataclasses import dataclass

from mdgan.settings.declare import Settings, own_setting, switch, whole


@dataclass(frozen=True)
class RecordSettings(Settings):
    """How often pictures and metrics are written, and where else than into the run's folder."""

    tensorboard: bool = own_setting(
        False, "Also log scalars and grids for TensorBoard, into the run's folder.", switch()
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
