"""Commands that are refused: one line that names the value, exit status 2, and nothing written."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from mdgan.cli import main


def check_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], flags: Sequence[str], says: Sequence[str]
) -> None:
    """`mdgan train --out run` with these flags, in the current folder, says all of `says`."""
    with pytest.raises(SystemExit) as ended:
        main(["train", "--out", "run", *flags])
    line = capsys.readouterr().err
    assert ended.value.code == 2, line
    assert line.count("\n") == 1, line
    for part in says:
        assert part in line
    assert not Path("run").exists()
