"""Rows of a table as a data set."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import numpy as np
from torch import Tensor

from mdgan.data.dataset_file import PreparedData
from mdgan.data.partitioner import InMemoryPartitioner
from mdgan.data.settings import KEPT_SCHEMA, DataSettings
from mdgan.errors import BadInput
from mdgan.samples.table.kind import TableKind
from mdgan.samples.table.reading import read_rows
from mdgan.samples.table.rows import Rows
from mdgan.samples.table.schema import read_schema, schema_text
from mdgan.settings.machine import path_of


class TablePartitioner(InMemoryPartitioner):
    """Rows in memory; they are samples once all sites have learnt how values spread.

    Args:
        seen: how often each row was met before, at other sites on this machine; it goes on.
    """

    def __init__(self, kind: TableKind, rows: Rows, seen: dict[bytes, int] | None = None) -> None:
        self.kind = kind
        self.rows = rows
        self._seen = {} if seen is None else seen
        self.labels = kind.labels_of(rows)
        self.class_names = kind.class_names
        self._encoded: tuple[object, Tensor] | None = None

    def read(self, data_dir: Path) -> tuple[Tensor, Tensor]:
        """Its rows have been read already."""
        raise TypeError(f"rows are not read again from {data_dir}")

    def images(self, indices: Tensor) -> Tensor:
        """See `Partitioner`; all rows are encoded when the first are asked for."""
        if self._encoded is None or self._encoded[0] is not self.kind.encoding:
            self._encoded = self.kind.encoding, self.kind.encode(self.rows)
        return self._encoded[1][indices]

    def counts(self, indices: Tensor) -> Tensor:
        """See `Partitioner`."""
        return self.kind.counts(self.rows.of(indices.numpy()))

    def contents(self, indices: Tensor) -> list[bytes]:
        """The values of each; equal rows are numbered, since they are of different people."""
        numbers = self._numbers
        rows = self.rows.values
        return [rows[i].tobytes() + int(numbers[i]).to_bytes(8, "little") for i in indices.tolist()]

    @cached_property
    def _numbers(self) -> "np.typing.NDArray[np.int64]":
        """How many equal rows come before each, at all sites on this machine."""
        numbers = np.zeros(len(self.rows), dtype=np.int64)
        for place, row in enumerate(self.rows.values):
            content = row.tobytes()
            numbers[place] = self._seen.get(content, 0)
            self._seen[content] = int(numbers[place]) + 1
        return numbers


def prepare_table(settings: DataSettings) -> PreparedData:
    """What `--dataset table` trains on: the rows of `--data-dir`, by `--schema` and `--target`."""
    if settings.schema is None:
        raise BadInput(
            "--dataset table: needs --schema FILE, which says what columns there are; "
            "mdgan schema draft FILE makes one"
        )
    kind = TableKind(read_schema(path_of(settings.schema)), settings.target)
    return table_data(kind, _Tables(kind).open)


def table_data(
    kind: TableKind,
    rows_of: Callable[[Path], TablePartitioner],
    held_out: Callable[[Path], TablePartitioner] | None = None,
    *,
    reads_files: bool = True,
) -> PreparedData:
    """What a dataset file of rows says."""
    return PreparedData(
        kind.shape,
        kind,
        rows_of,
        held_out,
        kind.num_classes,
        agreed={"schema_sha256": kind.schema.sha256},
        reads_files=reads_files,
        keeps={KEPT_SCHEMA: schema_text(kind.schema).encode()} if reads_files else {},
    )


class _Tables:
    """The tables of the sites on this machine, each read once."""

    def __init__(self, kind: TableKind) -> None:
        self._kind = kind
        self._opened: dict[Path, TablePartitioner] = {}
        self._seen: dict[bytes, int] = {}

    def open(self, path: Path) -> TablePartitioner:
        """The rows of a file, or of all files in a folder."""
        if not path.exists():
            raise BadInput(
                f"--data-dir {path}: no such file; give a CSV or Parquet file, or a folder of "
                "them; {rank} in it stands for the number of the site"
            )
        if (known := self._opened.get(path.resolve())) is None:
            kind = self._kind
            target = None if kind.target is None else kind.schema.columns[kind.target].name
            known = TablePartitioner(kind, read_rows(path, kind.schema, target), self._seen)
            self._opened[path.resolve()] = known
        return known
