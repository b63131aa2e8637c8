"""Workers in two groups (ParaGAN, section 5.1): some train the generator, the others D."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

_RANGE = re.compile(r"([0-9]{1,6})\.\.([0-9]{1,6})")


class Groups(NamedTuple):
    """Some workers by what they train, in increasing order."""

    generator: list[int]
    discriminator: list[int]


@dataclass(frozen=True)
class GeneratorRanks:
    """The workers that train the generator alone; all others train the discriminator alone."""

    first: int
    last: int

    def __str__(self) -> str:
        """As the command line has it."""
        return f"{self.first}..{self.last}"

    def __contains__(self, worker: int) -> bool:
        """Whether a worker trains the generator."""
        return self.first <= worker <= self.last

    def groups(self, workers: Iterable[int]) -> Groups:
        """Which of some workers train what."""
        ordered = sorted(workers)
        return Groups([n for n in ordered if n in self], [n for n in ordered if n not in self])


def parse_generator_ranks(text: str) -> GeneratorRanks:
    """Reads `--generator-ranks`, or raises `ValueError`."""
    match = _RANGE.fullmatch(text)
    if match is None:
        raise ValueError("must be a range of ranks such as 1..2")
    first, last = int(match[1]), int(match[2])
    if last < first:
        raise ValueError(f"runs backwards; write {last}..{first}")
    if first == 0:
        raise ValueError("rank 0 is the server; begin with 1")
    return GeneratorRanks(first, last)
