"""Rows of a table as a data set."""

import hashlib
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from mdgan.data.dataset_file import PreparedData
from mdgan.data.partitioner import InMemoryPartitioner, group_of
from mdgan.data.settings import KEPT_SCHEMA, DataSettings
from mdgan.errors import BadInput, warn_once
from mdgan.gan.labels import Known
from mdgan.samples.table.identity import canonical, contents_of_files, contents_of_rows
from mdgan.samples.table.kind import TableKind
from mdgan.samples.table.reading import read_rows
from mdgan.samples.table.rows import Rows
from mdgan.samples.table.schema import read_schema, schema_text
from mdgan.samples.table.site_map import SiteMap, SiteView, read_map
from mdgan.samples.table.texts import are_default_names
from mdgan.settings.machine import path_of
from mdgan.spelling import flag


class TablePartitioner(InMemoryPartitioner):
    """Rows in memory; they become samples when all sites have learnt how values spread.

    Args:
        seen: how often each row occurred at other sites on this machine; this adds its own rows.
        file: where the rows lie; None if they lie in no file.
        kept: which rows of the file these are, int64 [n]; None for all.
        site_map: translates the file into the schema's words and units; None if it need not.
    """

    def __init__(
        self,
        kind: TableKind,
        rows: Rows,
        seen: dict[bytes, int] | None = None,
        file: Path | None = None,
        kept: "np.typing.NDArray[np.int64] | None" = None,
        site_map: SiteMap | None = None,
    ) -> None:
        self.kind = kind
        self.rows = rows
        self._seen = {} if seen is None else seen
        self._file, self._kept = file, kept
        self._view = SiteView(kind.schema, site_map)
        self.labels = kind.labels_of(rows)
        self.class_names = kind.class_names
        if rows.persons is not None:
            self.groups = torch.tensor([group_of(canonical(name)) for name in rows.persons])
        self._encoded: tuple[object, Tensor] | None = None

    def read(self, data_dir: Path) -> tuple[Tensor, Tensor]:
        """Raises an error, since the rows have been read already."""
        raise TypeError(f"rows are not read again from {data_dir}")

    @override
    def images(self, indices: Tensor) -> Tensor:
        if self._encoded is None or self._encoded[0] is not self.kind.encoding:
            self._encoded = self.kind.encoding, self.kind.encode(self.rows)
        return self._encoded[1][indices]

    def counts(self, indices: Tensor) -> Tensor:
        return self.kind.counts(self.rows.select(indices.numpy()))

    def contents(self, indices: Tensor) -> list[bytes]:
        return [known.content for known in self.known(indices)]

    @override
    def quick_contents(self, indices: Tensor) -> list[bytes]:
        rows = self.rows.select(indices.numpy())
        values = [row.tobytes() for row in rows.values + 0.0]  # + 0.0 turns −0 into 0
        if rows.persons is None:
            return values
        persons = (canonical(name).encode(errors="surrogatepass") for name in rows.persons)
        return [row + person for row, person in zip(values, persons, strict=True)]

    @override
    def known(self, indices: Tensor) -> list[Known]:
        return [self._known[place] for place in indices.tolist()]

    @cached_property
    def _known(self) -> list[Known]:
        """The `Known` of every row.

        A person's row has both the person and the row, as another schema may name no persons. Its
        content leaves out ignored columns, and has mapped columns as the schema says them; `given`
        is all that the file says, which stays when a map or schema changes.
        """
        schema, persons = self.kind.schema, self.rows.persons
        source = b"" if self._file is None else b"file " + bytes(self._file.resolve())
        all_known: list[Known] = []
        raw = self._contents_of_rows(None) if self._file and self._view.changes else None
        for place, (row, alias) in enumerate(self._contents_of_rows(self._view)):
            values = self.rows.values[place].tobytes()
            num_equal_values, num_equal_rows = (self._seen.get(key, 0) for key in (values, row))
            self._seen |= {values: num_equal_values + 1, row: num_equal_rows + 1}
            of_ledgers = {"before": values + num_equal_values.to_bytes(8, "little")}
            of_ledgers |= {"source": source, "given": raw[place][0] if raw else b""}
            if persons is not None:
                content = b"person " + canonical(persons[place]).encode(errors="surrogatepass")
                all_known.append(Known(content, row, alias, **of_ledgers))
                continue
            is_repeated = schema.rows_are_independent and num_equal_rows
            content = row + (b" #%d" % (num_equal_rows + 1) if is_repeated else b"")
            all_known.append(Known(content, **of_ledgers))
        return all_known

    def _contents_of_rows(self, view: SiteView | None) -> list[tuple[bytes, bytes]]:
        """The content of each row in all columns that count, and the same without the person."""
        if self._file is None:
            return contents_of_rows(self.rows)
        texts = contents_of_files(
            self._file,
            self.kind.schema.person or "",
            no_header=are_default_names(self.kind.schema.names),
            view=view,
        )
        places = range(len(self.rows)) if self._kept is None else self._kept.tolist()
        if len(texts) < len(self.rows) or (self._kept is None and len(texts) > len(self.rows)):
            raise BadInput(self._file, "has changed since it was read", "start again")
        return [texts[place] for place in places]


def prepare_table(settings: DataSettings) -> PreparedData:
    """Makes the data set of `--dataset table` from `--data-dir`, `--schema` and `--target`."""
    if settings.schema is None:
        raise BadInput(
            flag("dataset", "table"),
            f"needs {flag('schema', 'FILE')}, which says what columns there are",
            "mdgan schema draft FILE makes one",
        )
    kind = TableKind(read_schema(path_of(settings.schema)), settings.target)
    if settings.rows_per_person is not None and not kind.schema.person:
        raise BadInput(
            flag("rows_per_person", settings.rows_per_person),
            f"{flag('schema', settings.schema)} names no person",
            'add "person": "COLUMN" to it, or leave that out',
        )
    return table_data(kind, _tables(kind, settings))


def table_data(
    kind: TableKind,
    rows_of: Callable[[Path], TablePartitioner],
    held_out: Callable[[Path], TablePartitioner] | None = None,
    *,
    reads_files: bool = True,
) -> PreparedData:
    """Makes the data set of a dataset file of rows."""
    return PreparedData(
        kind.shape,
        kind,
        rows_of,
        held_out=held_out,
        num_classes=kind.num_classes,
        agreed={"schema_sha256": kind.schema.sha256},
        reads_files=reads_files,
        keeps={KEPT_SCHEMA: schema_text(kind.schema).encode()} if reads_files else {},
    )


def _tables(kind: TableKind, settings: DataSettings) -> Callable[[Path], TablePartitioner]:
    """Returns a function that opens the table at a path, each table once."""
    most = settings.rows_per_person
    opened: dict[Path, TablePartitioner] = {}
    seen: dict[bytes, int] = {}

    def read(path: Path) -> TablePartitioner:
        target = None if kind.target is None else kind.schema.columns[kind.target].name
        map_file = settings.map_of(path)
        site_map = None if map_file is None else read_map(map_file, kind.schema)
        if site_map is None and settings.map is not None:
            warn_once(
                f"{path}: is read as it is, since {flag('map')} is of {flag('data_dir')}; it must "
                "have the schema's spellings and units"
            )
        rows, kept = read_rows(path, kind.schema, target, site_map=site_map), None
        if most is not None and rows.persons is not None:
            kept = _some_of_each(rows, most)
            if left_out := len(rows) - len(kept):
                warn_once(
                    f"{path}: {left_out:,} of {len(rows):,} rows are left out, since each person "
                    f"adds {most} at most ({flag('rows_per_person')})"
                )
            rows = rows.select(kept)
        for other, source in opened.items():
            if np.array_equal(source.rows.values, rows.values, equal_nan=True):
                warn_once(f"{path} and {other} hold the same rows; give each site its own")
        return TablePartitioner(kind, rows, seen, file=path, kept=kept, site_map=site_map)

    def open_once(path: Path) -> TablePartitioner:
        if not path.exists():
            raise BadInput(
                flag("data_dir", path),
                "no such file",
                "give a CSV or Parquet file, or a folder of them; {rank} in it stands for the "
                "number of the site",
            )
        if (place := path.resolve()) not in opened:
            opened[place] = read(path)
        return opened[place]

    return open_once


def _some_of_each(rows: Rows, most: int) -> "np.typing.NDArray[np.int64]":
    """Chooses at most this many rows of each person by their values; their places, int64 [m]."""
    assert rows.persons is not None, "the schema names persons"
    digests = [hashlib.sha256(row.tobytes()).digest() for row in rows.values]
    of_person: dict[str, list[int]] = {}
    for place in sorted(range(len(rows)), key=digests.__getitem__):
        of_person.setdefault(rows.persons[place], []).append(place)
    return np.array(sorted(p for places in of_person.values() for p in places[:most]))
