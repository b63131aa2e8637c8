"""The file of a schema: its content, its hash, and what it may not contain."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given

from mdgan.errors import BadInput
from mdgan.samples.table.schema import Schema, problems_of, read_schema, schema_text
from tests.unit.samples.table.tables import STUDY, schemas


def file_of(folder: Path, *columns: str, about: str = "") -> Path:
    path = folder / "study.json"
    path.write_text(f'{{"about": "{about}", "columns": [{", ".join(columns)}]}}', encoding="utf-8")
    return path


@given(schemas())
def test_what_is_written_is_read_again(schema: Schema) -> None:
    assert list(problems_of(schema)) == []
    with TemporaryDirectory() as folder:
        path = Path(folder, "study.json")
        path.write_text(schema_text(schema), encoding="utf-8")
        again = read_schema(path)
    assert again == schema
    assert again.sha256 == schema.sha256


def test_the_hash_is_of_the_content(tmp_path: Path) -> None:
    one = read_schema(file_of(tmp_path, '{"kind": "whole", "name": "age", "low": 0, "high": 9}'))
    same = read_schema(file_of(tmp_path, '{"high":9,  "low":0, "name":"age", "kind":"whole"}'))
    other = read_schema(file_of(tmp_path, '{"kind": "whole", "name": "Age", "low": 0, "high": 9}'))
    assert one.sha256 == same.sha256 != other.sha256
    assert len(one.sha256) == 64


def test_columns_by_name() -> None:
    assert STUDY.place("age") == 1
    with pytest.raises(KeyError):
        STUDY.place("Age")


WHOLE = '{"kind": "whole", "name": "a", "low": 0, "high": 9}'
DATE = '{"kind": "date", "name": "a", "low": "2020-01-01", "high": "2020-12-31"}'
TIME = DATE.replace('"date"', '"time"')
CHOICE = '{"kind": "category", "name": "a", "categories": ["x", "y"]}'


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ("", "has 0 columns, must have 1 to 2,000"),
        (f"{WHOLE}, {CHOICE}", "column a: occurs twice"),
        (WHOLE.replace('"a"', '""'), "column '': a name has printable characters"),
        (WHOLE.replace('"a"', '"a\\u001b[2J"'), "column 'a?[2J': a name has printable characters"),
        (WHOLE.replace("9", "0"), "column a: low 0 must be below high 0"),
        (WHOLE.replace("9", "9" * 30), "column a: has bounds beyond ±9,007,199,254,740,992, where"),
        (
            WHOLE.replace("9", "9" * 999),
            "column a: has bounds beyond ±9,007,199,254,740,992, where",
        ),
        (WHOLE.replace("9", "9.5"), "is no schema (Expected `int`, got `float`"),
        (WHOLE.replace("whole", "wide"), "is no schema (Invalid value 'wide'"),
        (WHOLE.replace("}", ', "common": [2, 1]}'), "column a: its common values must rise"),
        (WHOLE.replace("}", ', "common": [10]}'), "column a: common value 10.0 is outside its"),
        (WHOLE.replace("}", ', "common": [0.5]}'), "column a: common value 0.5 is outside its"),
        (
            WHOLE.replace("9", "99").replace("}", f', "common": {list(range(21))}}}'),
            "column a: has 21 common values, at most 20",
        ),
        (
            WHOLE.replace("whole", "number").replace("}", ', "decimals": 13}'),
            "column a: decimals 13 must be 0 to 12",
        ),
        (
            WHOLE.replace("whole", "number").replace("9", "9.25").replace("}", ', "decimals": 1}'),
            "column a: low 0 or high 9.25 has more than 1 decimals",
        ),
        (DATE.replace("12-31", "13-31"), "low '2020-01-01' or high '2020-13-31' is no date"),
        (TIME.replace("12-31", "12-31T00:00Z"), "high '2020-12-31T00:00Z' is no time"),
        (
            TIME.replace("12-31", "12-31T00:00Z").replace("01-01", "01-01T00:00Z"),
            "column a: low 2020-01-01T00:00Z has a time zone; leave it out, here and in the files",
        ),
        (CHOICE.replace('"x", "y"', ""), "column a: has 0 categories, must have 2 to 10,000"),
        (CHOICE.replace('"y"', '"x"'), "column a: names category 'x' twice"),
        (CHOICE.replace('"y"', '"y "'), "column a: category 'y ': is empty, or has spaces at an"),
        (CHOICE.replace('"y"', '"y\\n"'), "column a: category 'y\\n': is empty, or has spaces"),
    ],
)
def test_what_a_schema_may_not_say(columns: str, says: str, tmp_path: Path) -> None:
    path = file_of(tmp_path, columns)
    with pytest.raises(BadInput, match=re.escape(says)) as refused:
        read_schema(path)
    assert str(refused.value).startswith(f"{path}: ")


def test_files_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "study.json"
    with pytest.raises(BadInput, match=r"cannot be read .*; mdgan schema draft makes one"):
        read_schema(path)
    for content in (b"", b"\xff", b"[" * 10_000, b"[]", msgspec.json.encode({"columns": 1})):
        path.write_bytes(content)
        with pytest.raises(BadInput, match="is no schema"):
            read_schema(path)
    path.write_bytes(b" " * (5 << 20))
    with pytest.raises(BadInput, match="is larger than 4,096 KiB"):
        read_schema(path)
