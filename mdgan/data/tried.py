"""What is unusual about samples in files, gathered while each of them is tried."""

from collections.abc import Callable, Iterable

import msgspec

from mdgan.samples.pictures.reading import MOST_OF_16_BITS, Seen

_BITS = (8, 10, 12, 14)
"""Of scanners and cameras that write 16 bits a value."""


class Trait(msgspec.Struct, forbid_unknown_fields=True):
    """Some samples that have something in common: how many, and the first, and what it is."""

    count: int
    first: int
    about: str
    most: float
    total: float


class TriedSamples(msgspec.Struct, forbid_unknown_fields=True):
    """Why some samples cannot be read, and what was seen of the others."""

    bad: dict[int, str]
    traits: dict[str, Trait]

    def add(self, index: int, seen: Seen | str | None) -> None:
        """One more sample was tried: what it is, or why it cannot be read."""
        if isinstance(seen, str):
            self.bad[index] = seen
            return
        for trait, (value, about) in (seen or {}).items():
            if value:
                found = self.traits.setdefault(trait, Trait(0, index, about, 0, 0))
                found.count, found.total = found.count + 1, found.total + value
                found.most = max(found.most, float(value))  # of True JSON makes no number

    def said(self, name: Callable[[int], str], *, are_pictures: bool) -> dict[str, str]:
        """What the user must know of these samples by trait, given the name of each."""
        said = {}
        for trait, found in self.traits.items():
            if trait == MOST_OF_16_BITS:
                continue
            first, about = name(found.first), found.about and f" ({found.about})"
            if are_pictures:
                said[trait] = f"{found.count:,} {trait}, such as {first}{about}"
            else:
                where = f"{found.total:,.0f} in {found.count:,} volume(s)"
                said[trait] = f"{trait}: {where}, first {first}"
        return said


def used_bits(folders: Iterable[TriedSamples]) -> tuple[int | None, str]:
    """How many bits the pictures of 16 bits in some folders use, and a sentence about it.

    Returns:
        None if one of them uses all, or there is none.
    """
    deep = [tried.traits[MOST_OF_16_BITS] for tried in folders if MOST_OF_16_BITS in tried.traits]
    most, count = max((each.most for each in deep), default=0), sum(each.count for each in deep)
    bits = next((bits for bits in _BITS if 0 < most < 1 << bits), None)
    return bits, "" if bits is None else f"all {count:,} 16-bit picture(s) stay below {1 << bits:,}"
