"""Definitions of a script are written down for processes that have not run it."""

import subprocess
import sys
from pathlib import Path

import pytest

from mdgan.data.dataset_file import import_file
from mdgan.errors import cause_of
from mdgan.interface.dataset_text import text_defining
from tests.processes import environment

SCRIPT = """
import math as mathematics
from fractions import Fraction

from mdgan.interface.dataset_text import text_defining

WIDTH, SCALES = 3, (Fraction(1, 2) < 1, 2.5, "a")
run = object()  # cannot be written down; only a local variable has the same name

def double(x):
    "It says so."
    return 2 * x

class Base:
    offset = WIDTH

    def value(self):
        run = [double(self.offset) for _ in range(2)]
        return sum(run)

class Model(Base):
    def value(self):
        return super().value() + mathematics.floor(SCALES[1]) + Fraction(4, 2)

make = Model
print(text_defining({"Generator": make, "Discriminator": double}))
"""


def printed(script: str, folder: Path) -> str:
    (folder / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return done.stdout


def test_a_scripts_definitions_stand_for_the_same_elsewhere(tmp_path: Path) -> None:
    text = printed(SCRIPT, tmp_path)
    names: dict[str, object] = {"__name__": "elsewhere"}
    exec(text, names)
    model = names["Generator"]
    assert callable(model)
    assert model().value() == 2 * 6 + 2 + 2
    assert names["Discriminator"](4) == 8  # type: ignore[operator] # it is a function
    assert "object" not in text


FAILING = """
from mdgan.interface.dataset_text import text_defining

def decorate(function):
    return function

def main():
    @decorate
    class Model:
        def fail(self):
            return 1 / 0

    def never():
        text = '''
at the left'''
        return text

    return Model, never

model, never = main()
print(text_defining({"Generator": model, "never": never}))
"""


def test_an_error_in_a_definition_names_its_line_in_the_script(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(printed(FAILING, tmp_path))
    names = vars(import_file(tmp_path / "own.py", "test"))
    with pytest.raises(ZeroDivisionError) as raised:
        names["Generator"]().fail()
    assert cause_of(raised.value) == "ZeroDivisionError: division by zero (script.py:11)"
    assert names["never"]() == "\nat the left"


def test_what_lies_in_a_module_is_imported() -> None:
    assert text_defining({"Generator": Path}) == "from pathlib import Path as Generator"


def test_what_cannot_be_written_down_is_named() -> None:
    inner = 3

    def closure() -> int:
        return inner

    for value, why in (
        (closure, "closure uses variables of the function around it"),
        (lambda: 3, "has no source; write it by def or class"),
        (object(), "Generator is of type object; make it in a module"),
    ):
        with pytest.raises(ValueError, match=why):
            text_defining({"Generator": value})
