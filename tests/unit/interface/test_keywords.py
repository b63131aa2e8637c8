"""The typed keywords of `mdgan.train` are those that are declared."""

import subprocess
import sys
from typing import get_type_hints

from mdgan.interface.keywords import Keywords
from mdgan.launch.resolve import known_settings
from scripts.keywords import FILE, text


def test_the_file_of_keywords_is_that_of_the_declarations() -> None:
    assert set(get_type_hints(Keywords)) == known_settings().keys() - {"dataset"}
    formatted = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "-"],
        input=text(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert FILE.read_text(encoding="utf-8") == formatted.stdout, "run python -m scripts.keywords"
