"""The settings of a run's records for people: metrics, sample grids, profiles, trackers."""

import re
from typing import NamedTuple

from mdgan.observe.trackers import TRACKERS, TrackerNames
from mdgan.settings.declare import Settings, own_setting, parsed, whole

_MOST_PROFILED = 100


class Iterations(NamedTuple):
    """A range of iterations, both ends included; the first iteration of a run is 1."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}..{self.last}"

    @classmethod
    def parse(cls, text: str) -> "Iterations":
        """Reads `FROM..TO`; ValueError if it is something else, or too many to profile."""
        match = re.fullmatch(r"([0-9]{1,15})\.\.([0-9]{1,15})", text)
        if match is None:
            raise ValueError("must be FROM..TO, two iterations such as 101..110")
        iterations = cls(int(match[1]), int(match[2]))
        if not 1 <= iterations.first <= iterations.last:
            raise ValueError("FROM must be at least 1 and at most TO")
        if iterations.last - iterations.first >= _MOST_PROFILED:
            raise ValueError(
                f"every operator is recorded; give at most {_MOST_PROFILED} iterations, such as "
                f"{iterations.first}..{iterations.first + 9}"
            )
        return iterations


class RecordSettings(Settings, group="output"):
    """How often the server writes pictures and metrics, and which trackers get them, too."""

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
    )
    profile: Iterations | None = own_setting(
        None,
        "Iterations in which every operator of torch is timed, for the report; they take longer. "
        "Each machine profiles the ranks that it runs.",
        parsed(Iterations.parse),
        metavar="FROM..TO",
        default_text="none",
    )
    log_interval: int = own_setting(50, "Iterations between two lines of metrics.jsonl.", whole(1))

    def trackers(self) -> TrackerNames:
        """All trackers that the user named, each once."""
        return TrackerNames(dict.fromkeys(self.tracker or ()))
