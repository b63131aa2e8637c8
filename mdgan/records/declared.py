"""What a family of algorithms declares of what it records; plain data that needs no torch."""

from math import inf
from typing import NamedTuple


class WorkerNumbers(NamedTuple):
    """Numbers of every worker that logged iterations hold, and how people see them."""

    key: str  # in a row of `metrics.jsonl`, of worker → a number, or → a mean and a greatest number
    title: str
    label: str
    caption: str
    column: str = ""  # its heading in `mdgan watch`; empty if it has none
    alarm: float = inf  # from here on a number is alarming; it is drawn as a dashed line
    alarming: str = ""
