"""The first hour of a user: hosts that cannot join, small sites, starts that fail."""

import re
import time
from pathlib import Path

import pytest

from mdgan.errors import BadInput
from mdgan.samples.table import kind
from mdgan.samples.table.schema import schema_text
from tests.processes import (
    MDGAN,
    QUICK,
    Process,
    check_refused,
    finish,
    read_metrics,
    run_here,
    start,
    wait_until,
)
from tests.unit.launch.table_sites import STUDY, write_site

TABLE = ["--dataset", "table", "--schema", "study.json"]
LONG = ["--set", "connect_timeout=80"]


@pytest.fixture
def study(tmp_path: Path) -> Path:
    (tmp_path / "study.json").write_text(schema_text(STUDY))
    header, *rows = write_site(tmp_path, 45).read_text().splitlines()
    for name, own in (("s1.csv", rows[:40]), ("s2.csv", rows[40:])):
        (tmp_path / name).write_text("\n".join([header, *own]) + "\n")
    return tmp_path


def serve(folder: Path, port: int, *flags: str) -> Process:
    words = ["--ranks", "0", "--out", "run", "--master-port", str(port), *LONG, *flags]
    return start([*MDGAN, "train", *QUICK, *TABLE, *words, "--log-file", "server.log"], folder)


def begins(folder: Path) -> None:
    log = folder / "server.log"
    wait_until(lambda: log.exists() and "starting" in log.read_text(), "a server")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--data-dir", "deep/none.csv"], "rank 1 cannot join: none.csv: no such file or folder"),
        (["--data-dir", "s1.csv", "--require", "dp"], "rank 1 cannot join: --require dp: the run"),
        (["--data-dir", "bad.csv"], "rank 1 cannot join: its data: the line at its machine says"),
    ],
)
@pytest.mark.parametrize("asks", [True, False])
def test_a_server_ends_when_the_last_host_says_that_it_cannot_join(
    study: Path, port: int, flags: list[str], said: str, asks: bool
) -> None:
    (study / "bad.csv").write_text("age,value,sex,ill\n7,3.5,F,maybe-secret\n")
    serving = serve(study, port, "--world-size", "2")
    begins(study)
    where = ["--master-port", str(port), *LONG]
    as_rank = ["train", *QUICK, *TABLE, "--world-size", "2", "--ranks", "1"]
    command = ["join", "--schema", "study.json"] if asks else as_rank
    host = finish(start([*MDGAN, *command, *where, *flags], study))
    assert host.status == 2, host
    begun = time.monotonic()
    server = finish(serving)
    assert time.monotonic() - begun < 20
    check_refused(server, said)
    assert "secret" not in server.errors
    assert "deep" not in server.errors
    assert "secret" in host.errors or "bad.csv" not in flags


def test_a_host_that_mends_what_it_lacked_is_taken_while_others_are_awaited(
    study: Path, port: int
) -> None:
    serving = serve(study, port, "--world-size", "3")
    begins(study)
    join = [*MDGAN, "join", "--schema", "study.json", "--master-port", str(port), *LONG]
    check_refused(finish(start([*join, "--data-dir", "none.csv"], study)), "no such file")
    hosts = [start([*join, "--data-dir", f"s{n}.csv"], study) for n in (1, 2)]
    results = [finish(process) for process in (serving, *hosts)]
    assert [result.status for result in results] == [0, 0, 0], results
    assert "cannot join: none.csv: no such file or folder" in results[0].errors


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "1 worker(s) hold fewer samples than a batch of 8, so their batches repeat samples"),
        (["--algorithm", "fl-gan"], "so their batches are all that they hold: rank(s) 2"),
        (["--algorithm", "moments"], ""),
        (
            ["--dp-epsilon", "9", "--dp-delta", "1e-3", "--dp-ledger", "ledger"],
            "so their batches are all that they hold: rank(s) 2",
        ),
    ],
)
def test_a_site_may_hold_fewer_samples_than_a_batch(
    study: Path, flags: list[str], said: str
) -> None:
    own_flags = ["--data-dir", "s{rank}.csv", "--world-size", "3", "--transport", "memory"]
    result = run_here("train", *QUICK, *TABLE, *own_flags, *flags, "--out", "run", cwd=study)
    assert result.status == 0, result
    assert said in result.errors
    assert ("fewer samples" in result.errors) == bool(said)
    assert read_metrics(study / "run")


def test_a_start_in_which_nobody_trained_says_what_it_spent(study: Path, port: int) -> None:
    private = ["--dp-epsilon", "3", "--dp-delta", "1e-3", "--dp-ledger", "ledger"]
    alone = ["--world-size", "2", "--ranks", "1", "--set", "connect_timeout=1"]
    words = [*TABLE, "--data-dir", "s1.csv", *private, *alone, "--master-port", str(port)]
    spent = set()
    for _ in range(2):
        result = finish(start([*MDGAN, "train", *QUICK, *words], study))
        check_refused(result, "no server answers")
        assert "rank 1 has not trained; its account paid for its counts" in result.errors
        spent |= {*re.findall(r"samples have spent ε = ([0-9.]+) in all", result.errors)}
    (epsilon,) = spent  # the same counts are free
    assert 0 < float(epsilon) < 3


def test_joining_without_arguments_says_where_it_looks(tmp_path: Path, port: int) -> None:
    short = ["--master-port", str(port), "--set", "connect_timeout=1"]
    result = finish(start([*MDGAN, "join", *short], tmp_path))
    place = f"127.0.0.1:{port} (this machine; or --master-addr)"
    check_refused(result, f"asking the server at {place} for a rank, waiting 1 s for it at most")


def test_hosts_that_were_stopped_say_so_without_a_number(tmp_path: Path, port: int) -> None:
    flags = ["--world-size", "2", "--iterations", "100000", "--master-port", str(port), *LONG]
    train = [*MDGAN, "train", "--batch-size", "8", "--threads", "1", "--log-interval", "1", *flags]
    host = start([*train, "--ranks", "1"], tmp_path)
    server = start([*train, "--ranks", "0", "--out", "run"], tmp_path)
    wait_until(lambda: bool(read_metrics(tmp_path / "run")), "iterations")
    server.terminate()
    finish(server)
    ended = finish(host)
    assert ended.output == "rank 1 was stopped\n"
    assert "status" not in ended.errors


def test_an_audit_at_a_server_without_samples_says_where_to_run_it(study: Path) -> None:
    own_flags = ["--data-dir", "s{rank}.csv", "--world-size", "3", "--transport", "memory"]
    held_out = ["--held-out", "held.csv"]
    (study / "held.csv").write_text((study / "s1.csv").read_text())
    words = ["train", *QUICK, *TABLE, *own_flags, *held_out, "--out", "run"]
    assert run_here(*words, cwd=study).status == 0
    for n in (1, 2):
        (study / f"s{n}.csv").unlink()
    result = run_here("audit", "run", cwd=study)
    check_refused(
        result, "are not on this machine", "where they are, do `mdgan audit RUN`", lines=1
    )


def test_a_card_has_no_words_of_a_command_that_failed(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_arrow(_rows: object) -> bytes:
        raise BadInput("-o NAME.parquet", "needs pyarrow", "pip install 'mdgan[tables]'")

    monkeypatch.setattr(kind, "parquet_of", without_arrow)
    own_flags = [
        "--data-dir",
        "s1.csv",
        "--world-size",
        "2",
        "--transport",
        "memory",
        "--out",
        "run",
    ]
    assert run_here("train", *QUICK, *TABLE, *own_flags, cwd=study).status == 0
    (study / "any.toml").write_text("require = []")
    words = ["release", "run", "-o", "bundle", "--no-generator", "--policy", "any.toml"]
    result = run_here(*words, "--samples", "20", cwd=study)
    assert result.status == 0, result
    assert "needs pyarrow" in result.errors, "its user is told"
    assert "`mdgan verify bundle --unsigned` checks it" in result.output
    for card in ("card.md", "card.html", "evidence.json"):
        text = (study / "bundle" / card).read_text()
        assert "no samples.parquet: it could not be made" in text
        assert "pyarrow" not in text
        assert "pip install" not in text
