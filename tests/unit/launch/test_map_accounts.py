"""The spent privacy of rows does not depend on a site's map, or on ignored columns."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from mdgan.errors import BadInput
from mdgan.samples.table.schema import (
    CategoryColumn,
    NumberColumn,
    Schema,
    WholeColumn,
    YesNoColumn,
)
from tests.claims.registry import claim
from tests.unit.launch.table_sites import AS_COLUMN, BY_PATIENT, COLUMNS, STUDY, Site, write_site

pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")

MAP: dict[str, Any] = {
    "Alter": {"name": "age"},
    "Wert": {"name": "value", "factor": 0.5},
    "Geschlecht": {"name": "sex", "values": {"w": "F", "m": "M"}},
    "krank": {"name": "ill", "values": {"ja": "yes", "nein": "no"}},
}
OTHER_MAP = MAP | {
    "Wert": {"name": "value", "factor": 0.25},
    "Geschlecht": {"name": "sex", "values": {"w": "M", "m": "F"}},
}
AT_SITE = Schema(
    columns=(
        WholeColumn(name="Alter", low=0, high=100),
        NumberColumn(name="Wert", low=0, high=99, decimals=2),
        CategoryColumn(name="Geschlecht", categories=("m", "w")),
        YesNoColumn(name="krank", no="nein", yes="ja"),
    )
)


def raw_site(folder: Path) -> Path:
    """What `write_site` writes, in a site's own words."""
    lines = write_site(folder).read_text().splitlines()[1:]
    words = {"F": "w", "M": "m", "yes": "ja", "no": "nein"}
    path = folder / "raw.csv"
    rows = []
    for age, value, sex, ill in (line.split(",") for line in lines):
        rows.append(f"{age},{2 * float(value):.2f},{words[sex]},{words[ill]}")
    path.write_text("\n".join(["Alter,Wert,Geschlecht,krank", *rows]))
    return path


MAPPED: dict[str, tuple[str, Schema, Any]] = {
    "map": ("raw.csv", STUDY, MAP),
    "other map": ("raw.csv", STUDY, OTHER_MAP),
    "no map": ("raw.csv", AT_SITE, None),
    "by hand": ("site.csv", STUDY, None),
}


# Here no row says the same in both files, however they are read.
STRANGERS = ({"other map", "by hand"}, {"no map", "by hand"})


@pytest.mark.parametrize(
    ("first", "second"), [(a, b) for a in MAPPED for b in MAPPED if {a, b} not in STRANGERS]
)
def test_no_map_begins_with_nothing_spent(first: str, second: str, tmp_path: Path) -> None:
    raw_site(tmp_path)
    name, schema, site_map = MAPPED[first]
    before = Site(tmp_path, tmp_path / name, schema, site_map=site_map)
    told = before.counts()
    assert 2.9 < before.spend_all() <= 3
    name, schema, site_map = MAPPED[second]
    later = Site(tmp_path, tmp_path / name, schema, site_map=site_map)
    if first == second or {first, second} == {"map", "by hand"}:
        assert torch.equal(later.counts(), told)  # the same question
        with pytest.raises(BadInput, match="have spent"):
            later.spend_all()
    else:
        with pytest.raises(BadInput, match="have spent"):
            later.counts()


with_changes = msgspec.structs.replace
IGNORED = with_changes(STUDY, ignore=("patient", "exported"))
WITHOUT_AGE = with_changes(STUDY, columns=COLUMNS[1:], ignore=("patient", "exported", "age"))


@pytest.mark.parametrize(
    ("schema", "is_changed"),
    [
        (IGNORED, True),
        (with_changes(IGNORED, ignore=("patient", "exported", "ward")), True),
        (WITHOUT_AGE, False),
        (with_changes(BY_PATIENT, ignore=("exported",)), False),
        (with_changes(AS_COLUMN, ignore=("exported",)), False),
    ],
)
@claim("account", "all columns of a row")
def test_ignored_columns_make_no_new_rows(schema: Schema, is_changed: bool, tmp_path: Path) -> None:
    """Neither if what stands in them changes, nor if other columns are ignored."""
    lines = write_site(tmp_path, names=True).read_text().splitlines()
    path = tmp_path / "named.csv"

    def export(day: int) -> Path:
        path.write_text(
            "\n".join([f"{lines[0]},exported", *(f"{each},{day}" for each in lines[1:])])
        )
        return path

    first = Site(tmp_path, export(1), IGNORED)
    first.counts()
    assert 2.9 < first.spend_all() <= 3
    later = Site(tmp_path, export(2 if is_changed else 1), schema)
    with pytest.raises(BadInput, match="have spent"):
        later.spend_all()
    with pytest.raises(BadInput, match="have spent"):
        Site(tmp_path, write_site(tmp_path), STUDY).counts()
