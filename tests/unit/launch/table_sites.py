"""A site with a small table, as a host sees it before it trains."""

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import torch

from mdgan.data.dataset_file import DatasetFile, load
from mdgan.data.settings import DataSettings
from mdgan.data.shard import Shard
from mdgan.engine.host.held_samples import HeldSamples
from mdgan.families import registry
from mdgan.gan.randomness import generator_for
from mdgan.launch.budget_checks import check_budgets
from mdgan.privacy.contents import Contents
from mdgan.samples.table.schema import (
    AnyColumn,
    CategoryColumn,
    NumberColumn,
    Schema,
    WholeColumn,
    YesNoColumn,
    schema_text,
)
from tests.accounts import spend_all

COLUMNS: tuple[AnyColumn, ...] = (
    WholeColumn(name="age", low=0, high=100),
    NumberColumn(name="value", low=0, high=50, decimals=2),
    CategoryColumn(name="sex", categories=("F", "M")),
    YesNoColumn(name="ill"),
)
STUDY = Schema(columns=COLUMNS)
PATIENT = WholeColumn(name="patient", low=0, high=1000)
AS_COLUMN = Schema(columns=(*COLUMNS, PATIENT))
BY_PATIENT = msgspec.structs.replace(STUDY, person="patient")


def write_site(folder: Path, persons: int = 40, visits: int = 1, *, names: bool = False) -> Path:
    """Mostly of 40 persons: noise for batches of 10 of them is looked for once."""
    draw, lines = random.Random(0), ["age,value,sex,ill" + ",patient" * names]
    for person in range(persons):
        for _ in range(visits):
            value, sex, ill = (
                f"{draw.gauss(10, 3):.2f}",
                "FM"[person % 2],
                "yes" if person % 3 else "no",
            )
            lines.append(f"{20 + person},{value},{sex},{ill}" + f",{person}" * names)
    path = folder / ("named.csv" if names else "site.csv")
    path.write_text("\n".join(lines) + "\n")
    return path


def dataset_of(
    folder: Path, schema: Schema, target: str | None = None, site_map: Any = None
) -> DatasetFile:
    path = folder / "study.json"
    path.write_text(schema_text(schema))
    values: dict[str, Any] = {"schema": str(path), "target": target}
    if site_map is not None:
        (folder / "map.json").write_text(json.dumps({"columns": site_map}))
        values |= {"map": str(folder / "map.json"), "data_dir": str(folder / "raw.csv")}
    return load("table", None).prepared(DataSettings.read({k: v for k, v in values.items() if v}))


class Site:
    """What a host of one worker does with a table before it trains."""

    def __init__(self, folder: Path, data: Path, schema: Schema, **changes: Any) -> None:
        target, site_map = changes.pop("target", None), changes.pop("site_map", None)
        privacy = {"dp_epsilon": 3.0, "dp_delta": 1e-5, "dp_ledger": str(folder / "ledger")}
        privacy |= {"iterations": 20, "batch_size": 10, "world_size": 2}
        self.settings = registry.read_settings([{"algorithm": "mdgan", **privacy, **changes}])
        self.dataset = dataset_of(folder, schema, target, site_map)
        source = self.dataset.open(data)
        shards = {1: Shard(source, torch.arange(len(source)), generator_for(0))}
        self.contents = {1: Contents.of(shards[1])}
        self.samples = HeldSamples(self.settings, shards, self.contents, self.dataset)

    def warnings(self) -> list[str]:
        return check_budgets(self.samples, serves=False)

    def counts(self) -> torch.Tensor:
        return self.samples.count_samples()[1]

    def spend_all(self) -> float:
        """ε once all steps of training are taken."""
        (budget,) = self.samples.open_budgets().values()
        return spend_all(budget)
