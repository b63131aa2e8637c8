"""The settings of checkpoints."""

from mdgan.settings.declare import Settings, own_setting, switch, whole


class CheckpointSettings(Settings, group="faults"):
    """How often the state of a run is saved, and where."""

    checkpoint_interval: int = own_setting(
        500,
        "Iterations between two checkpoints; there is one at the end, too. 0 for none at all.",
        whole(0, otherwise="must be 0 or more"),
        metavar="N",
    )
    checkpoint_keep: int = own_setting(
        2, "Number of checkpoints to keep.", whole(1), metavar="K", has_flag=False
    )
    checkpoint_to_server: bool = own_setting(
        False,
        "Workers send their state to rank 0 instead of writing it themselves.",
        switch(),
        has_flag=False,
    )
