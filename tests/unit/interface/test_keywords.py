"""The typed keywords of `mdgan.train` are those that are declared."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mdgan.errors import BadInput
from mdgan.interface.settings import merge_file
from mdgan.launch.given import known_settings
from scripts.keywords import FILE, text


def test_the_file_of_keywords_is_that_of_the_declarations() -> None:
    assert set(re.findall(r"^    (\w+): ", text(), re.M)) == known_settings().keys() - {"dataset"}
    formatted = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--stdin-filename", FILE.name, "-"],
        input=text(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert FILE.read_text(encoding="utf-8") == formatted.stdout, (
        "run python -m scripts.keywords; ruff format mdgan"
    )


def test_a_file_of_settings_stands_below_the_keywords(tmp_path: Path) -> None:
    scaled = {"iterations": 9, "dataset": "mnist", "faults": "server:kill@wait:7"}
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"iterations": 3, "swap_epochs": 2, "paper_scale": scaled}))
    given = {"swap_interval": 7, "seed": None}
    assert merge_file(given, path) == ({"swap_interval": 7, "iterations": 3}, "")
    found, faults = merge_file(given, str(path), paper_scale=True)
    assert {**found, "faults": faults} == {"swap_interval": 7, **scaled}
    with pytest.raises(BadInput, match="--paper-scale: is a part of a file"):
        merge_file(given, paper_scale=True)
