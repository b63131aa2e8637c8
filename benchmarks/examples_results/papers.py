"""Reads `examples/papers.toml`: a row for each figure and table, and the runs that show it."""

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
"""The ways to show a row, and the other keys of a row that is shown so."""


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
        files: list[Path] = []
        for pattern in self.patterns:
            path = EXAMPLES / pattern
            files += sorted(path.glob("*.json") if path.is_dir() else EXAMPLES.glob(pattern))
        return files

    @property
    def command(self) -> str:
        """The command that trains the group, as a user types it."""
        paths = [
            str(EXAMPLES / each) + ("" if "." in each else "/*.json") for each in self.patterns
        ]
        return " ".join(["mdgan compare", *paths, *self.flags])

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits that change with any setting but those of the paper's scale.

        Only settings that stand in the files count. The code decides the others, and its commit is
        recorded with the numbers.
        """
        settings = {}
        for path in self.files:
            of_file = json.loads(path.read_text(encoding="utf-8"))
            of_file.pop("paper_scale", None)
            settings[path.stem] = of_file
        text = json.dumps([settings, self.flags], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper, and how configurations must compare in one number if it is true."""

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
    """A figure or a table, or several that the same runs show."""

    paper: str
    place: str
    says: str
    way: str  # one of `_WAYS`
    keys: Mapping[str, Any]

    @property
    def group(self) -> Group | None:
        """The configurations that are trained for the row, if any."""
        if self.way != "examples":
            return None
        return Group(tuple(self.keys["examples"]), tuple(self.keys.get("flags", ())))

    @property
    def claims(self) -> list[Claim]:
        """The paper's sentences about the numbers."""
        return [Claim.read(*each) for each in self.keys.get("claims", ())]

    @property
    def commands(self) -> Sequence[str]:
        """The commands that print numbers for the row."""
        return list(self.keys["run"]) if self.way == "run" else []


def read_rows(path: Path = PAPERS) -> tuple[dict[str, str], list[Row]]:
    """The papers' titles by their short names, and all rows.

    Raises:
        ValueError: a row has an unknown key, or no key that says how it is shown.
    """
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    papers: dict[str, str] = content.pop("papers")
    rows = []
    for paper, entries in content.items():
        for entry in entries:
            (way,) = entry.keys() & _WAYS.keys() or ("",)
            allowed = {"place", "says", way} | _WAYS.get(way, set())
            if paper not in papers or not way or entry.keys() - allowed:
                raise ValueError(f"{path}: {paper}, {entry.get('place')}: {sorted(entry)}")
            rows.append(Row(paper, entry["place"], entry["says"], way, entry))
    return papers, rows
