"""A study: its hash, what a person reads about it, its job's folder, and a site's file."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mdgan.data.find import shipped_folder
from mdgan.errors import BadInput
from mdgan.launch.given import known_settings
from mdgan.launch.site_file import SiteFile, digest_of
from mdgan.nvflare.study import Job, Study
from tests.claims.registry import claim
from tests.processes import run_here

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
    """A study with a dataset file, which leaves a file `ran` behind wherever it runs."""
    Path("mine").mkdir()
    text = (shipped_folder() / "digits.py").read_text()
    Path("mine/own.py").write_text(f"{text}\nopen({str(Path.cwd() / 'ran')!r}, 'w').close()\n")
    made = study(dataset="own", datasets_dir="mine")
    Path("ran").unlink()
    return made


def config(folder: Path = FOLDER) -> Path:
    return folder / "app" / "config"


def job(folder: Path = FOLDER) -> Job:
    return Job.read(config(folder))


def words_of(made: Study) -> str:
    """What `mdgan approve` prints of its job."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    made.write_job(FOLDER, "study")
    return "\n".join(job().in_words())


def site(**content: Any) -> SiteFile:
    Path("mdgan.json").write_text(json.dumps(content))
    return SiteFile.read(Path("mdgan.json"))


def test_the_hash_follows_what_all_agree_on_and_nothing_else() -> None:
    first = study(seed=1).digest
    assert study(seed=1, eval_interval=7, threads=2).digest == first
    assert len({first, study(seed=2).digest, study(seed=1, world_size=5).digest}) == 3
    assert study(seed=1, dataset="breast-cancer").digest != first


def test_words_say_what_a_site_would_take_part_in() -> None:
    words = words_of(table())
    for told in (
        "moments",
        "3 workers",
        "smokes, ill",
        "ε 1.0, δ 1e-05, for each sample",
        "one sum",
    ):
        assert told in words
    assert "of three sites or more" in words
    open_words = words_of(study())
    assert "none: what leaves can tell of single samples" in open_words
    assert "the server sees each answer" in open_words
    assert "own.py runs at each site" in words_of(own_dataset())


@claim(
    "nvflare-job",
    "The job carries settings, schema and your dataset file, but no key, folder, device or port.",
)
def test_a_job_carries_settings_schema_and_dataset_file() -> None:
    made = table()
    made.write_job(FOLDER, "study")
    result = job()
    assert result.asked == made.asked
    assert result.settings()["schema"] == str(result.config / "schema.json")
    own_dataset().write_job(Path("other"), "other")
    assert Path(job(Path("other")).files()["datasets_dir"], "own.py").is_file()
    with pytest.raises(BadInput, match="is there already"):
        made.write_job(FOLDER, "study")
    for folder, more in ((FOLDER, {"schema.json"}), (Path("other"), {"own.py"})):
        names = {path.name for path in folder.rglob("*") if path.is_file()}
        server, site = "config_fed_server.json", "config_fed_client.json"
        assert names == {"meta.json", server, site, "server.json", "asked.json"} | more
        for path in folder.rglob("*.json"):
            assert str(Path.cwd()) not in path.read_text()
        machine = {x for x, setting in known_settings().items() if not setting.shared}
        kinds = {known_settings()[x].metavar for x in machine & job(folder).settings().keys()}
        assert kinds <= {None, "N", "N|auto", "SECONDS", "FRACTION", "K", "FILE", "DIR"}
        assert not kinds & {"FILE", "DIR"} - ({"FILE"} if more == {"schema.json"} else {"DIR"})


@pytest.mark.parametrize("name", ["credentials", "data_dir", "out", "device", "dp_ledger"])
def test_a_study_says_nothing_of_a_machine(name: str) -> None:
    with pytest.raises(BadInput, match=f"--{name.replace('_', '-')} cuda"):
        study(**{name: "cuda"})


def set_asked(**changes: Any) -> None:
    asked = json.loads((config() / "asked.json").read_text())
    kept = {name: value for name, value in {**asked, **changes}.items() if value is not ...}
    (config() / "asked.json").write_text(json.dumps(kept))


def program() -> Path:
    return config() / "datasets" / "own.py"


def link_program() -> None:
    program().unlink()
    program().symlink_to("/etc/passwd")


CHANGES: dict[str, Callable[[], object]] = {
    "another program": lambda: program().write_text(program().read_text() + "# more\n"),
    "no program": lambda: shutil.rmtree(program().parent),
    "the program under another name": lambda: program().rename(program().with_name("digits.py")),
    "a second program": lambda: shutil.copy(program(), program().with_name("a.py")),
    "a module beside it": lambda: program().with_name("torch.py").touch(),
    "a folder beside it": lambda: program().with_name("__pycache__").mkdir(),
    "a program that is a link": link_program,
    "a path as name": lambda: set_asked(dataset="../datasets/own"),
    "a shipped data set's name": lambda: set_asked(dataset="digits"),
    "no setting of privacy": lambda: set_asked(dp_epsilon=...),
    "a number as text": lambda: set_asked(seed="0"),
    "another type": lambda: set_asked(world_size=[4]),
    "lines that look like others": lambda: set_asked(target="ill\nprivacy    ε 0.1"),
    "an empty study": lambda: (config() / "asked.json").write_text("{}"),
    "no object": lambda: (config() / "asked.json").write_text("[" * 100_000),
    "another version": lambda: set_asked(version="0.1"),
}


@claim("nvflare-look", "mdgan approve runs no code of the job.")
@pytest.mark.parametrize("change", [None, *CHANGES])
def test_a_job_that_was_changed_is_refused_and_no_code_of_it_runs(change: str | None) -> None:
    own_dataset().write_job(FOLDER, "study")
    site()
    if change is not None:
        CHANGES[change]()
    looked = run_here("approve", str(FOLDER), "--site", "mdgan.json", cwd=Path.cwd())
    assert looked.status == (0 if change is None else 2), looked
    assert looked.errors.count("\n") == (change is not None)
    assert not Path("ran").exists()
    assert (SiteFile.read(Path("mdgan.json")).approved is None) == (change is not None)


@pytest.mark.parametrize(
    "columns",
    [
        [{"kind": "yes_no", "name": "smokes"}],
        [{"kind": "yes_no", "name": "ill"}, {"kind": "yes_no", "name": "smokes"}],
    ],
)
def test_another_schema_is_not_that_of_the_hash(columns: list[dict[str, str]]) -> None:
    table().write_job(FOLDER, "study")
    (config() / "schema.json").write_text(json.dumps({"columns": columns}))
    with pytest.raises(BadInput, match=r"schema\.json: is not what the job's hash is of"):
        job()


@claim(
    "nvflare-hash",
    "The hash covers every setting of training, the schema and the dataset file; what concerns the "
    "server's machine alone (server.json) is not in it.",
)
def test_rank_0_trains_with_what_the_hash_covers() -> None:
    made = table()
    made.write_job(FOLDER, "study")
    result = job()
    trained = {x: y for x, y in result.settings().items() if known_settings()[x].shared}
    shared = {name for name, setting in known_settings().items() if setting.shared}
    assert trained.keys() == shared & made.asked.keys()
    for name in (*trained, "version", "schema_sha256", "dataset_sha256", "extractor"):
        assert digest_of({**made.asked, name: "another"}) != made.digest
    assert result.settings().keys() - trained.keys() == {"schema"}
    for name in ("iterations", "listen", "credentials", "init_from", "Seed", "seed\n", ""):
        (config() / "server.json").write_text(json.dumps({name: 1}))
        with pytest.raises(BadInput, match=r"server\.json: a job cannot say"):
            result.settings()
    (config() / "server.json").write_text('{"quorum": 0.5}')
    assert job().digest == made.digest
    assert job().settings()["quorum"] == 0.5


@claim(
    "nvflare-program",
    "but in no study with its author's dataset file: the server and all sites have to approve "
    "that.",
)
def test_a_program_runs_only_where_it_was_approved() -> None:
    own_dataset().write_job(FOLDER, "study")
    with pytest.raises(BadInput, match=r"brings a program, own\.py.*mdgan approve"):
        job().check_approved(site())
    with pytest.raises(BadInput, match="not among those"):
        job().check_approved(site(approved=["0" * 64]))
    job().check_approved(site(approved=[job().digest]))


@claim("nvflare-approved", "A site refuses any study whose hash is not in approved")
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
