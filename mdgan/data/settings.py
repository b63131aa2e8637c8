"""The settings of the data: which data set, how it is divided, and where it lies."""

import re
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Literal

from mdgan.data.find import find_all
from mdgan.errors import BadInput
from mdgan.settings import declare
from mdgan.settings.machine import path_of
from mdgan.spelling import flag

PARTITION_FORMS = (
    "iid, sorted, dirichlet:ALPHA, shards:K, classes:K, fegan:MAX_CLASSES,MAX_SAMPLES, none"
)
_FORM = re.compile(
    r"iid|sorted|none|dirichlet:[0-9.eE+-]+|shards:\d{1,9}|classes:\d{1,9}|"
    r"fegan:\d{1,9},\d{1,9}"
)


@dataclass(frozen=True)
class PartitionScheme:
    """A scheme of `partition.py` with its numbers; the random division depends on the text."""

    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def name(self) -> str:
        """The name of the scheme, such as `dirichlet`."""
        return self.text.partition(":")[0]

    @property
    def numbers(self) -> list[float]:
        """The numbers after the name, such as α."""
        numbers = self.text.partition(":")[2]
        return [float(number) for number in numbers.split(",")] if numbers else []

    @property
    def divides(self) -> bool:
        """Whether workers get parts of one data set; if not, each holds all of its own folder."""
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


KEPT_SCHEMA = "schema.json"  # the file of a run with the schema of its table


class DataSettings(declare.Settings, group="data"):
    """Which data set, who holds what of it, and where it lies."""

    dataset: str = declare.setting(
        "digits",
        "Dataset file to train on, by name.",
        declare.text(known=lambda given: find_all(given.get("datasets_dir"))),
        metavar="NAME",
        is_usual=True,
    )
    partition: PartitionScheme = declare.setting(
        "iid",
        f"Who holds what: {PARTITION_FORMS} (every worker holds all of its --data-dir).",
        declare.parsed(parse_partition),
        metavar="SCHEME",
        is_usual=True,
    )
    datasets_dir: str | None = declare.own_setting(
        None, "Folder with your own dataset files, looked at first.", declare.text(), metavar="DIR"
    )
    data_dir: str | None = declare.own_setting(
        None,
        "Folder, or file, that holds the data; {rank} in it stands for the worker's rank.",
        declare.text(),
        metavar="DIR",
        default_text="data/NAME",
        is_usual=True,
    )
    schema: str | None = declare.own_setting(
        None,
        "Which columns tables have; see mdgan schema.",
        declare.text(),
        metavar="FILE",
        is_usual=True,
        group="tables",
    )
    map: str | None = declare.own_setting(
        None,
        "How the files here say what the schema does; mdgan schema map drafts "
        "it, and it is sent nowhere. Held-out rows are read without. {rank} is as in --data-dir.",
        declare.text(),
        metavar="FILE",
        is_usual=True,
        group="tables",
    )
    target: str | None = declare.setting(
        None,
        "The column that rows are asked for by, and that a classifier is to predict.",
        declare.text(),
        metavar="COLUMN",
        other_names=("--label-column", "--outcome"),
        is_usual=True,
        group="tables",
    )
    rows_per_person: int | None = declare.setting(
        None,
        "For --dataset table, where the schema names a person: how many rows of each person a site "
        "trains on at most; it leaves the others out.",
        declare.whole(1),
        metavar="K",
        default_text="all",
        is_usual=False,
        group="tables",
    )
    image_size: int | None = declare.key_setting(
        None,
        "For --dataset folder: the side of the pictures that are trained on, 8, 16, 32, 64, ….",
        declare.whole(8, 1024, below="smaller pictures cannot be halved"),
        metavar="PIXELS",
        default_text="that of the files up to 64, if all ranks are on one machine; else 64",
    )
    picture_bits: int | None = declare.key_setting(
        None,
        "Of picture files with 16 bits a value, how many of these bits are used: 12 of most "
        "scanners.",
        declare.whole(8, 16),
        metavar="BITS",
        default_text="8, 10, 12 or 14 if all stay below that and all ranks are on one machine, or "
        "16",
    )
    strict_data: bool = declare.own_key_setting(
        False,
        "Refuse to start if a sample cannot be read, instead of leaving it out.",
        declare.switch(),
    )
    file_memory: int | None = declare.own_key_setting(
        None,
        "GiB of memory that what a single file holds may take.",
        declare.whole(1, 1 << 20),
        metavar="GIB",
        default_text="1, or 800 times the file's size, but half of the free memory at most",
    )
    data_threads: int | Literal["auto"] = declare.own_key_setting(
        "auto",
        "Threads of each process that read pictures ahead, where the data are picture files; "
        "results do not depend on them.",
        declare.whole(1, 1024, below="at least one thread must read", word="auto"),
        metavar="N|auto",
        group="speed",
    )

    def data_folder(self, dataset_name: str, rank: int) -> Path:
        """The folder that holds one worker's data."""
        folder = self.data_dir or f"data/{dataset_name}"
        return path_of(folder.replace("{rank}", str(rank)))

    def map_of(self, path: Path) -> Path | None:
        """The map for files at a path of `--data-dir`; None for other paths (held-out rows)."""
        if self.map is None:
            return None
        folder = str(path_of(self.data_dir or f"data/{self.dataset}"))
        if "{rank}" in self.map and "{rank}" not in folder:
            why = f"names a map for each rank, and {flag('data_dir', folder)} one place for all"
            raise BadInput(flag("map", self.map), why, "write {rank} in both, or in none")
        match = re.fullmatch(r"(\d+)".join(map(re.escape, folder.split("{rank}"))), str(path))
        if match is None:
            return None
        return path_of(self.map.replace("{rank}", match[1] if match.groups() else ""))
