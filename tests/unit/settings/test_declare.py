"""How settings are declared, read, checked and written."""

import json
from typing import Any, Literal, NamedTuple

import pytest

from mdgan.errors import BadInput
from mdgan.settings.declare import (
    Settings,
    number,
    one_of,
    parsed,
    setting,
    shortest,
    suggest,
    switch,
    text,
    whole,
)
from mdgan.settings.layers import merged
from tests.unit.settings.refusals import refusal, refused


class Crop(NamedTuple):
    """A value that is written as text."""

    width: int
    height: int

    def __str__(self) -> str:
        return f"{self.width}x{self.height}"


def parse_crop(values: str) -> Crop:
    width, _, height = values.partition("x")
    if not (width.isdecimal() and height.isdecimal()):
        raise ValueError("must be WIDTHxHEIGHT")
    return Crop(int(width), int(height))


class Film(Settings):
    """The settings of one component."""

    speed: int = setting(100, "How fast.", whole(25, 3200), metavar="ISO")
    frames: int | Literal["all"] = setting("all", "How many.", whole(1, word="all"))
    gain: float = setting(1.0, "How bright.", number(lambda gain: gain > 0, "must be above 0"))
    rolls: int = setting(1, "Rolls.", whole(0, otherwise="must be 0 or more"))


class Camera(Film):
    """A component that has those of another one too."""

    crop: Crop = setting("6x7", "What is seen.", parsed(parse_crop))
    mode: str = setting("still", "What is taken.", one_of("still", "moving"))
    silent: bool = setting(False, "No noise.", switch(), shared=False)
    owner: str | None = setting(None, "Whose it is.", text(), shared=False)
    minutes: float | None = setting(
        None, "For how long.", number(lambda _: True, ""), instead_of="shots"
    )
    shots: int | None = setting(None, "How often.", whole(1))

    def check(self) -> None:
        super().check()
        if self.mode == "moving" and self.silent:
            raise BadInput("--silent: not with --mode moving")


def test_values_are_read_into_the_types_that_are_used() -> None:
    made = Camera.read({"crop": "4x5", "gain": 2, "frames": 3, "owner": "Ada"})
    assert made == Camera.read({"crop": Crop(4, 5), "gain": 2.0, "frames": 3, "owner": "Ada"})
    assert isinstance(made.crop, Crop)
    assert type(made.gain) is float
    assert Camera().crop == Crop(6, 7)
    assert Camera().frames == "all"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("speed", 24, "--speed 24: must be at least 25"),
        ("speed", 3201, "--speed 3201: at most 3,200"),
        ("speed", "100", '--speed "100": must be a whole number'),
        ("speed", 100.0, "--speed 100.0: must be a whole number"),
        ("speed", True, "--speed true: must be a whole number"),
        ("speed", [], "--speed []: must be a whole number"),
        ("speed", None, "--speed null: must be a whole number"),
        ("frames", 0, "--frames 0: must be at least 1, or all"),
        ("frames", "some", '--frames "some": must be a whole number or all'),
        ("gain", 0, "--gain 0.0: must be above 0"),
        ("gain", float("nan"), "--gain nan: must be above 0"),
        ("gain", "1", '--gain "1": must be a number'),
        ("gain", False, "--gain false: must be a number"),
        ("gain", 10**400, f"--gain {10**400}: too large a number"),
        ("rolls", -1, "--rolls -1: must be 0 or more"),
        ("crop", "wide", "--crop wide: must be WIDTHxHEIGHT"),
        ("crop", 6, "--crop 6: must be text"),
        ("crop", ["6x7"], '--crop ["6x7"]: must be text'),
        ("crop", "6\n7", "--crop 6 7: has control characters in it"),
        ("mode", "slow", "--mode slow: must be one of still, moving"),
        ("mode", None, "--mode None: must be one of still, moving"),
        ("silent", 1, "--silent 1: must be true or false"),
        ("owner", 7, "--owner 7: must be text"),
        ("owner", "a\x00b", "--owner a b: has control characters in it"),
        ("owner", "half \ud800", "--owner half  : has control characters in it"),
        ("shots", 0, "--shots 0: must be at least 1"),
    ],
)
def test_what_cannot_be_used_is_refused(name: str, value: Any, message: str) -> None:
    assert refusal(Camera, {name: value}) == message


def test_settings_that_contradict_each_other_are_refused() -> None:
    assert refusal(Camera, {"mode": "moving", "silent": True}) == "--silent: not with --mode moving"
    assert refusal(Camera, {"minutes": 2, "shots": 3}) == (
        "--minutes 2.0 and --shots 3: give one of them"
    )


def test_the_first_layer_that_names_a_setting_wins() -> None:
    flags, file, defaults = {"speed": 50, "gain": None}, {"gain": 2.0, "speed": 25}, {"rolls": 9}
    made = Camera.read(flags, file, defaults)
    assert (made.speed, made.gain, made.rolls, made.mode) == (50, 2.0, 9, "still")


def test_other_names_are_passed_over() -> None:
    assert Camera.read({"shutter": "quick", "speed": 50}) == Camera(speed=50)


@pytest.mark.parametrize(
    ("layers", "minutes", "shots"),
    [
        (({"shots": 5}, {"minutes": 2.0}), None, 5),
        (({"minutes": 2.0}, {"shots": 5}), 2.0, None),
        (({"shots": None}, {"minutes": 2.0}), 2.0, None),
        (({"shots": None}, {"minutes": 2.0}, {"shots": 5}), 2.0, None),
        (({}, {"shots": 7}, {"shots": 5}), None, 7),
    ],
)
def test_two_settings_that_say_the_same_are_one_choice(
    layers: tuple[dict[str, Any], ...], minutes: float | None, shots: int | None
) -> None:
    made = Camera.read(*layers)
    assert (made.minutes, made.shots) == (minutes, shots)


def test_of_one_layer_both_are_kept_so_that_they_are_refused() -> None:
    both = {"minutes": 2.0, "shots": 5}
    assert merged([{}, both], Camera.declared().values()) == both
    assert "give one of them" in refused(lambda: Camera.read({}, both))


def test_settings_are_written_as_json_and_read_back() -> None:
    made = Camera.read({"crop": "4x5", "frames": 3, "minutes": 0.1, "silent": True})
    written = json.loads(json.dumps(made.as_json()))
    assert written["crop"] == "4x5"
    assert written.keys() == Camera.names()
    assert Camera.read(written) == made
    assert made.but() == made


def test_what_may_differ_from_rank_to_rank_is_left_out() -> None:
    shared = Camera(owner="Ada", silent=True).as_json(shared=True)
    assert shared == Camera().as_json(shared=True)
    assert Camera.names() - shared.keys() == {"owner", "silent"}


def test_suggestions_are_near() -> None:
    known = ["batch_size", "seed"]
    assert suggest("batch_sise", known) == "; did you mean 'batch_size'?"
    assert suggest("MNIST", ("mnist", "Own")) == "; did you mean 'mnist'?"
    assert suggest("own", ("mnist", "Own")) == "; did you mean 'Own'?"
    assert suggest("qqqqqq", known) == ""


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (3.0, "3"),
        (0.5, "0.5"),
        (1e-5, "0.00001"),
        (1e6, "1000000"),
        (0.1 + 0.2, "0.30000000000000004"),
    ],
)
def test_numbers_are_written_shortly(value: float, written: str) -> None:
    assert shortest(value) == written
