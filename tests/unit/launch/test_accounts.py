"""Pictures have one account, however they are named, divided, sized and read.

By the calls that `mdgan train` makes before its workers train.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mdgan.data.dataset_file import load
from mdgan.engine.host.held_samples import HeldSamples
from mdgan.errors import BadInput
from mdgan.launch.checked import Checked, prepare
from mdgan.launch.given import Given
from tests.claims.registry import claim
from tests.marks import mostly_slow

pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")

PER_RANK = 6
DP = {"dp_epsilon": 8.0, "dp_delta": 0.001}


def write_pictures(folder: Path, first: int, count: int = PER_RANK) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + count):
        pixels = np.random.default_rng(number).integers(0, 256, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")


def write_dataset(folder: Path, name: str, shape: str) -> None:
    """A copy of the data set of any folder, with another SHAPE."""
    folder.mkdir(exist_ok=True)
    text = load("folder", None).path.read_text(encoding="utf-8")
    (folder / f"{name}.py").write_text(text.replace("= (3, 64, 64)", f"= {shape}", 1), "utf-8")


@pytest.fixture
def ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Checked]:
    """Prepares a run of two workers with pictures of their own, and a ledger for all runs."""
    monkeypatch.chdir(tmp_path)
    for rank in (1, 2):
        write_pictures(tmp_path / "data" / str(rank), 10 * rank)
    write_dataset(tmp_path / "sets", "pictures", "(3, 16, 16)")

    def made(**values: Any) -> Checked:
        usual = {"dataset": "pictures", "datasets_dir": "sets", "data_dir": "data/{rank}"}
        small = {"norm": "group", "batch_size": 3, "iterations": 2, "world_size": 3, "threads": 1}
        run = {"transport": "memory", "eval_interval": 0, "dp_ledger": "ledger", **DP}
        return prepare(Given([{**usual, **small, **run, **values}]))

    return made


def spend_all(prepared: Checked) -> None:
    """Takes as many steps as the run allows."""
    shards = {rank: prepared.shard(rank) for rank in prepared.ranks.workers()}
    samples = HeldSamples(prepared.settings, shards, prepared.contents, prepared.dataset)
    for budget in samples.open_budgets().values():
        while not budget.over:
            budget.key("noise")
            budget.advance()
        budget.close()


def rename() -> dict[str, Any]:
    """Other names and a class, which also bring the pictures in another order."""
    for path in list(Path("data/1").iterdir()):
        path.rename(path.with_name(f"{99 - int(path.stem)}.png"))
    Path("data/1/ants").mkdir()
    Path("data/1/89.png").rename("data/1/ants/89.png")
    return {}


def swap() -> dict[str, Any]:
    Path("data/1/10.png").rename("data/2/10.png")
    Path("data/2/20.png").rename("data/1/20.png")
    return {}


def other_division() -> dict[str, Any]:
    return {"data_dir": "data", "partition": "iid", "seed": 7}


def other_dataset() -> dict[str, Any]:
    write_dataset(Path("sets"), "mine", "(3, 32, 32)")
    return {"dataset": "mine"}


def superset() -> dict[str, Any]:
    write_pictures(Path("data/1"), 50)
    return {}


def one_among_new_ones() -> dict[str, Any]:
    write_pictures(Path("new/1"), 50)
    write_pictures(Path("new/2"), 60)
    Path("data/2/21.png").rename("new/2/21.png")
    return {"data_dir": "new/{rank}"}


@pytest.mark.parametrize(
    "change",
    mostly_slow(
        [rename, swap, other_division, other_dataset, superset, one_among_new_ones],
        [rename, other_dataset, one_among_new_ones],
    ),
)
@claim(
    "goes-on-counting",
    "ε goes on counting through resumes, other seeds, divisions, schemas, targets and picture "
    "sizes.",
)
def test_what_pictures_have_spent_stays_with_them(
    ready: Callable[..., Checked], change: Callable[[], dict[str, Any]]
) -> None:
    assert not any("spent" in line for line in ready().warnings)
    assert not Path("ledger").exists(), "a look writes nothing"
    spend_all(ready())
    given = change()
    line = r"--dp-epsilon 8: the samples of rank \d have spent 8 before \(ledger .*give more than 8"
    with pytest.raises(BadInput, match=line) as refused:
        ready(**given)
    assert "\n" not in str(refused.value)
    more = ready(**{**given, "dp_epsilon": 12.0})
    assert any(re.search(r"have spent 8 before; left: 2 steps", line) for line in more.warnings)
    spend_all(more)
    with pytest.raises(BadInput, match=r"have spent 12 before"):
        ready(**{**given, "dp_epsilon": 12.0})


def test_other_pictures_have_spent_nothing(ready: Callable[..., Checked]) -> None:
    spend_all(ready())
    write_pictures(Path("new/1"), 50)
    write_pictures(Path("new/2"), 60)
    assert not any("spent" in line for line in ready(data_dir="new/{rank}").warnings)


@claim("unit", "Two workers of one machine that share a unit are refused.")
def test_two_workers_with_a_picture_in_common_are_refused(ready: Callable[..., Checked]) -> None:
    Path("data/2/again.png").write_bytes(Path("data/1/10.png").read_bytes())
    message = r"--dp-epsilon 8: ranks 1 and 2 hold the same samples \(1 of them\), .*of its own"
    with pytest.raises(BadInput, match=message):
        ready()


@claim("unit", "A unit is a sample, with all that equal it: copies of a picture, equal rows.")
def test_a_picture_that_a_worker_has_twice_is_told(ready: Callable[..., Checked]) -> None:
    for name in ("again", "once-more"):
        Path(f"data/2/{name}.png").write_bytes(Path("data/2/20.png").read_bytes())
    (line,) = [line for line in ready().warnings if "count as one" in line]
    assert "those of rank 2 as 6, since 2 are further ones" in line
