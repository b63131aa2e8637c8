"""`mdgan schema`: the files that it writes, its messages about a site's rows, and its refusals."""

import json
from pathlib import Path

from mdgan.samples.table.schema import (
    CategoryColumn,
    Schema,
    WholeColumn,
    YesNoColumn,
    read_schema,
    schema_text,
)
from tests.processes import run_here
from tests.unit.samples.table.tables import HEADER, ROW, STUDY, written


def answer(folder: Path, *arguments: str, status: int = 0) -> str:
    done = run_here("schema", *arguments, cwd=folder)
    assert (done.status, done.errors) == (status, ""), done
    return done.output


def refusal(folder: Path, *arguments: str) -> str:
    """The one line with which a command of the group is refused."""
    done = run_here("schema", *arguments, cwd=folder)
    assert (done.status, done.output, done.errors.count("\n")) == (2, "", 1), done
    return done.errors


def site(folder: Path) -> None:
    rows = [f"{place + 7},{20 + place % 40},{'FM'[place % 2]}" for place in range(100)]
    written(folder, "patient_id,age,sex", *rows, "107,900,M")


def test_a_draft_says_what_it_leaves_out_and_what_it_tells(tmp_path: Path) -> None:
    site(tmp_path)
    output = answer(tmp_path, "draft", "site-1.csv", "-o", "agreed.json")
    assert output.splitlines() == [
        "agreed.json: 2 columns, from 101 rows",
        'not read, by "ignore"; add by hand what you need of them:',
        "  patient_id: is called id and has many different values",
        "look at these before others see the schema:",
        "  60 rows equal others; with differential privacy equal rows count as one person: say "
        '"rows_are_independent": true if they are of different people',
        "  age: the upper bound 900 tells of 1 row, far above the others (59); write the bound "
        "that your protocol has",
    ]
    assert read_schema(tmp_path / "agreed.json").names == ["age", "sex"]
    written(tmp_path, "patient_id,age,sex", "mrn 7,30,F", name="site-2.csv")
    fit = "site-1.csv: all 101 rows fit\nsite-2.csv: its row fits\n"
    assert answer(tmp_path, "check", "agreed.json", "site-1.csv", "site-2.csv") == fit
    says = "mdgan: -o agreed.json: is there already; remove it, or name another file\n"
    assert refusal(tmp_path, "draft", "site-1.csv", "-o", "agreed.json") == says
    assert answer(tmp_path, "site-1.csv").startswith("study.json: 2 columns")


def test_check_counts_the_rows_that_do_not_fit_by_column(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text(schema_text(STUDY), encoding="utf-8")
    written(tmp_path, HEADER, ROW)
    bad = [ROW.replace("44", str(place)) for place in range(7)]
    written(tmp_path, HEADER, ROW, *bad, bad[0].replace("yes", "maybe"), name="site-2.csv")
    fits = "site-1.csv: its row fits\n"
    assert answer(tmp_path, "check", "study.json", "site-1.csv") == fits
    output = answer(tmp_path, "check", "study.json", "site-1.csv", "site-2.csv", status=1)
    assert output.splitlines() == [
        fits.strip(),
        "site-2.csv: 8 of 9 rows do not fit",
        *(
            f"  site-2.csv, row {place + 3}, column age: '{place}' is outside the schema's bounds, "
            "18 to 120"
            for place in range(5)
        ),
        "  … and 3 more in column age",
        "  site-2.csv, row 10, column smoker: 'maybe' is none of its categories",
    ]


def test_check_of_a_target(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text(schema_text(STUDY), encoding="utf-8")
    written(tmp_path, HEADER, ROW)
    assert "fit" in answer(tmp_path, "check", "study.json", "site-1.csv", "--target", "smoker")
    message = refusal(tmp_path, "check", "study.json", "site-1.csv", "--target", "weight")
    assert message.startswith("mdgan: --target weight: the schema lets it be missing")


def test_check_of_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text(schema_text(STUDY), encoding="utf-8")
    assert refusal(tmp_path, "check", "study.json", "site-3.csv") == (
        "mdgan: site-3.csv: no such file; give a CSV or Parquet file, or a folder of them\n"
    )
    assert refusal(tmp_path, "check", "site-3.csv", "site-3.csv").startswith(
        "mdgan: site-3.csv: cannot be read (No such file or directory)"
    )
    written(tmp_path, "age", "44")
    assert answer(tmp_path, "check", "study.json", "site-1.csv", status=1).splitlines()[:2] == [
        "site-1.csv: does not fit",
        "  site-1.csv, column smoker: is missing, and the schema does not let it be; add it, or "
        'agree on "may_be_missing": true',
    ]


def test_show(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text(schema_text(STUDY), encoding="utf-8")
    lines = answer(tmp_path, "show", "study.json").splitlines()
    assert lines[0].split() == ["column", "kind", "values"]
    assert "0 to 300; 1 decimal" in lines[1]
    assert lines[1].endswith("may be missing")
    assert "I, II, III" in lines[5]
    assert lines[-1] == f"sha256 {STUDY.sha256}"


def test_show_fits_a_screen(tmp_path: Path) -> None:
    categories = tuple(f"a long category {n}" for n in range(40))
    wide = [CategoryColumn(name=f"a{'n' * 80}{n}", categories=categories) for n in range(3)]
    (tmp_path / "study.json").write_text(schema_text(Schema(columns=tuple(wide), ignore=("mrn",))))
    lines = answer(tmp_path, "show", "study.json").splitlines()
    assert max(map(len, lines)) <= 100
    assert "not read: mrn" in lines
    everything = answer(tmp_path, "show", "study.json", "--all")
    assert wide[0].name in everything
    many = [WholeColumn(name=f"lab_{n}", low=0, high=9) for n in range(200)]
    (tmp_path / "study.json").write_text(schema_text(Schema(columns=tuple(many))))
    lines = answer(tmp_path, "show", "study.json").splitlines()
    assert len(lines) < 40
    assert max(map(len, lines)) <= 100
    assert "lab_199" in " ".join(lines)
    assert len(answer(tmp_path, "show", "study.json", "--all").splitlines()) > 200


def test_a_draft_fits_its_own_file_at_once(tmp_path: Path) -> None:
    site(tmp_path)
    answer(tmp_path, "draft", "site-1.csv")
    assert answer(tmp_path, "check", "study.json", "site-1.csv") == "site-1.csv: all 101 rows fit\n"


def test_a_site_maps_what_it_says_otherwise(tmp_path: Path) -> None:
    site(tmp_path)
    answer(tmp_path, "draft", "site-1.csv")
    written(tmp_path, "PID,Alter,Sex", "1,44,f", "2,50,M", "3,950,m", name="site-2.csv")
    output = answer(tmp_path, "map", "study.json", "site-2.csv").splitlines()
    assert output[0] == "site-map.json: 1 columns are mapped, 2 unsure"
    assert output[1:] == [
        "  Alter: is it age?",
        "  PID: which column is it? leave it empty, and it is not read",
    ]
    check = "check", "study.json", "site-2.csv", "--map", "site-map.json"
    assert "unsure Alter: is it age?; move it to" in refusal(tmp_path, *check)
    drafted = json.loads((tmp_path / "site-map.json").read_text())
    confirmed = {"columns": drafted["columns"] | drafted["unsure"], "unsure": {}}
    (tmp_path / "site-map.json").write_text(json.dumps(confirmed))
    assert answer(tmp_path, *check, status=1).splitlines() == [
        "site-2.csv: 1 of 3 rows do not fit",
        "  Sex → sex: 'f' → 'F', 'M' → 'M', 'm' → 'M'",
        "  Alter → age: '44' → '44', '50' → '50', '950' → ''",
        "  PID → not read",
        "  site-2.csv, row 4, column age (Alter in the file): '950' is outside the schema's "
        "bounds, 0 to 900",
    ]
    says = "mdgan: -o site-map.json: is there already; remove it, or name another file\n"
    assert refusal(tmp_path, "map", "study.json", "site-2.csv") == says


def test_drafts_are_merged(tmp_path: Path) -> None:
    for name, age in (("a", 90), ("b", 120)):
        column = WholeColumn(name="age", low=0, high=age)
        (tmp_path / f"{name}.json").write_text(schema_text(Schema(columns=(column,))))
    assert answer(tmp_path, "merge", "a.json", "b.json").splitlines() == [
        "study.json: 1 columns",
        "  age: bounds 0 to 90 in a.json, 0 to 120 in b.json: 0 to 120",
    ]
    assert read_schema(tmp_path / "study.json").columns == (column,)
    (tmp_path / "b.json").write_text(schema_text(Schema(columns=(YesNoColumn(name="age"),))))
    says = "mdgan: column age: is whole in a.json, and yes_no in b.json; agree on one kind\n"
    assert refusal(tmp_path, "merge", "a.json", "b.json", "-o", "c.json") == says
    assert not (tmp_path / "c.json").exists()
