"""Drafts propose rules that a site's rows obey, and none that they obey by chance."""

import random
from datetime import date, timedelta
from pathlib import Path

import pytest

from mdgan.inspect.rule_drafts import rules_in_words, with_rules
from mdgan.inspect.schema_draft import draft_schema
from mdgan.inspect.schemas import check_rows, misfits_in_words
from mdgan.samples.table.reading import read_rows
from mdgan.samples.table.schema import Follows, Schema, problems_of, schema_text
from tests.unit.samples.table.tables import written

GROUPS = ("young", "middle", "old")


def drafted(folder: Path, header: str, rows: list[str]) -> Schema:
    path = written(folder, header, *rows)
    return with_rules(path, draft_schema(path).schema)


def visits(number: int, years: int = 0) -> list[str]:
    """Rows of birth, visit, death, age, drug, dose, degree, its number, and a group of the age."""
    random_ = random.Random(0)
    rows = []
    for _ in range(number):
        visit = date(2015, 1, 1) + timedelta(random_.randrange(3_000))
        birth = visit - timedelta(random_.randrange(18 * 366, 90 * 365))
        death = visit + timedelta(random_.randrange(1_500))
        days = (visit - birth).days
        before = (visit.month, visit.day) < (birth.month, birth.day)
        age = days // years if years else visit.year - birth.year - before
        drug = random_.choice("AB")
        said = (drug, random_.randrange(90)) if random_.random() < 0.7 else ("", "")
        degree = random_.randrange(3)
        group = GROUPS[(age >= 40) + (age >= 65)]
        last = "" if random_.random() < 0.5 else death
        name = ("school", "college", "doctor")[degree]
        values = (birth, visit, last, age, *said, name, 7 + 4 * degree, group)
        rows.append(",".join(map(str, values)))
    return rows


HEADER = "birth,visit,death,age,drug,dose,degree,years,agegroup"


def test_what_all_rows_keep_is_proposed(tmp_path: Path) -> None:
    schema = drafted(tmp_path, HEADER, visits(1_200))
    assert rules_in_words(schema) == [
        "age = years(birth, visit)",
        "agegroup follows from age",
        "years follows from degree",
        "visit <= death",
        "dose missing if drug missing",
        "drug missing if dose missing",
    ]
    assert [*problems_of(schema)] == []
    results = {rule.column: rule.values for rule in schema.rules or () if isinstance(rule, Follows)}
    assert results["agegroup"] == {"10": "young", "40": "middle", "65": "old"}
    assert results["years"] == {"college": "11", "doctor": "15", "school": "7"}


@pytest.mark.parametrize("years", ["365.25", "365"])
def test_how_a_file_counts_years_is_found(tmp_path: Path, years: str) -> None:
    rows = []
    for row in visits(800):
        birth, visit, *rest = row.split(",")
        days = (date.fromisoformat(visit) - date.fromisoformat(birth)).days
        rest[1] = str(int(days // float(years)))
        rows.append(",".join([birth, visit, *rest]))
    schema = drafted(tmp_path, HEADER, rows)
    assert f"age = days(birth, visit) // {years}" in rules_in_words(schema)


def test_columns_that_have_nothing_to_do_with_each_other_have_no_rule(tmp_path: Path) -> None:
    random_ = random.Random(1)
    rows = []
    for _ in range(600):
        is_missing = random_.random() < 0.02
        low, high = random_.randrange(20, 40), random_.randrange(38, 200)
        name, other = random_.choice("xyz"), "" if is_missing else random_.choice("pq")
        rows.append(f"{low},{high},{name},{other},{random_.randrange(100)}")
    assert rules_in_words(drafted(tmp_path, "low,high,name,other,free", rows)) == []


def test_columns_of_the_same_numbers_are_made_once(tmp_path: Path) -> None:
    random_ = random.Random(2)
    rows = [f"{(value := random_.randrange(50))},{value},{-value}" for _ in range(200)]
    assert rules_in_words(drafted(tmp_path, "x,again,minus", rows)) == ["again = x"]


def test_rows_that_break_a_rule_are_named(tmp_path: Path) -> None:
    schema = drafted(tmp_path, HEADER, visits(1_200))
    (tmp_path / "study.json").write_text(schema_text(schema), encoding="utf-8")
    rows = [
        "1960-05-04,2020-05-03,2020-05-02,59,A,3,school,7,middle",
        "1960-05-04,2020-05-04,2020-05-05,59,A,3,school,7,middle",
        "1960-05-04,2020-05-04,2020-05-05,60,,3,school,11,old",
        "1960-05-04,2020-05-04,,60,A,3,school,7,middle",
        "1960-05-04,2020-05-04,,60,A,900,school,7,middle",
    ]
    path = written(tmp_path, HEADER, *rows, name="site-2.csv")
    said = misfits_in_words(path, check_rows(tmp_path / "study.json", path)).splitlines()
    assert said[0].endswith("4 of 5 rows do not fit")
    assert sorted(line.removeprefix(f"  {path}, ") for line in said[1:]) == [
        "row 2, column death: breaks the rule 'visit <= death'",
        "row 3, column age: breaks the rule 'age = years(birth, visit)', which gives 60",
        "row 4, column agegroup: breaks the rule 'agegroup follows from age', which gives middle",
        "row 4, column dose: breaks the rule 'dose missing if drug missing'",
        "row 4, column years: breaks the rule 'years follows from degree', which gives 7",
        "row 6, column dose: '900' is outside the schema's bounds, 0 to 90",
    ]


@pytest.mark.parametrize("only", ["unknown", "low"])
def test_a_group_whose_numbers_are_all_missing_is_no_obstacle(only: str, tmp_path: Path) -> None:
    rows = [f"{n % 90},{'low' if n % 90 < 50 else 'high'}" for n in range(360)]
    schema = drafted(tmp_path, "points,grade", [*rows, *[f",{only}"] * 40])
    assert [rule.source for rule in schema.rules or () if isinstance(rule, Follows)] == ["points"]
    assert len(read_rows(tmp_path / "site-1.csv", schema)) == 400
    alone = [*(f"{n % 90},low" for n in range(360)), *[",high"] * 40]
    assert not drafted(tmp_path, "points,grade", alone).rules


def test_a_proposed_table_knows_the_end_of_a_scale(tmp_path: Path) -> None:
    rows = [f"{'<5' if n % 3 else 5 + n % 40},{'low' if n % 3 else 'high'}" for n in range(360)]
    schema = drafted(tmp_path, "points,grade", rows)
    assert len(read_rows(tmp_path / "site-1.csv", schema)) == 360
