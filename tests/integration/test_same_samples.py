"""A run keeps its schema and its samples; it reports or refuses what has changed since."""

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mdgan.samples.table.schema import read_schema
from tests.gallery import Gallery
from tests.processes import MDGAN, Finished, check_refused, finish, run_here, start

SCHEMA = {
    "columns": [
        {"kind": "number", "name": "a", "low": 0, "high": 50, "decimals": 2},
        {"kind": "number", "name": "b", "low": 0, "high": 50, "decimals": 2},
        {"kind": "ordered", "name": "grade", "categories": ["low", "mid", "high"]},
        {"kind": "yes_no", "name": "y"},
    ]
}
QUICK = [
    *("--threads", "1", "--width", "8", "--batch-size", "8", "--transport", "memory"),
    *("--sample-interval", "0", "--eval-interval", "0"),
]
TABLE = [
    *("train", "--dataset", "table", "--schema", "study.json", "--target", "y", *QUICK),
    *("--world-size", "3", "--iterations", "4"),
]


def rows(seed: int, number: int = 40) -> list[str]:
    """Rows of which none equals another."""
    draw = random.Random(seed)
    return [
        f"{draw.uniform(2, 8):.2f},{draw.uniform(2, 8):.2f},{draw.choice(['low', 'mid', 'high'])},"
        f"{('no', 'yes')[n % 2]}"
        for n in range(number)
    ]


def write(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(["a,b,grade,y", *lines]) + "\n")


def five_times_b(line: str) -> str:
    a, b, *rest = line.split(",")
    return ",".join([a, f"{5 * float(b):.2f}", *rest])


@pytest.fixture(scope="session")
def begun(gallery: Gallery) -> Path:
    """A run with two sites of 40 rows, and one whose rows are divided, with checkpoints of 4."""

    def make(folder: Path) -> None:
        (folder / "study.json").write_text(json.dumps(SCHEMA))
        for site in (1, 2):
            write(folder / f"site-{site}.csv", rows(site))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_STATE_HOME", str(folder / "state"))
            for name, data in (("run", "site-{rank}.csv"), ("divided", "site-1.csv")):
                flags = ["--data-dir", data, "--out", name, "--checkpoint-interval", "4"]
                assert run_here(*TABLE, *flags, cwd=folder).status == 0

    return gallery.show("begun-tables", make)


@pytest.fixture
def here(begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it on the same machine."""
    monkeypatch.setenv("XDG_STATE_HOME", str(begun / "state"))
    shutil.copytree(begun, tmp_path / "copy")
    return tmp_path / "copy"


def go_on(here: Path, run: str = "run", *flags: str) -> Finished:
    return run_here("train", "--resume", run, "--iterations", "5", *flags, cwd=here)


def test_without_a_change_nothing_is_said(here: Path) -> None:
    done = go_on(here)
    assert done.status == 0, done
    assert "changed" not in done.errors
    (here / "study.json").write_text(json.dumps({**SCHEMA}, indent=4))  # laid out otherwise
    bytes_before = (here / "run/dataset/schema.json").read_bytes()
    assert (
        "changed"
        not in run_here(
            *("train", "--resume", "run", "--iterations", "6", "--schema", "study.json"), cwd=here
        ).errors
    )
    assert (here / "run/dataset/schema.json").read_bytes() == bytes_before


@pytest.mark.parametrize(
    ("was", "is_now"),
    [
        ('"high": 50', '"high": 60'),
        ('["low", "mid", "high"]', '["high", "mid", "low"]'),
        ('"decimals": 2', '"decimals": 3'),
        ('"kind": "ordered"', '"kind": "category"'),
        ('"name": "y"', '"name": "y", "yes": "no", "no": "yes"'),
    ],
)
@pytest.mark.parametrize("flags", [[], ["--schema", "study.json"]])
def test_another_schema_is_refused_with_both_hashes(
    was: str, is_now: str, flags: list[str], here: Path
) -> None:
    bytes_before = (here / "run/dataset/schema.json").read_bytes()
    before = read_schema(here / "study.json").sha256
    text = json.dumps(SCHEMA)
    assert was in text
    (here / "study.json").write_text(text.replace(was, is_now))
    after = read_schema(here / "study.json").sha256
    refused = go_on(here, "run", *flags)
    check_refused(
        refused, f"--schema study.json: is another schema (sha256 {after}) than that of run"
    )
    assert f"(sha256 {before}); give run/dataset/schema.json, or start" in refused.errors
    again = [*TABLE, "--data-dir", "site-{rank}.csv", "--resume-or-start", "run"]
    check_refused(run_here(*again, cwd=here), "--schema study.json: is another schema")
    assert (here / "run/dataset/schema.json").read_bytes() == bytes_before


def test_a_run_needs_no_schema_but_its_own(here: Path) -> None:
    (here / "study.json").unlink()
    check_refused(go_on(here, "run", "--schema", "other.json"), "other.json: cannot be read")
    check_refused(go_on(here, "run", "--target", "grade"), "run was trained with --target y")
    counted = (here / "run/encoding.safetensors").read_bytes()
    done = go_on(here)
    assert done.status == 0, done
    assert (here / "run/encoding.safetensors").read_bytes() == counted


def test_rows_that_have_changed_are_counted(here: Path) -> None:
    counted = (here / "run/encoding.safetensors").read_bytes()
    for site in (1, 2):
        write(here / f"site-{site}.csv", [*map(five_times_b, rows(site))])
    output = go_on(here).errors
    assert "warning: --data-dir site-{rank}.csv: samples here have changed since the run" in output
    assert "began: 80 are new and 80 of 80 gone" in output
    assert (here / "run/encoding.safetensors").read_bytes() == counted


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([*rows(1)[3:], *rows(7, 2)], "2 are new and 3 of 80 gone"),
        ([*rows(1), rows(1)[0]], "1 are new and 0 of 80 gone"),
        ([line.replace("yes", "no") for line in rows(1)], "20 are new and 20 of 80 gone"),
        (rows(1)[::-1], ""),
        ([line.replace(".10,", ".1,") for line in rows(1)], ""),
    ],
    ids=["some", "twice", "relabelled", "reordered", "rewritten"],
)
def test_changes_are_those_of_what_rows_say(lines: list[str], says: str, here: Path) -> None:
    write(here / "site-1.csv", lines)
    done = go_on(here)
    assert done.status == 0, done
    assert says in done.errors
    assert bool(says) == ("samples here have changed" in done.errors)


def test_rows_that_are_divided_anew_are_counted(here: Path) -> None:
    write(here / "site-1.csv", rows(1)[1:])
    output = go_on(here, "divided").errors
    assert "0 are new and 1 of 40 gone; " in output
    assert "others have another worker, as the data are divided anew" in output
    write(here / "site-1.csv", rows(1)[::-1])
    output = run_here("train", "--resume", "divided", "--iterations", "6", cwd=here).errors
    assert "since the run began: " in output
    assert " samples have another worker, as the data are divided anew" in output


def test_what_is_remembered_tells_nothing_to_others(here: Path, tmp_path: Path) -> None:
    files = sorted((here / "run/known").iterdir())
    assert [file.name for file in files] == ["1.bin", "2.bin"]
    assert all(file.stat().st_mode & 0o77 == 0 for file in files)
    flags = ["--data-dir", "site-{rank}.csv", "--out", "again", "--checkpoint-interval", "4"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path / "another-machine"))
        assert run_here(*TABLE, *flags, cwd=here).status == 0
        known = (here / "again/known/1.bin").read_bytes()
        one, other = (np.frombuffer(each, np.uint64) for each in (known, files[0].read_bytes()))
        assert len(one) == len(other) == 42
        assert not set(one.tolist()) & set(other.tolist())
        write(here / "site-1.csv", rows(5))
        assert "changed" not in go_on(here).errors  # another machine cannot tell


@pytest.mark.parametrize("keep", [0, 19, -3])
def test_what_is_damaged_is_remembered_anew(keep: int, here: Path) -> None:
    file = here / "run/known/1.bin"
    whole = file.read_bytes()
    file.write_bytes(whole[:keep])
    assert "changed" not in go_on(here).errors
    assert file.read_bytes() == whole


def test_what_cannot_be_remembered_is_told(here: Path) -> None:
    shutil.rmtree(here / "run/known")
    (here / "run/known").write_text("no folder")
    assert "warning: changed samples cannot be told: " in go_on(here).errors


def picture(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 255, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def test_pictures_that_have_changed_or_were_trained_on_are_counted(tmp_path: Path) -> None:
    for n in range(24):
        picture(tmp_path / f"data/{'ab'[n % 2]}/{n}.png", n)
        picture(tmp_path / f"held/{'ab'[n % 2]}/{n}.png", n if n < 3 else 100 + n)
    flags = [
        *("train", "--dataset", "folder", "--data-dir", "data", "--held-out", "held", *QUICK[4:]),
        *("--world-size", "3", "--iterations", "2", "--checkpoint-interval", "2", "--out", "run"),
        *("--threads", "1", "--batch-size", "8", "--partition", "iid"),
    ]
    done = run_here(*flags, cwd=tmp_path)
    assert done.status == 0, done
    assert "warning: --held-out held: 3 of 24 held-out samples are trained on, too" in done.errors
    picture(tmp_path / "data/a/0.png", 77)
    (tmp_path / "data/b/1.png").rename(tmp_path / "data/b/99.png")
    done = run_here("train", "--resume", "run", "--iterations", "3", cwd=tmp_path)
    assert done.status == 0, done
    assert "samples here have changed since the run began: 1 are new and 1 of 24 gone" in (
        done.errors
    )
    check_refused(
        run_here("audit", "run", "-n", "100", "--steps", "0", cwd=tmp_path),
        "run: 2 of 24 held-out samples are trained on, too, so no attack can be judged",
    )
    for n in range(24):
        saved = tmp_path / f"again/{n}.bmp"
        picture(saved, n if n > 19 else 200 + n)
    check_refused(
        run_here("audit", "run", "-n", "100", "--steps", "0", "--held-out", "again", cwd=tmp_path),
        "run: 4 of 24 held-out samples are trained on, too, so no attack can be judged",
    )


@pytest.mark.parametrize(
    ("held_out", "says"),
    [
        (rows(1), "40 of 40"),
        ([*rows(8, 30), *rows(2)[:10]], "10 of 40"),
        (rows(1)[::-1] + rows(9), "40 of 80"),
        (rows(9), ""),
    ],
    ids=["all", "some", "among others", "none"],
)
def test_held_out_rows_that_were_trained_on_judge_nothing(
    held_out: list[str], says: str, here: Path
) -> None:
    write(here / "held-out.csv", held_out)
    dry = run_here(
        *(*TABLE, "--data-dir", "site-{rank}.csv", "--held-out", "held-out.csv", "--dry-run"),
        cwd=here,
    )
    assert dry.status == 0, dry
    assert (f"--held-out held-out.csv: {says} held-out samples are trained on" in dry.errors) == (
        bool(says)
    )
    options = ["--held-out", "held-out.csv"]
    audited = run_here("audit", "run", "-n", "100", "--steps", "0", *options, cwd=here)
    released = run_here("release", "run", "-o", "bundle", "--dry-run", *options, cwd=here)
    if says:
        refusal = f"run: {says} held-out samples are trained on, too, so no attack can be judged"
        check_refused(audited, refusal)
        check_refused(released, refusal)
    else:
        assert audited.status == 0, audited
        assert "held-out samples are" not in released.errors + released.output
    assert not (here / "bundle").exists()


def test_a_site_elsewhere_is_told_of_its_own_rows_and_no_other(tmp_path: Path, port: int) -> None:
    server, site = tmp_path / "server", tmp_path / "site"
    for folder in (server, site):
        folder.mkdir()
        (folder / "study.json").write_text(json.dumps(SCHEMA))
    write(site / "rows.csv", rows(1))
    flags = [*MDGAN, *TABLE[:-4], "--world-size", "2", "--iterations", "4", "--master-port"]
    flags = [each for each in flags if each not in ("--transport", "memory")] + [str(port)]
    took = ["--ranks", "1", "--data-dir", "rows.csv"]

    def train(*of_server: str) -> tuple[Finished, Finished]:
        both = (
            start([*flags, "--ranks", "0", "--checkpoint-interval", "4", *of_server], server),
            start([*flags, *took], site),
        )
        first, second = map(finish, both)
        assert (first.status, second.status) == (0, 0), (first, second)
        return first, second

    train("--out", "run")
    write(site / "rows.csv", [*rows(1)[3:], *rows(7, 2)])
    flags[flags.index("--iterations") + 1] = "8"
    first, second = train("--resume", "run")
    assert "warning: --data-dir rows.csv: samples here have changed since the run" in second.errors
    assert "2 are new and 3 of 40 gone" in second.errors
    assert "changed" not in first.errors
    assert not [*server.glob("run/known/*")]
