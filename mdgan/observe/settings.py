"""The settings of what a run writes down for people."""

import re
from typing import NamedTuple

from mdgan.observe.trackers import TRACKERS, TrackerNames
from mdgan.settings.declare import Settings, own_setting, parsed, whole

_MOST_PROFILED = 100


class Iterations(NamedTuple):
    """Some iterations in a row, the first and the last; the first of a run is 1."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}..{self.last}"

    @classmethod
    def parse(cls, text: str) -> "Iterations":
        """Reads `FROM..TO`, or raises ValueError: it is something else, or too much to profile."""
        match = re.fullmatch(r"([0-9]{1,15})\.\.([0-9]{1,15})", text)
        if match is None:
            raise ValueError("must be FROM..TO, two iterations such as 101..110")
        found = cls(int(match[1]), int(match[2]))
        if not 1 <= found.first <= found.last:
            raise ValueError("FROM must be at least 1 and at most TO")
        if found.last - found.first >= _MOST_PROFILED:
            raise ValueError(
                f"every operator is recorded; give at most {_MOST_PROFILED} iterations, such as "
                f"{found.first}..{found.first + 9}"
            )
        return found


class RecordSettings(Settings, group="output"):
    """How often pictures and metrics are written, and where else than into the run's folder."""

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
        """All trackers that were asked for, each once."""
        return TrackerNames(dict.fromkeys(self.tracker or ()))
