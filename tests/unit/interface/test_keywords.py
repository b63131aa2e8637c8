"""The typed keywords of `mdgan.train` are those that are declared."""

import re
import subprocess
import sys

from mdgan.launch.resolve import known_settings
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
    assert FILE.read_text(encoding="utf-8") == formatted.stdout, "run python -m scripts.keywords"
