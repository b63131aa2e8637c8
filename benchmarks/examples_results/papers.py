"""Reads `examples/papers.toml`: a row for each figure and table, and what shows it."""

import hashlib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any

EXAMPLES = Path("examples")
PAPERS = EXAMPLES / "papers.toml"
_WAYS = {
    "examples": {"flags", "claims"},
    "run": {"keep"},
    "drawn": set(),
    "kept": {"command", "commit"},
    "not": set(),
}
"""What may show a row, and what else stands in the row then."""


@dataclass(frozen=True)
class Group:
    """Configurations that are trained together."""

    patterns: tuple[str, ...]
    flags: tuple[str, ...]

    @property
    def name(self) -> str:
        """A name for its folder, and for `--only`."""
        text = " ".join([*self.patterns, *self.flags])
        return re.sub(r"[^a-z0-9]+", "-", text.replace(".json", "")).strip("-")

    @property
    def files(self) -> list[Path]:
        """Its files of settings."""
        found: list[Path] = []
        for pattern in self.patterns:
            path = EXAMPLES / pattern
            found += sorted(path.glob("*.json") if path.is_dir() else EXAMPLES.glob(pattern))
        return found

    @property
    def command(self) -> str:
        """What a user types."""
        paths = [
            str(EXAMPLES / each) + ("" if "." in each else "/*.json") for each in self.patterns
        ]
        return " ".join(["mdgan compare", *paths, *self.flags])

    @property
    def digest(self) -> str:
        """Eight digits that are others if any setting is; those of the paper's scale do not count.

        The settings are those of the files. What a file leaves out is the code's, whose commit is
        recorded with the numbers.
        """
        settings = {}
        for path in self.files:
            own = json.loads(path.read_text(encoding="utf-8"))
            own.pop("paper_scale", None)
            settings[path.stem] = own
        text = json.dumps([settings, self.flags], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]


@dataclass(frozen=True)
class Claim:
    """A sentence, and what must hold of a number of the configurations if it is true."""

    says: str
    number: str
    chain: tuple[tuple[str, ...], ...]  # names of configurations, step by step
    signs: tuple[str, ...]  # between two steps: `<`, or `~` for the same

    @classmethod
    def read(cls, says: str, number: str, text: str) -> "Claim":
        """Reads `a < b, c ~ d`."""
        parts = re.split(r"\s*([<~])\s*", text)
        chain = tuple(tuple(name.strip() for name in part.split(",")) for part in parts[::2])
        return cls(says, number, chain, tuple(parts[1::2]))

    @property
    def names(self) -> list[str]:
        """The configurations, each once, in the order of the claim."""
        return list(dict.fromkeys(name for step in self.chain for name in step))

    def pairs(self) -> Iterator[tuple[str, str, str]]:
        """Every two configurations that are compared, and the sign between them."""
        for (left, right), sign in zip(pairwise(self.chain), self.signs, strict=True):
            for first, second in product(left, right):
                yield first, sign, second


@dataclass(frozen=True)
class Row:
    """A figure or a table, or several that one thing shows."""

    paper: str
    place: str
    says: str
    way: str  # one of `_WAYS`
    given: Mapping[str, Any]

    @property
    def group(self) -> Group | None:
        """What is trained for the row, if anything is."""
        if self.way != "examples":
            return None
        return Group(tuple(self.given["examples"]), tuple(self.given.get("flags", ())))

    @property
    def claims(self) -> list[Claim]:
        """What the paper says of the numbers."""
        return [Claim.read(*each) for each in self.given.get("claims", ())]

    @property
    def commands(self) -> Sequence[str]:
        """What prints numbers for the row."""
        return list(self.given["run"]) if self.way == "run" else []


def read_rows(path: Path = PAPERS) -> tuple[dict[str, str], list[Row]]:
    """The papers' titles by their short names, and all rows.

    Raises:
        ValueError: a row has a key that it cannot have, or nothing that shows it.
    """
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    papers: dict[str, str] = content.pop("papers")
    rows = []
    for paper, found in content.items():
        for given in found:
            (way,) = given.keys() & _WAYS.keys() or ("",)
            allowed = {"place", "says", way} | _WAYS.get(way, set())
            if paper not in papers or not way or given.keys() - allowed:
                raise ValueError(f"{path}: {paper}, {given.get('place')}: {sorted(given)}")
            rows.append(Row(paper, given["place"], given["says"], way, given))
    return papers, rows
