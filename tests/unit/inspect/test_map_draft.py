"""Drafts of a site's map: certain entries, entries that a person must confirm, unknown ones."""

import json
from pathlib import Path

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from mdgan.errors import BadInput
from mdgan.inspect.map_draft import draft_map
from mdgan.samples.table.reading import read_rows
from mdgan.samples.table.schema import (
    AnyColumn,
    CategoryColumn,
    NumberColumn,
    Schema,
    WholeColumn,
    YesNoColumn,
    schema_text,
)
from mdgan.samples.table.site_map import SiteMap, map_text, read_map
from tests.unit.samples.table.tables import written

AGE = WholeColumn(name="age", low=0, high=120)
SEX = CategoryColumn(name="sex", categories=("F", "M"))
WEIGHT = NumberColumn(name="weight", low=3, high=160, decimals=1, may_be_missing=True)
ILL = YesNoColumn(name="ill_before")


def drafted(folder: Path, columns: tuple[AnyColumn, ...], *lines: str) -> SiteMap:
    path = folder / "study.json"
    path.write_text(schema_text(Schema(columns=columns, ignore=("mrn",))))
    return draft_map(path, written(folder, *lines))


@pytest.mark.parametrize("name", ["age", "AGE", " Age ", "a-g-e", "Age."])
def test_names_that_differ_in_case_and_punctuation_are_sure(name: str, tmp_path: Path) -> None:
    proposal = drafted(tmp_path, (AGE, SEX), f"{name},sex,mrn", "44,F,1", "50,M,2")
    assert proposal.unsure == {}
    assert [mapped.name for mapped in proposal.columns.values()] == ["age"] * (name != "age")
    (tmp_path / "map.json").write_text(map_text(proposal))
    schema = Schema(columns=(AGE, SEX), ignore=("mrn",))
    read = read_rows(
        tmp_path / "site-1.csv", schema, site_map=read_map(tmp_path / "map.json", schema)
    )
    assert read.values.tolist() == [[44, 0], [50, 1]]


@pytest.mark.parametrize("name", ["Alter", "Alter (Jahre)", "edad", "âge", "patient_age"])
def test_names_in_other_languages_are_asked_for(name: str, tmp_path: Path) -> None:
    proposal = drafted(tmp_path, (AGE, SEX), f"{name},sex", "44,F", "50,M")
    assert proposal.columns == {}
    assert proposal.unsure[name].name == "age"
    assert proposal.unsure[name].why.startswith("is it age?")
    (tmp_path / "map.json").write_text(map_text(proposal))
    with pytest.raises(BadInput, match=r"unsure .*is it age\?; move it to \"columns\""):
        read_map(tmp_path / "map.json", Schema(columns=(AGE, SEX)))


def test_spellings(tmp_path: Path) -> None:
    proposal = drafted(tmp_path, (SEX, ILL), "sex,Ill before", "f,YES", "m,no", "F,Yes")
    assert proposal.unsure == {}
    assert proposal.columns["sex"].values == {"f": "F", "m": "M"}
    assert proposal.columns["Ill before"].values == {"YES": "yes", "Yes": "yes"}
    proposal = drafted(tmp_path, (SEX, ILL), "sex,ill_before", "w,ja", "männlich,nein", "divers,ja")
    assert proposal.columns == {}
    assert proposal.unsure["sex"].values == {"w": "F", "männlich": "M", "divers": ""}
    assert "which are the empty ones (F, M)" in proposal.unsure["sex"].why
    assert proposal.unsure["ill_before"].values == {"ja": "yes", "nein": "no"}


def test_units_and_missing_codes_are_asked_for(tmp_path: Path) -> None:
    pounds = [f"{100 + 3 * n},5 lb" for n in range(50)]
    proposal = drafted(tmp_path, (WEIGHT, AGE), "weight;age", *(f"{p};44" for p in pounds), "-9;50")
    weight = proposal.unsure["weight"]
    assert (weight.factor, weight.unit, weight.missing) == (0.45359237, "lb", ("-9",))
    assert weight.why == (
        "are -9 missing values?; its numbers in lb seem to be in another unit: by which factor "
        "are they the schema's?"
    )
    kilograms = replace(WEIGHT, unit="kg")
    proposal = drafted(tmp_path, (kilograms, AGE), "weight;age", "70 lb;44", "81 lb;50")
    assert proposal.unsure["weight"].unit == "lb"  # though they would fit as they are
    proposal = drafted(tmp_path, (WEIGHT, AGE), "weight;age", "100;44", "310;50")
    assert proposal.unsure["weight"].factor is UNSET  # several would fit
    for weights in (("70,5", "81"), ("70,5 kg", "81 kg")):
        proposal = drafted(tmp_path, (kilograms, AGE), "weight;age", *(f"{w};4" for w in weights))
        assert (proposal.columns, proposal.unsure) == ({}, {})


def test_what_is_not_known_is_left_empty_with_a_line(tmp_path: Path) -> None:
    lines = ["q1,q2,q3,age", "70.5,x,F,1", "71.5,y,M,2", "72.5,z,F,3"]
    proposal = drafted(tmp_path, (AGE, SEX, WEIGHT, ILL), *lines)
    assert proposal.unsure["q3"].name == "sex"  # its values fit no other column
    assert proposal.unsure["q1"].name == "weight"
    assert proposal.unsure["q2"].name == ""
    assert 'fill in "name" (ill_before), or leave it empty' in proposal.unsure["q2"].why


def test_two_columns_that_may_be_one_are_not_paired(tmp_path: Path) -> None:
    proposal = drafted(tmp_path, (AGE, SEX), "Alter,edad,Sex", "44,50,F", "50,60,M")
    assert [proposal.unsure[name].name for name in ("Alter", "edad")] == ["", ""]
    assert [*proposal.columns] == ["Sex"]


def test_the_file_says_what_to_do(tmp_path: Path) -> None:
    text = map_text(drafted(tmp_path, (AGE, SEX), "Alter,sex", "44,F", "50,M"))
    assert "Move entries" in json.loads(text)["about"]
    assert "study.json" in json.loads(text)["about"]
