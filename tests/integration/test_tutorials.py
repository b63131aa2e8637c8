"""The tutorials that one person walks alone, block by block."""

from pathlib import Path

import pytest

from tests.tutorials import TUTORIALS, not_said, walk

ELSEWHERE = {"index", "three-hospitals"}
"""The list of all; and one that several people walk at once, which has its own test."""

SLOW = {"contributor", "lesson", "my-pictures", "notebook", "thousand-clients"}
"""Of two of them each command imports torch anew; three train and draw much."""

WALKS = [
    pytest.param(page, id=page.stem, marks=[pytest.mark.slow] * (page.stem in SLOW))
    for page in sorted(TUTORIALS.glob("*.md"))
    if page.stem not in ELSEWHERE
]


@pytest.mark.parametrize("page", WALKS)
def test_a_tutorial_does_what_it_says(page: Path, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    walk(page, folder)


def test_numbers_that_are_not_measured_must_be_those_of_the_page() -> None:
    said = (
        "rank 1  360 samples\ndone in 1 min 03 s, FID 3.25\ntakes 59 s\nclassifier 1ab2c3, FID 0.5"
    )
    assert not not_said("rank 1 360 samples\ndone in 59 s\n…\n…, FID 17.5", said)
    assert not not_said("takes 1 h 02 min", said)
    assert not not_said("classifier 77ab01, FID 0.682", said)
    assert not_said("rank 1 359 samples", said)
    assert not_said("done in 59 s, KID 2.0", said)
