"""A study: its hash, what a person reads about it, its job's folder, and a site's file."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mdgan.data.find import shipped_folder
from mdgan.errors import BadInput
from mdgan.launch.site_file import SiteFile
from mdgan.nvflare.study import Job, Study

FOLDER = Path("study-job")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def study(**settings: Any) -> Study:
    Path("study.json").write_text(json.dumps({"world_size": 4, **settings}))
    return Study.read(Path("study.json"))


def table() -> Study:
    columns = [{"kind": "yes_no", "name": name} for name in ("smokes", "ill")]
    Path("schema.json").write_text(json.dumps({"columns": columns}))
    changes = {"dataset": "table", "schema": "schema.json", "target": "ill", "dp_delta": 1e-5}
    return study(algorithm="moments", dp_epsilon=1, secure_aggregation=True, **changes)


def own_dataset() -> Study:
    Path("mine").mkdir()
    shutil.copy(shipped_folder() / "digits.py", "mine/own.py")
    return study(dataset="own", datasets_dir="mine")


def job(folder: Path = FOLDER) -> Job:
    return Job(folder / "app" / "config", folder / "app" / "custom")


def site(**content: Any) -> SiteFile:
    Path("mdgan.json").write_text(json.dumps(content))
    return SiteFile.read(Path("mdgan.json"))


def test_the_hash_follows_what_all_agree_on_and_nothing_else() -> None:
    first = study(seed=1).digest
    assert study(seed=1, eval_interval=7, threads=2).digest == first
    assert len({first, study(seed=2).digest, study(seed=1, world_size=5).digest}) == 3
    assert study(seed=1, dataset="breast-cancer").digest != first


def test_words_say_what_a_site_would_take_part_in() -> None:
    words = "\n".join(table().in_words())
    for told in (
        "moments",
        "3 workers",
        "smokes, ill",
        "ε 1.0, δ 1e-05, for each sample",
        "one sum",
    ):
        assert told in words
    assert "of three sites or more" in words
    open_words = "\n".join(study().in_words())
    assert "none: what leaves can tell of single samples" in open_words
    assert "the server sees each answer" in open_words
    assert "own.py runs at each site" in "\n".join(own_dataset().in_words())


def test_a_job_carries_settings_schema_and_dataset_file() -> None:
    made = table()
    made.write_job(FOLDER, "study")
    result = job()
    assert result.asked() == made.asked
    assert result.settings()["schema"] == str(result.config / "schema.json")
    own_dataset().write_job(Path("other"), "other")
    assert Path(job(Path("other")).files()["datasets_dir"], "own.py").is_file()
    with pytest.raises(BadInput, match="is there already"):
        made.write_job(FOLDER, "study")


@pytest.mark.parametrize("name", ["credentials", "data_dir", "out", "device", "dp_ledger"])
def test_a_study_says_nothing_of_a_machine(name: str) -> None:
    with pytest.raises(BadInput, match=f"--{name.replace('_', '-')} cuda"):
        study(**{name: "cuda"})


def test_a_job_that_was_changed_is_refused() -> None:
    own_dataset().write_job(FOLDER, "study")
    result, program = job(), FOLDER / "app" / "custom" / "datasets" / "own.py"
    program.write_text(program.read_text() + "# more\n")
    with pytest.raises(BadInput, match=r"own\.py: is not what the job's hash is of"):
        result.asked()
    shutil.rmtree(program.parent)
    changed = {**result.asked(), "version": "0.1"}
    (result.config / "asked.json").write_text(json.dumps(changed))
    with pytest.raises(BadInput, match=r"for mdgan 0\.1.*install the same version"):
        result.asked()
    (result.config / "study.json").write_text('{"listen": "0.0.0.0"}')
    with pytest.raises(BadInput, match="--listen"):
        result.settings()


def test_a_site_takes_part_in_what_it_approved() -> None:
    asked = study(seed=1)
    site().check_asked(asked.asked)  # it has no list
    own = site(approved=[], credentials="own.cred", runs="kept", data_dir="/data/{rank}")
    assert own.settings == {"credentials": f"{Path.cwd()}/own.cred", "data_dir": "/data/{rank}"}
    assert own.runs == Path.cwd() / "kept"
    with pytest.raises(BadInput, match=f"{asked.digest[:16]}.*mdgan approve"):
        own.check_asked(asked.asked)
    own.approve(asked.digest)
    again = SiteFile.read(own.path)
    again.check_asked(asked.asked)
    again.check_asked({**asked.asked, "data_sha256": "of these samples"})
    assert again.settings == own.settings
    with pytest.raises(BadInput, match="not among those"):
        again.check_asked({**asked.asked, "seed": 2})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"ranks": "1,2"}, "a site has one worker"),
        ({"seed": 1}, "not the site's choice"),
        ({"master_addr": "10.0.0.1"}, "not the site's choice"),
        ({"devices": "cuda"}, "did you mean"),
        ({"approved": "all"}, "is no file of a site"),
        ({"require": "epsilon<=none"}, "--require"),
    ],
)
def test_a_wrong_file_of_a_site_is_refused(content: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        site(**content)
