"""Columns that identify people: by name in several languages, by content, and together."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from sklearn import datasets

from mdgan.inspect.schema_draft import draft_schema
from tests.unit.inspect.test_schema_draft import NUM_ROWS, drafted, some
from tests.unit.samples.table.tables import written

R = Random(2)
FIRST_NAMES = ("Anna", "Peter", "Urs", "Lea", "Max")


def digits(number: int) -> str:
    return "".join(str(R.randint(0, 9)) for _ in range(number))


def that_pass(check: Callable[[str], bool], number: int, begin: str = "") -> list[str]:
    found: list[str] = []
    while len(found) < NUM_ROWS:
        if check(text := begin + digits(number)):
            found.append(text)
    return found


@pytest.mark.parametrize(
    "name",
    [
        *(
            "Vorname",
            "vor_name".replace("_", ""),
            "PatientenVorname",
            "Nachname",
            "prénom",
            "Patienten-Name",
            "GeburtsName",
            "Nom de naissance",
            "Name und Vorname",
            "Prenom",
        ),
        *("nom", "Nombre", "apellidos", "cognome", "imię", "voornaam", "förnamn", "first_name"),
        *("firstName", "LAST NAME", "фамилия", "姓名", "patient_name", "Patientenname"),
    ],
)
def test_names_of_persons_in_any_language(name: str, tmp_path: Path) -> None:
    found = drafted(tmp_path, {name: some(*FIRST_NAMES)})
    assert found.schema.names == ["other"]
    assert len(found.left_out) == 1


def weighted(weights: tuple[int, ...], modulus: int) -> Callable[[str], bool]:
    return lambda text: sum(w * int(c) for w, c in zip(weights, text, strict=True)) % modulus == 0


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (that_pass(weighted((1, 3) * 6 + (1,), 10), 10, "756"), "the insured (AHV)"),
        (that_pass(weighted(tuple(range(10, 0, -1)), 11), 10), "NHS numbers"),
        (that_pass(weighted((1, 3, 7, 9, 1, 3, 7, 9, 1, 3, 1), 10), 11), "(PESEL)"),
        (
            [
                f"{n}{'TRWAGMYFPDXBNJZSQVHLCKE'[n % 23]}"
                for n in R.sample(range(10**7, 10**8), NUM_ROWS)
            ],
            "(DNI)",
        ),
        ([f"p{n}@hospital.example" for n in range(NUM_ROWS)], "e-mail addresses"),
        (
            [f"+41 79 {R.randint(100, 999)} {R.randint(10, 99)} 00" for _ in range(NUM_ROWS)],
            "phone",
        ),
        ([f"Bahnhofstrasse {n}" for n in range(NUM_ROWS)], "addresses"),
        ([f"{digits(3)}-{digits(2)}-{digits(4)}" for _ in range(NUM_ROWS)], "(SSN)"),
    ],
)
def test_numbers_and_addresses_by_what_they_are(
    values: list[str], says: str, tmp_path: Path
) -> None:
    (said,) = drafted(tmp_path, {"x": values}).left_out
    assert said.startswith("x: has ")
    assert says in said
    if any(sure in says for sure in ("AHV", "NHS", "PESEL", "DNI", "mail", "SSN")):
        of_few = (values[:8] * NUM_ROWS)[:NUM_ROWS]  # each of them has many rows
        assert says in drafted(tmp_path, {"x": of_few}).left_out[0]


def test_the_case_from_the_field(tmp_path: Path) -> None:
    found = drafted(
        tmp_path,
        {
            "Vorname": some(*FIRST_NAMES),
            "AHV": [f"756{digits(10)}" for _ in range(NUM_ROWS)],
            "Geburtsdatum": [
                f"{R.randint(1, 28)}.{R.randint(1, 12)}.{R.randint(1930, 2000)}"
                for _ in range(NUM_ROWS)
            ],
            "PLZ": [R.choice((8001, 3000, 4051)) for _ in range(NUM_ROWS)],
            "Geschlecht": some("m", "w"),
        },
    )
    assert found.schema.names == ["other", "Geburtsdatum", "PLZ", "Geschlecht"]
    assert [line.partition(":")[0] for line in found.left_out] == ["Vorname", "AHV"]
    (said,) = (line for line in found.warnings if "identify" in line)
    assert said.startswith("Geburtsdatum, PLZ, Geschlecht: identify people together: ")


def test_who_is_alone_is_counted(tmp_path: Path) -> None:
    births = ["1950-01-01"] * (NUM_ROWS - 2) + ["1951-01-01"] * 2
    codes = ["12345"] * (NUM_ROWS - 1) + ["23456"]
    found = drafted(tmp_path, {"date_of_birth": births, "zip": codes})
    (said,) = (line for line in found.warnings if "identify" in line)
    assert f"2 of {NUM_ROWS} rows are alone" in said
    found = drafted(tmp_path, {"zip": some("12345", "23456")})
    assert not [line for line in found.warnings if "identify" in line]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("nombre_enfants", [R.randint(0, 4) for _ in range(NUM_ROWS)]),
        ("phone_use", some("yes", "no", "NA")),
        ("insurance", some("public", "private")),
        ("nir", [round(R.random(), 7) for _ in range(NUM_ROWS)]),
        ("birth_weight", [R.randint(2000, 4500) for _ in range(NUM_ROWS)]),
        ("icd10", some("C50.1", "I10", "E11.9")),
        ("text_score", [R.randint(0, 100) for _ in range(NUM_ROWS)]),
        (
            "blood_pressure",
            [f"{R.randint(90, 120)}/{R.randint(60, 90)}" for _ in range(NUM_ROWS)][:9] * 50,
        ),
    ],
)
def test_ordinary_columns_stay(name: str, values: list[object], tmp_path: Path) -> None:
    found = drafted(tmp_path, {name: (values * 2)[:NUM_ROWS]})
    assert found.left_out == []
    assert not [line for line in found.warnings if "identify" in line]


@pytest.mark.parametrize("name", ["iris", "diabetes", "breast_cancer", "wine", "linnerud"])
def test_public_tables_stay_whole(name: str, tmp_path: Path) -> None:
    frame = getattr(datasets, f"load_{name}")(as_frame=True).frame
    frame.to_csv(tmp_path / "a.csv", index=False)
    found = draft_schema(tmp_path / "a.csv")
    assert found.left_out == []
    assert found.schema.names == list(frame.columns)


def test_what_identifies_together_though_a_file_lacks_a_column(tmp_path: Path) -> None:
    rows = [f"19{50 + n % 40}-01-{n % 28 + 1:02},{'mf'[n % 2]}" for n in range(60)]
    lines = [f"{row},{10_000 + 7 * (n // 2)}" for n, row in enumerate(rows)]
    written(tmp_path, "birth_date,sex,plz", *lines, name="a.csv")
    written(tmp_path, "birth_date,sex", *rows, name="b.csv")
    found = draft_schema(tmp_path)
    assert found.schema.names == ["birth_date", "sex", "plz"]
    assert any("120 of 120 rows are alone" in line for line in found.warnings)
