"""The spent privacy of rows does not depend on the schema, target and persons of a run."""

import sqlite3
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
import torch

from mdgan.errors import BadInput
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.privacy.contents import Contents
from mdgan.privacy.ledger import Ledger, look_up
from mdgan.privacy.ledger_file import FILE, begun
from mdgan.privacy.ledger_view import Plan
from mdgan.samples.table.identity import canonical, contents_of_files
from mdgan.samples.table.schema import (
    CategoryColumn,
    NumberColumn,
    Schema,
    WholeColumn,
    YesNoColumn,
)
from tests.accounts import charges_in
from tests.claims.registry import claim
from tests.unit.launch.table_sites import (
    AS_COLUMN,
    BY_PATIENT,
    COLUMNS,
    PATIENT,
    STUDY,
    Site,
    write_site,
)

pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")

VARIANTS = {
    "order": Schema(columns=COLUMNS[::-1]),
    "wider": Schema(columns=(WholeColumn(name="age", low=-5, high=130), *COLUMNS[1:])),
    "finer": Schema(
        columns=(COLUMNS[0], NumberColumn(name="value", low=0, high=50, decimals=4), *COLUMNS[2:])
    ),
    "codes": Schema(
        columns=(*COLUMNS[:2], CategoryColumn(name="sex", categories=("M", "F", "X")), COLUMNS[3])
    ),
    "kind": Schema(columns=(NumberColumn(name="age", low=0, high=100, decimals=1), *COLUMNS[1:])),
    "missing": Schema(
        columns=(*COLUMNS[:3], YesNoColumn(name="ill", may_be_missing=True)), about="another one"
    ),
    "independent": msgspec.structs.replace(STUDY, rows_are_independent=True),
}


@pytest.mark.parametrize("variant", VARIANTS)
@claim("told-once", "spends, and a line says so before.")
@claim(
    "goes-on-counting",
    "ε goes on counting through resumes, other seeds, divisions, schemas, targets and picture "
    "sizes.",
)
def test_no_schema_begins_with_nothing_spent(variant: str, tmp_path: Path) -> None:
    site = write_site(tmp_path)
    first = Site(tmp_path, site, STUDY)
    first.counts()
    assert 2.9 < first.spend_all() <= 3
    other = Site(tmp_path, site, VARIANTS[variant])
    with pytest.raises(BadInput, match=r"the samples of rank 1 have spent .* before"):
        other.counts()
    later = Site(tmp_path, site, VARIANTS[variant], dp_epsilon=6.0)
    (warning,) = [line for line in later.warnings() if "not counted by this schema" in line]
    assert "adds to what they have spent before" in warning
    later.counts()
    assert 3 < later.spend_all() <= 6
    assert len(charges_in(tmp_path / "ledger")) == 4  # two of counts, two of training


@claim("told-once", "The identical question is free")
def test_each_question_is_charged_and_only_the_same_one_is_free(tmp_path: Path) -> None:
    site, ledger = write_site(tmp_path), tmp_path / "ledger"
    told = Site(tmp_path, site, STUDY).counts()
    assert len(charges_in(ledger)) == 1
    assert torch.equal(Site(tmp_path, site, STUDY).counts(), told)
    assert len(charges_in(ledger)) == 1
    of_target = Site(tmp_path, site, STUDY, target="ill").counts()
    assert len(charges_in(ledger)) == 2
    assert len(of_target) == len(told)  # the target's own counts stand last
    assert not torch.equal(of_target, told)
    Site(tmp_path, site, VARIANTS["wider"]).counts()
    assert len(charges_in(ledger)) == 3


@claim("told-once", "Where nothing is left it is refused before anything is told.")
def test_so_many_questions_are_refused_before_they_are_told(tmp_path: Path) -> None:
    site, asked = write_site(tmp_path), 0
    refused = ""
    while not refused:
        wider = WholeColumn(name="age", low=0, high=100 + asked)
        try:
            Site(tmp_path, site, Schema(columns=(wider, *COLUMNS[1:]))).counts()
            asked += 1
        except BadInput as why:
            refused = str(why)
    assert "would spend the rest" in refused
    assert 3 < asked < 40
    assert len(charges_in(tmp_path / "ledger")) == asked


@claim(
    "goes-on-counting",
    "ε goes on counting through resumes, other seeds, divisions, schemas, targets and picture "
    "sizes.",
)
def test_persons_are_units_and_know_what_their_rows_have_spent(tmp_path: Path) -> None:
    named = msgspec.structs.replace(STUDY, person="patient")
    site = Site(tmp_path, write_site(tmp_path, 40, 5, names=True), named)
    assert len(site.contents[1].digests) == 40
    (warning,) = [line for line in site.warnings() if "count as one" in line]
    assert "those of rank 1 as 40, since 160 are further ones" in warning
    site.counts()
    assert 2.9 < site.spend_all() <= 3
    # The same rows in a file without the column.
    lines = (tmp_path / "named.csv").read_text().splitlines()
    (tmp_path / "site.csv").write_text("\n".join(line.rpartition(",")[0] for line in lines))
    unnamed = Site(tmp_path, tmp_path / "site.csv", STUDY)
    with pytest.raises(BadInput, match="have spent"):
        unnamed.counts()


BY_AGE = Schema(columns=(*COLUMNS[1:], PATIENT), person="age")


@pytest.mark.parametrize(
    ("first", "second"),
    [(BY_PATIENT, AS_COLUMN), (AS_COLUMN, BY_PATIENT), (BY_PATIENT, BY_AGE), (BY_AGE, AS_COLUMN)],
)
@claim(
    "goes-on-counting",
    "ε goes on counting through resumes, other seeds, divisions, schemas, targets and picture "
    "sizes.",
)
def test_who_is_the_person_is_not_what_a_row_is(
    first: Schema, second: Schema, tmp_path: Path
) -> None:
    site = write_site(tmp_path, names=True)
    before = Site(tmp_path, site, first)
    before.counts()
    assert 2.9 < before.spend_all() <= 3
    with pytest.raises(BadInput, match="have spent"):
        Site(tmp_path, site, second).counts()


@claim("not-both", "and so are rows that spent one by one once a schema names the person.")
def test_what_rows_spent_is_not_what_their_person_spent(tmp_path: Path) -> None:
    site = write_site(tmp_path, 10, 4, names=True)
    Site(tmp_path, site, AS_COLUMN).counts()
    with pytest.raises(BadInput, match="were trained on one by one before, and persons have"):
        Site(tmp_path, site, BY_PATIENT, dp_epsilon=30.0).counts()


def test_new_rows_of_persons_are_remembered_although_the_run_goes_on(tmp_path: Path) -> None:
    lines = write_site(tmp_path, 40, 2, names=True).read_text().splitlines()
    path = tmp_path / "growing.csv"
    path.write_text("\n".join([lines[0], *lines[1::2]]))
    take(Site(tmp_path, path, BY_PATIENT), 5)
    path.write_text("\n".join(lines))
    take(Site(tmp_path, path, BY_PATIENT), 5)  # the same plan goes on
    path.write_text("\n".join(line.rpartition(",")[0] for line in [lines[0], *lines[2::2]]))
    unnamed = Site(tmp_path, path, STUDY)
    (history,) = look_up(tmp_path / "ledger", unnamed.contents[1]).histories
    assert sum(charge.steps for charge in history.charges) == 10


def take(site: Site, steps: int) -> None:
    """Some steps of training, which keep to ε."""
    (budget,) = site.samples.open_budgets().values()
    for _ in range(min(steps, budget.iterations_left)):
        budget.key("noise")
        budget.advance()
    assert budget.spent().epsilon <= 3.01
    assert budget.limit <= 3.01
    budget.close()


@claim(
    "goes-on-counting",
    "ε goes on counting through resumes, other seeds, divisions, schemas, targets and picture "
    "sizes.",
)
def test_a_plan_goes_on_only_while_it_fits_what_was_spent_elsewhere(tmp_path: Path) -> None:
    """Stopped under one name, spent under another, resumed."""
    site = write_site(tmp_path, names=True)
    for schema, steps in ((BY_PATIENT, 5), (AS_COLUMN, 5), (BY_PATIENT, 5), (AS_COLUMN, 50)):
        take(Site(tmp_path, site, schema), steps)
    with pytest.raises(BadInput, match="have spent"):
        take(Site(tmp_path, site, BY_PATIENT), 50)


def test_rows_that_spend_under_another_name_are_locked(tmp_path: Path) -> None:
    site = write_site(tmp_path, names=True)
    first, second = Site(tmp_path, site, BY_PATIENT), Site(tmp_path, site, AS_COLUMN)
    held = first.samples.open_budgets()
    with pytest.raises(BadInput, match="trains on some of these samples"):
        second.samples.open_budgets()
    held[1].close()


def test_rows_that_spent_without_a_person_have_spent_with_one(tmp_path: Path) -> None:
    write_site(tmp_path, names=True)
    lines = (tmp_path / "named.csv").read_text().splitlines()
    (tmp_path / "site.csv").write_text("\n".join(line.rpartition(",")[0] for line in lines))
    first = Site(tmp_path, tmp_path / "site.csv", STUDY)
    first.counts()
    assert 2.9 < first.spend_all() <= 3
    named = msgspec.structs.replace(STUDY, person="patient")
    with pytest.raises(BadInput, match="have spent"):
        Site(tmp_path, tmp_path / "named.csv", named).counts()


@claim("told-once", "spends, and a line says so before.")
def test_a_file_whose_columns_changed_is_named(tmp_path: Path) -> None:
    site = write_site(tmp_path)
    first = Site(tmp_path, site, STUDY)
    first.counts()
    first.spend_all()
    lines = site.read_text().splitlines()
    site.write_text("\n".join(line.partition(",")[2] for line in lines))
    fewer = Site(tmp_path, site, Schema(columns=COLUMNS[1:]))
    (warning,) = [line for line in fewer.warnings() if "knows none of their rows" in line]
    assert "columns or values have changed" in warning


@claim("unit", "A unit is a sample, with all that equal it: copies of a picture, equal rows.")
def test_a_person_counts_once_in_each_histogram(tmp_path: Path) -> None:
    named = msgspec.structs.replace(STUDY, person="patient")
    site = Site(tmp_path, write_site(tmp_path, 20, 5, names=True), named, dp_noise=0.001)
    values = {"dp_noise": 0.001, "dp_delta": 1e-5, "dp_ledger": str(tmp_path / "ledger")}
    site.samples = replace(site.samples, settings=MDGANSettings.read(values))
    whole = site.counts().round()
    assert whole.sum() == 20 * site.dataset.kind.num_histograms


def test_a_ledger_of_version_2_knows_rows_as_it_did(tmp_path: Path) -> None:
    site, folder = write_site(tmp_path), tmp_path / "ledger"
    begun(folder)
    with sqlite3.connect(folder / FILE) as db:
        db.executescript("PRAGMA user_version = 2; DROP TABLE releases; DROP TABLE names;")
    new = Site(tmp_path, site, STUDY)
    rows = new.dataset.open(site)
    as_before = Contents(
        tuple(sorted({sha256(k.before).digest() for k in rows.known(torch.arange(40))}))
    )
    plan = Plan("of before", "sample", "rdp", 1.5, 1.0, 1, 1, 4.0)
    ledger = Ledger(folder, as_before, lambda _: plan)
    ledger.key("noise")
    ledger.taken += 1
    ledger.close()
    with pytest.raises(BadInput, match="have spent"):
        new.counts()
    later = Site(tmp_path, site, STUDY, dp_epsilon=20.0)
    later.counts()
    # From then on the rows are known by what their file says.
    (history,) = look_up(folder, replace(later.contents[1], before=())).histories
    assert 1.5 in {charge.noise for charge in history.charges}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1.50", "1.5"),
        ("-0", "0.0"),
        ("TRUE", "True"),
        ("true", "1"),
        ("2024-12-31", "31.12.2024"),
        ("2024-12-31T00:00:00", "20241231"),
        (" a  b", "a b"),
        ("NA", ""),
        ("007", "7"),
    ],
)
def test_spellings_of_one_value_are_one(one: str, other: str) -> None:
    assert canonical(one) == canonical(other)


def test_columns_that_differ_in_case_alone_are_two(tmp_path: Path) -> None:
    results = []
    for name, lines in (("x.csv", ["A,a", "1,2", "3,1"]), ("y.csv", ["a,A", "1,3", "2,1"])):
        (tmp_path / name).write_text("\n".join(lines))
        results.append(sorted(contents_of_files(tmp_path / name, "")))
    assert results[0] == results[1]
