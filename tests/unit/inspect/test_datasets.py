"""Names of classes that are no UTF-8 are drawn with a placeholder."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mdgan.inspect.datasets import draw_partition
from mdgan.report.figures.charts import some_names

NAMES = [b"latin\xfc", b"\xff\xfe", b"bell\x07", b"ok"]


@pytest.mark.skipif(sys.platform != "linux", reason="file names there are UTF-8")
def test_class_folders_of_other_bytes(tmp_path: Path) -> None:
    for name in NAMES:
        folder = tmp_path / "pictures" / os.fsdecode(name)
        folder.mkdir(parents=True)
        for number in range(4):
            Image.fromarray(np.full((16, 16, 3), 60 * number, np.uint8)).save(
                folder / f"{number}.png"
            )
    for suffix in ("png", "svg"):
        output = tmp_path / f"drawn.{suffix}"
        pictures = str(tmp_path / "pictures")
        draw_partition("folder", None, pictures, "iid", num_workers=2, seed=1, output=output)
        assert output.stat().st_size > 1000


def test_names_in_figures() -> None:
    shown: list[str] = []
    some_names(lambda places, names: shown.extend(names), list(map(os.fsdecode, NAMES)))
    assert shown == ["latin?", "??", "bell?", "ok"]


def test_a_title_longer_than_the_heat_map_is_not_cut(tmp_path: Path) -> None:
    output = tmp_path / "drawn.png"
    draw_partition("breast-cancer", None, None, "iid", num_workers=2, seed=1, output=output)
    with Image.open(output) as picture:
        grey = np.asarray(picture.convert("L"))
    assert grey[:, :3].min() == grey[:, -3:].min() == 255
