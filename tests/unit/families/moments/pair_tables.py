"""A table with all features of columns; plain loops over its file count its pairs."""

import json
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mdgan.families.moments.pairs.message import PairCounts
from mdgan.gan.labels import Samples
from mdgan.samples.table.kind import TableKind
from mdgan.samples.table.reading import read_rows
from mdgan.samples.table.schema import read_schema

TARGET = "outcome"
WARDS, OUTCOMES = ["A", "B", "C", "D"], ["home", "moved", "died", "unknown"]
SCHEMA: dict[str, Any] = {
    "columns": [
        {"kind": "whole", "name": "age", "low": 0, "high": 120, "may_be_missing": True},
        {
            **{"kind": "number", "name": "dose", "low": 0, "high": 10, "decimals": 1},
            **{"may_be_missing": True, "common": [0.0, 2.5]},
        },
        {"kind": "category", "name": "ward", "categories": WARDS, "may_be_missing": True},
        {"kind": "category", "name": TARGET, "categories": OUTCOMES},
        {"kind": "yes_no", "name": "smoker"},
    ],
    "rows_are_independent": True,
}


def row(i: int) -> dict[str, str]:
    """Row i; what is rare comes in every 29th row or so."""
    dose = f"{i % 10}.{1 + i % 9}" if i % 7 else ("0", "2.5")[i // 7 % 2]
    return {
        "age": "" if i % 29 == 0 else str(20 + i * i % 61),
        "dose": dose if i % 23 else "",
        "ward": "" if i % 31 == 0 else WARDS[2 + i // 29 % 2 if i % 29 == 3 else i % 3 // 2],
        TARGET: OUTCOMES[2 + i // 37 % 2 if i % 37 == 1 else i % 5 // 3],
        "smoker": ("no", "yes")[i * i % 11 // 6],
    }


def write_sites(folder: Path, sizes: Sequence[int]) -> list[dict[str, str]]:
    """Writes the schema and a file for each site; all rows together."""
    (folder / "study.json").write_text(json.dumps(SCHEMA))
    numbers = iter(range(1, sum(sizes) + 1))
    every = []
    for site, size in enumerate(sizes, start=1):
        rows = [row(next(numbers)) for _ in range(size)]
        lines = [list(rows[0]), *(each.values() for each in rows)]
        (folder / f"site-{site}.csv").write_text("".join(f"{','.join(each)}\n" for each in lines))
        every += rows
    return every


def learnt(folder: Path, size: int = 211) -> tuple[PairCounts, Samples, list[dict[str, str]]]:
    """What one site with all rows tells, its samples, and the rows as texts."""
    texts = write_sites(folder, [size])
    schema = read_schema(folder / "study.json")
    rows = read_rows(folder / "site-1.csv", schema, TARGET)
    kind = TableKind(schema, TARGET)
    kind.learn(kind.counts(rows))
    return PairCounts(kind), Samples(kind.encode(rows), kind.labels_of(rows)), texts


def plain_bins(
    rows: Sequence[dict[str, str]], column: dict[str, Any], fineness: int, least: float
) -> list[frozenset[str]]:
    """The texts that each bin of a column stands for: of numbers by ranges, then of options."""
    counts = Counter(row[column["name"]] for row in rows)
    options = column.get("categories", ["no", "yes"] if column["kind"] == "yes_no" else [])
    ranges = list[frozenset[str]]()
    if column["kind"] in ("whole", "number"):
        options = [f"{value:g}" for value in column.get("common", [])]
        values = sorted(set(counts) - {*options, ""}, key=float)
        before = [sum(counts[v] for v in values[:k]) for k in range(len(values) + 1)]
        begins = {0, len(values)}
        for part in range(1, fineness):
            wanted = Fraction(part * before[-1], fineness)  # no two are equally near in this table
            begins.add(min(range(len(before)), key=lambda k: abs(before[k] - wanted)))
        ranges = [frozenset(values[a:b]) for a, b in pairwise(sorted(begins))]
    options = options + [""] * column.get("may_be_missing", False)
    return ranges + plain_groups(options, counts, least)


def plain_groups(
    options: Sequence[str], counts: Counter[str], least: float
) -> list[frozenset[str]]:
    """Options of which those with few rows count as one, which stands where the first one did."""
    few = frozenset(option for option in options if counts[option] < least)
    choices = [few if option in few else frozenset([option]) for option in options]
    return list(dict.fromkeys(choices))


def plain_pairs(rows: Sequence[dict[str, str]], fineness: int, least: float) -> Tensor:
    """How many rows of each group of classes have both values of each pair that is told."""
    columns = [column for column in SCHEMA["columns"] if column["name"] != TARGET]
    bins = [
        (column["name"], texts)
        for column in columns
        for texts in plain_bins(rows, column, fineness, least)
    ]
    classes = plain_groups(OUTCOMES, Counter(row[TARGET] for row in rows), least)
    sums = list[list[float]]()
    for of_class in classes:
        of_rows, counts = [row for row in rows if row[TARGET] in of_class], list[float]()
        for i, (one, texts) in enumerate(bins):
            for other, others in bins[i:]:
                if one != other or texts == others:
                    counts.append(
                        sum(row[one] in texts and row[other] in others for row in of_rows)
                    )
        sums.append(counts)
    return torch.tensor(sums, dtype=torch.float64)
