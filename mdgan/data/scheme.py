"""A `--partition` value: which scheme, with which numbers."""

import re
from dataclasses import dataclass
from math import inf

PARTITION_FORMS = (
    "iid, sorted, dirichlet:ALPHA, shards:K, classes:K, fegan:MAX_CLASSES,MAX_SAMPLES, none"
)
_FORM = re.compile(
    r"iid|sorted|none|dirichlet:[0-9.eE+-]+|shards:\d{1,9}|classes:\d{1,9}|"
    r"fegan:\d{1,9},\d{1,9}"
)


@dataclass(frozen=True)
class PartitionScheme:
    """How a data set is divided, by `partition.py`; the random division depends on the text."""

    text: str

    def __str__(self) -> str:
        """As the user wrote it."""
        return self.text

    @property
    def name(self) -> str:
        """Of the scheme, such as `dirichlet`."""
        return self.text.partition(":")[0]

    @property
    def numbers(self) -> list[float]:
        """What stands behind the name, such as α."""
        numbers = self.text.partition(":")[2]
        return [float(number) for number in numbers.split(",")] if numbers else []

    @property
    def divides(self) -> bool:
        """Whether one data set is divided; if not, every worker holds all of its own folder."""
        return self.name != "none"


def parse_partition(text: str) -> PartitionScheme:
    """Reads a `--partition` value."""
    scheme = PartitionScheme(text)
    if not _FORM.fullmatch(text):
        raise ValueError(f"not one of {PARTITION_FORMS}")
    try:
        fits = all(0 < number < inf for number in scheme.numbers)
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"the number(s) after {scheme.name}: must be above 0")
    return scheme
