"""`mdgan schema`: what it writes, what it says of a site's rows, and what it refuses."""

from pathlib import Path

from mdgan.samples.table.schema import read_schema, schema_text
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
    said = answer(tmp_path, "draft", "site-1.csv", "-o", "agreed.json")
    assert said.splitlines() == [
        "agreed.json: 2 columns, from 101 rows",
        "left out; remove them from the files of all sites, or add them by hand:",
        "  patient_id: is called id and has many different values",
        "look at these before others see the schema:",
        "  age: the upper bound 900 tells of 1 row, far above the others (59); write the bound "
        "that your protocol has",
    ]
    assert read_schema(tmp_path / "agreed.json").names == ["age", "sex"]
    says = "mdgan: -o agreed.json: is there already; remove it, or name another file\n"
    assert refusal(tmp_path, "draft", "site-1.csv", "-o", "agreed.json") == says
    assert answer(tmp_path, "site-1.csv").startswith("study.json: 2 columns")


def test_check_counts_the_rows_that_do_not_fit_by_column(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text(schema_text(STUDY), encoding="utf-8")
    written(tmp_path, HEADER, ROW)
    bad = [ROW.replace("44", str(place)) for place in range(7)]
    written(tmp_path, HEADER, ROW, *bad, bad[0].replace("yes", "maybe"), name="site-2.csv")
    fits = "site-1.csv: all 1 rows fit\n"
    assert answer(tmp_path, "check", "study.json", "site-1.csv") == fits
    said = answer(tmp_path, "check", "study.json", "site-1.csv", "site-2.csv", status=1)
    assert said.splitlines() == [
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
    said = refusal(tmp_path, "check", "study.json", "site-1.csv", "--target", "weight")
    assert said.startswith("mdgan: --target weight: the schema lets it be missing")


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
    assert "0 to 300; 1 decimals" in lines[1]
    assert lines[1].endswith("may be missing")
    assert "I, II, III" in lines[5]
    assert lines[-1] == f"sha256 {STUDY.sha256}"
