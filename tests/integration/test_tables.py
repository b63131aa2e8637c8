"""Runs on rows of tables: preparation, scores, files, and refusals."""

import csv
import hashlib
import json
import re
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from mdgan.engine.server.encoding import ServerEncoding
from mdgan.messages import Message
from mdgan.privacy.ledger_file import FILE
from mdgan.records.run_directory import ENCODING_FILE, FIGURES_FILE
from mdgan.samples.table.reading import read_rows
from mdgan.samples.table.schema import read_schema, schema_text
from mdgan.storage.state_file import read_tensors
from tests.claims.registry import claim
from tests.processes import (
    MDGAN,
    check_refused,
    ended_well,
    finish,
    read_events,
    run,
    run_here,
    start,
)

QUICK = [
    *("--iterations", "4", "--threads", "1", "--width", "8", "--batch-size", "8"),
    *("--sample-interval", "0", "--checkpoint-interval", "0"),
]
UNSCORED = ["--eval-interval", "0"]
SECURE = ["--secure-aggregation", "--workers-per-host", "1"]
HEADER = "age,sex,grade,dose,sick"
SCHEMA = {
    "columns": [
        {"kind": "whole", "name": "age", "low": 0, "high": 120},
        {"kind": "category", "name": "sex", "categories": ["F", "M"]},
        {"kind": "ordered", "name": "grade", "categories": ["I", "II", "III"]},
        {
            **{"kind": "number", "name": "dose", "low": 0, "high": 10, "decimals": 1},
            **{"may_be_missing": True, "common": [0.0]},
        },
        {"kind": "yes_no", "name": "sick"},
    ]
}


def site(number: int, rows: int = 24) -> str:
    """The file of a site; doses are missing or 0 now and then."""
    lines = [HEADER]
    for i in range(number, number + rows):
        dose = "" if i % 5 == 0 else "0" if i % 3 == 0 else f"{i % 7}.{i % 10}"
        grade = ("I", "II", "III")[i % 3]
        lines.append(f"{20 + 3 * i % 80},{'FM'[i % 2]},{grade},{dose},{('no', 'yes')[i // 2 % 2]}")
    return "\n".join(lines) + "\n"


@pytest.fixture
def sites(tmp_path: Path) -> Path:
    """Four sites, held-out rows and a schema, in a folder where commands run."""
    (tmp_path / "study.json").write_text(json.dumps(SCHEMA))
    for number in range(1, 5):
        (tmp_path / f"site-{number}.csv").write_text(site(number))
    (tmp_path / "held-out.csv").write_text(site(9, 60))
    return tmp_path


def table(workers: int = 4, target: str = "sick") -> list[str]:
    """Flags of training on the sites."""
    return [
        *("train", "--dataset", "table", "--schema", "study.json", "--target", target),
        *("--data-dir", "site-{rank}.csv", "--world-size", str(workers + 1), *QUICK),
    ]


def counts(out: Path) -> torch.Tensor:
    """What all sites of a run counted."""
    return read_tensors(out / ENCODING_FILE)[0]["counts"]


def test_from_files_to_rows_and_scores(sites: Path) -> None:
    flags = [*table(), "--held-out", "held-out.csv", "--eval-interval", "4", "--out", "run"]
    ended = run_here(*flags, "--transport", "memory", cwd=sites)
    ended_well(ended, sites / "run", 4)
    assert "mdgan sample run" in ended.output
    (scored,) = read_events(sites / "run", "scores")
    names = {"column_shapes", "pair_trends", "tstr_lr", "tstr_gb", "closest_record", "valid_rows"}
    assert scored["scores"].keys() == names
    assert scored["n_held_out"] == 60
    assert scored["scores"]["valid_rows"] == 1
    assert all(0 <= scored["scores"][name] <= 1 for name in names - {"closest_record"})
    figures = json.loads((sites / "run" / FIGURES_FILE).read_text())
    assert [column["name"] for column in figures["columns"]] == HEADER.split(",")[:-1]

    for number in range(1, 5):  # the run knows all that its rows need
        (sites / f"site-{number}.csv").unlink()
    (sites / "study.json").rename(sites / "kept.json")
    done = run_here("sample", "run", "-n", "300", "-o", "made.csv", cwd=sites)
    assert done.status == 0, done
    schema = read_schema(sites / "kept.json")
    made = read_rows(sites / "made.csv", schema, "sick")
    assert len(made) == 300
    again = run_here("sample", "run", "-n", "300", "-o", "again.csv", cwd=sites)
    assert again.status == 0, again
    assert (sites / "again.csv").read_bytes() == (sites / "made.csv").read_bytes()

    where = ["--where", "sex=F", "--where", "sick=yes", "--where", "age>=30"]
    done = run_here("sample", "run", "-n", "40", *where, "-o", "some.csv", cwd=sites)
    assert done.status == 0, done
    rows = list(csv.DictReader((sites / "some.csv").read_text().splitlines()))
    assert len(rows) == 40
    assert {(row["sex"], row["sick"]) for row in rows} == {("F", "yes")}
    assert min(int(row["age"]) for row in rows) >= 30

    result = run_here("evaluate", "run", "-n", "200", cwd=sites)
    assert result.status == 0, result
    assert "column shapes" in result.output
    reported = run_here("report", "run", cwd=sites)
    assert reported.status == 0, reported
    page = (sites / "run" / "report.html").read_text()
    assert "synthetic rows" in page
    assert "no samples are saved yet" not in page


def test_counts_and_generators_do_not_depend_on_where_workers_run(sites: Path) -> None:
    results = {}
    for name, flags in {
        "memory": ["--transport", "memory"],
        "spread": ["--workers-per-host", "2"],
        "secure": [*SECURE, "--transport", "memory"],
    }.items():
        command = [*table(), *UNSCORED, "--kappa", "1", *flags, "--out", name]
        ended = (run if name == "spread" else run_here)(*command, cwd=sites)
        results[name] = ended_well(ended, sites / name, 4), counts(sites / name)
    first, *others = results.values()
    for generator, counted in others:
        assert generator == first[0]
        assert torch.equal(counted, first[1])
    assert first[1].sum() > 0


def test_counts_are_those_of_all_rows_together(sites: Path) -> None:
    together = "".join(
        (sites / f"site-{n}.csv").read_text().partition("\n")[2] for n in range(1, 5)
    )
    (sites / "all.csv").write_text(HEADER + "\n" + together)
    apart = run_here(*table(), *UNSCORED, "--transport", "memory", "--out", "apart", cwd=sites)
    ended_well(apart, sites / "apart", 4)
    one = [*table(1), *UNSCORED, "--transport", "memory", "--data-dir", "all.csv", "--out", "one"]
    ended_well(run_here(*one, cwd=sites), sites / "one", 4)
    assert torch.equal(counts(sites / "apart"), counts(sites / "one"))
    rows = list(csv.DictReader((sites / "all.csv").read_text().splitlines()))
    ages = Counter(int(row["age"]) for row in rows)
    assert counts(sites / "one")[:121].tolist() == [ages[age] for age in range(121)]
    sick = Counter(row["sick"] for row in rows)
    assert counts(sites / "one")[-2:].tolist() == [sick["no"], sick["yes"]]


@claim("counts-noisy", "noisy, and charged")
def test_noise_covers_counts_and_is_charged(sites: Path) -> None:
    pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")
    schema = msgspec.structs.replace(read_schema(sites / "study.json"), rows_are_independent=True)
    (sites / "study.json").write_text(schema_text(schema))
    flags = [*table(), *UNSCORED, "--transport", "memory"]
    private = [*flags, "--dp-epsilon", "8", "--dp-delta", "1e-3", "--out", "private"]
    ended = run_here(*private, cwd=sites)
    ended_well(ended, sites / "private", 4)
    assert re.search(r"ε (7\.9\d|8\.00) at most", ended.output)
    plain = run_here(*flags, "--out", "plain", cwd=sites)
    ended_well(plain, sites / "plain", 4)
    noisy, exact = counts(sites / "private"), counts(sites / "plain")
    assert noisy.shape == exact.shape
    assert not torch.equal(noisy, exact)
    assert bool((noisy >= 0).all())
    assert not torch.equal(noisy, noisy.round())
    twice = run_here(*private[:-1], "again", cwd=sites)
    assert twice.status == 2, twice
    assert "have spent" in twice.errors


def test_a_server_that_asks_a_resumed_run_again_is_told_nothing(
    patients: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that lies about what it knows gets no counts without noise."""
    pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")
    flags = ["train", "--dataset", "table", "--schema", "study.json", "--target", "ill", *QUICK]
    flags += ["--data-dir", "all.csv", "--partition", "iid", "--world-size", "5", *UNSCORED]
    private = ["--dp-epsilon", "8", "--dp-delta", "1e-3", "--dp-ledger", "ledger", "--out", "run"]
    private += ["--checkpoint-interval", "2", "--transport", "memory"]
    ended_well(run_here(*flags, *private, cwd=patients), patients / "run", 4)
    told = counts(patients / "run")
    learn_from = ServerEncoding.learn_from

    def learn_anew(self: ServerEncoding, *arguments: Any) -> Message | None:
        self.goes_on = False
        return learn_from(self, *arguments)

    monkeypatch.setattr(ServerEncoding, "learn_from", learn_anew)
    more = ["--iterations", "6", "--dp-epsilon", "20"]
    resumed = run_here("train", "--resume", "run", *more, cwd=patients)
    assert resumed.status == 2, resumed
    assert "no host has told how values spread over its rows" in resumed.errors
    assert torch.equal(counts(patients / "run"), told)


@claim(
    "require-checked",
    "The machine checks that before it opens a link for training, and a server lets a host in "
    "only if its settings are the same.",
)
def test_a_site_with_another_schema_is_refused(sites: Path, port: int) -> None:
    changed = (sites / "study.json").read_text().replace('"sex"', '"Sex"')
    (sites / "other.json").write_text(changed)
    both = [read_schema(sites / name).sha256 for name in ("other.json", "study.json")]
    (sites / "site-2.csv").write_text(site(2).replace("sex", "Sex"))
    flags = [*table(2), *UNSCORED, "--master-port", str(port), "--set", "connect_timeout=60"]
    serving = start([*MDGAN, *flags, "--ranks", "0", "--out", "run"], sites)
    joins = start([*MDGAN, *flags, "--ranks", "2", "--schema", "other.json"], sites)
    check_refused(finish(joins), f"schema_sha256 = {both[0]}, rank 0 has schema_sha256 = {both[1]}")
    place = ["--master-addr", "127.0.0.1", "--master-port", str(port)]
    own_flags = ["--schema", "other.json", "--data-dir", "site-2.csv"]
    late = run_here(
        "join", *place, *own_flags, cwd=sites
    )  # refused before it counts, and so spends
    assert late.status == 2, late
    refusal = f"--schema other.json: is not the run's schema: its schema_sha256 is {both[0]}"
    assert refusal in late.errors
    serving.terminate()
    finish(serving)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--extractor", "net.pt"], "--extractor net.pt: rows are scored column by column"),
        (
            ["--algorithm", "fegan", "--clusters", "kmeans:2"],
            "--clusters kmeans:2: groups samples before training, when rows cannot be encoded yet",
        ),
        (["--architecture", "dcgan"], "--architecture dcgan: makes pictures, not rows"),
        (["--augment", "diffaugment"], "--augment diffaugment"),
        (["--target", "dose"], "--target dose: the schema lets it be missing"),
        (["--data-dir", "nowhere-{rank}.csv"], "--data-dir nowhere-1.csv: no such file"),
    ],
)
def test_what_tables_cannot_have(sites: Path, flags: list[str], says: str) -> None:
    refused = run_here(*table(), *UNSCORED, *flags, "--out", "run", cwd=sites)
    assert refused.status == 2, refused
    assert says in refused.errors.strip().splitlines()[-1]
    assert not (sites / "run").exists()


def at_site(text: str) -> str:
    """A site's file in its own words."""
    lines = text.replace("age,sex", "Alter,Geschlecht").replace(",F,", ",w,").splitlines()
    return "\n".join(line.replace(",M,", ",m,") for line in lines)


MAP = {"Alter": {"name": "age"}, "Geschlecht": {"name": "sex", "values": {"w": "F", "m": "M"}}}


def test_sites_map_their_own_words_and_keep_them(sites: Path, port: int) -> None:
    """A mapped run is the run on files that were written so, and only hosts log the maps."""
    plain = run(*table(2), *UNSCORED, "--out", "plain", cwd=sites)
    for number in (1, 2):
        raw = at_site((sites / f"site-{number}.csv").read_text())
        (sites / f"raw-{number}.csv").write_text(raw)
        (sites / f"map-{number}.json").write_text(json.dumps({"columns": MAP}, indent=number))
    flags = [*table(2), *UNSCORED, "--data-dir", "raw-{rank}.csv"]
    mapped = run(*flags, "--map", "map-{rank}.json", "--out", "mapped", cwd=sites)
    links = ["--master-port", str(port), "--set", "connect_timeout=60"]
    serving = start([*MDGAN, *flags, *links, "--ranks", "0", "--out", "a"], sites)
    hosts = [*flags, *links, "--ranks", "1,2", "--map", "map-{rank}.json", "--out", "b"]
    assert run(*hosts, cwd=sites).status == 0
    generator = ended_well(plain, sites / "plain", 4)
    assert ended_well(mapped, sites / "mapped", 4) == generator
    assert ended_well(finish(serving), sites / "a", 4) == generator
    digests = [
        hashlib.sha256((sites / f"map-{number}.json").read_bytes()).hexdigest() for number in (1, 2)
    ]
    for folder in ("mapped", "b"):
        lines = (sites / folder / "audit-log.jsonl").read_text().splitlines()
        messages = [json.loads(line) for line in lines]
        maps = [(each["ranks"], each["outcome"]) for each in messages if each["action"] == "map"]
        assert sorted(maps) == [  # hosts join in any order
            ([rank], f"SHA-256 {digest}") for rank, digest in zip((1, 2), digests, strict=True)
        ]
        assert run_here("log", "verify", folder, cwd=sites).status == 0
    (sites / "others.csv").write_text(site(100, 60))
    quickly = ["-n", "100", "--steps", "0", "--held-out", "others.csv"]
    as_they_are = ["audit", "a", *quickly, "--data-dir", "raw-{rank}.csv"]
    assert "raw-1.csv" in run_here(*as_they_are, cwd=sites).errors
    by_map = run_here(*as_they_are, "--map", "map-{rank}.json", cwd=sites)
    assert by_map.status == 0, by_map
    plainly = run_here("audit", "plain", *quickly, cwd=sites).output
    assert by_map.output.replace("a/checkpoints", "plain/checkpoints") == plainly
    everything = [path for path in (sites / "a").rglob("*") if path.is_file()]
    for digest in (*digests, "Geschlecht", "Alter"):
        assert not [path for path in everything if digest.encode() in path.read_bytes()]


def test_a_row_that_does_not_fit_is_named(sites: Path) -> None:
    with (sites / "site-3.csv").open("a") as file:
        file.write("200,F,I,1.0,yes\n")
    refused = run_here(*table(), *UNSCORED, "--transport", "memory", "--out", "run", cwd=sites)
    assert refused.status == 2, refused
    assert "site-3.csv" in refused.errors
    assert "age" in refused.errors
    assert "200" in refused.errors


def visits(persons: range) -> str:
    """Rows of some persons, six visits each."""
    lines = ["patient_id,age,value,ill"]
    for p in persons:
        lines += [f"{p},{20 + p % 40},{p % 9}.{v},{('no', 'yes')[p % 2]}" for v in range(6)]
    return "\n".join(lines) + "\n"


@pytest.fixture
def patients(tmp_path: Path) -> Path:
    """A site's file of visits, with the schema that is drafted from it."""
    (tmp_path / "all.csv").write_text(visits(range(40)))
    drafted = run_here("schema", "draft", "all.csv", "-o", "study.json", cwd=tmp_path)
    assert drafted.status == 0, drafted
    assert "40 values in 240 rows, so rows are not people" in drafted.output + drafted.errors
    return tmp_path


def test_held_out_rows_of_persons_that_were_trained_on_judge_nothing(patients: Path) -> None:
    (patients / "same.csv").write_text(visits(range(30, 60)))
    (patients / "others.csv").write_text(visits(range(40, 70)))
    flags = ["train", "--dataset", "table", "--schema", "study.json", "--target", "ill", *QUICK]
    flags += ["--data-dir", "all.csv", "--partition", "iid", "--world-size", "5", *UNSCORED]
    ended = run_here(*flags, "--transport", "memory", "--out", "run", cwd=patients)
    ended_well(ended, patients / "run", 4)
    # Forty persons of six rows each over four workers: whole persons.
    looked = run_here(*flags, "--dry-run", cwd=patients)
    assert re.findall(r"rank \d +(\d+) samples", looked.output) == ["60"] * 4
    refused = run_here("audit", "run", "--held-out", "same.csv", "--steps", "0", cwd=patients)
    check_refused(refused, "10 persons of the held-out samples were trained on", "of other persons")
    released = run_here("release", "run", "--held-out", "same.csv", "--dry-run", cwd=patients)
    assert released.status == 1, released
    assert "not audited" in released.errors
    judged = run_here("audit", "run", "--held-out", "others.csv", "--steps", "0", cwd=patients)
    assert judged.status == 0, judged
    assert "40 / 30" in judged.output  # members and others are persons, not rows


@claim("unit", "it is a person with all rows")
def test_a_person_is_the_unit_of_a_private_run(patients: Path) -> None:
    pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")
    flags = ["train", "--dataset", "table", "--schema", "study.json", "--target", "ill", *QUICK]
    flags += ["--data-dir", "all.csv", "--partition", "iid", "--world-size", "5", *UNSCORED]
    private = ["--dp-epsilon", "8", "--dp-delta", "1e-3", "--dp-ledger", "ledger", "--out", "run"]
    ended = run_here(*flags, *private, "--transport", "memory", cwd=patients)
    ended_well(ended, patients / "run", 4)
    assert "those of rank 1 as 10, since 50 are further ones" in ended.errors
    known = sqlite3.connect(patients / "ledger" / FILE)
    assert known.execute("SELECT count(*) FROM samples").fetchone() == (40,)
    known.close()
