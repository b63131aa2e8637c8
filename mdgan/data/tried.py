"""Collects what is unusual about samples in files, while mdgan tries to read each of them."""

from collections.abc import Callable, Iterable

import msgspec

from mdgan.samples.pictures.reading import MOST_OF_16_BITS, Seen

_BITS = (8, 10, 12, 14)
"""Bits that scanners and cameras use of the 16 bits that they write for a value."""


class Trait(msgspec.Struct, forbid_unknown_fields=True):
    """A trait of several samples: how many have it, the first of them, and its values."""

    count: int
    first: int
    about: str
    most: float
    total: float


class TriedSamples(msgspec.Struct, forbid_unknown_fields=True):
    """Why some samples cannot be read, and the traits of the others."""

    bad: dict[int, str]
    traits: dict[str, Trait]

    def add(self, index: int, seen: Seen | str | None) -> None:
        """Adds a tried sample: its traits, or why it cannot be read."""
        if isinstance(seen, str):
            self.bad[index] = seen
            return
        for trait, (value, about) in (seen or {}).items():
            if value:
                entry = self.traits.setdefault(trait, Trait(0, index, about, 0, 0))
                entry.count, entry.total = entry.count + 1, entry.total + value
                entry.most = max(entry.most, float(value))  # float, as True is no number in JSON

    def said(self, name: Callable[[int], str], *, are_pictures: bool) -> dict[str, str]:
        """Remarks on these samples for the user, by trait; `name` gives the name of a sample."""
        remarks = {}
        for trait, entry in self.traits.items():
            if trait == MOST_OF_16_BITS:
                continue
            first, about = name(entry.first), entry.about and f" ({entry.about})"
            if are_pictures:
                remarks[trait] = f"{entry.count:,} {trait}, such as {first}{about}"
            else:
                where = f"{entry.total:,.0f} in {entry.count:,} volume(s)"
                remarks[trait] = f"{trait}: {where}, first {first}"
        return remarks


def used_bits(folders: Iterable[TriedSamples]) -> tuple[int | None, str]:
    """How many bits the pictures of 16 bits in some folders use, and a sentence about it.

    Returns:
        None for the bits if a picture uses all of them, or if no picture has 16 bits.
    """
    deep = [tried.traits[MOST_OF_16_BITS] for tried in folders if MOST_OF_16_BITS in tried.traits]
    most, count = max((trait.most for trait in deep), default=0), sum(trait.count for trait in deep)
    bits = next((bits for bits in _BITS if 0 < most < 1 << bits), None)
    return bits, "" if bits is None else f"all {count:,} 16-bit picture(s) stay below {1 << bits:,}"
