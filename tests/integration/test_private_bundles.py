"""Bundles of private runs and of tables: what they reveal, and what they do not."""

import json
import re
import shutil
import sys
from pathlib import Path

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save

from mdgan.gan.model_state import digest_of
from mdgan.records.run_directory import ENCODING_FILE
from mdgan.release.evidence import RunEvidence
from mdgan.samples.table.kind import TableKind
from mdgan.samples.table.reading import read_rows
from mdgan.samples.table.schema import read_schema
from mdgan.storage.state_file import read_tensors
from tests.claims.registry import claim
from tests.gallery import Gallery
from tests.integration.signed_runs import checked, replaced, resealed, trained_apart, wrong
from tests.integration.test_tables import SCHEMA, site
from tests.processes import run_here

PRIVATE = ["--dp-epsilon", "8", "--dp-delta", "1e-3", "--dp-ledger", "ledger"]
TABLE = ["--dataset", "table", "--schema", "study.json", "--target", "sick"]
TABLE += ["--data-dir", "site-{rank}.csv", "--width", "8"]
ROWS = 60


def with_tables(folder: Path, hosts: int = 2) -> Path:
    (folder / "study.json").write_text(json.dumps(SCHEMA))
    for number in range(1, hosts + 1):
        (folder / f"site-{number}.csv").write_text(site(100 * number, ROWS))
    (folder / "held-out.csv").write_text(site(9, ROWS))
    return folder


def released(folder: Path, to: str, *flags: str) -> RunEvidence:
    done = run_here("release", "run", "-o", to, "--samples", "200", *flags, cwd=folder)
    assert done.status == 0, done
    return msgspec.json.decode((folder / to / "evidence.json").read_bytes(), type=RunEvidence)


@pytest.fixture(scope="session", name="private")
def a_private_run(gallery: Gallery) -> Path:
    """Three hosts with noise in every step, whose budgets are spent with the last one."""
    pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")

    def make(folder: Path) -> None:
        trained_apart(folder, *PRIVATE, "--iterations", "6", hosts=3, iterations=6)
        released(folder, "bundle")

    return gallery.show("private", make)


@pytest.fixture(scope="session", name="sums")
def a_run_of_private_sums(gallery: Gallery) -> Path:
    """Two sites with tables, which tell one noisy sum and go home."""
    pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")

    def make(folder: Path) -> None:
        flags = [*TABLE, *PRIVATE, "--algorithm", "moments", "--held-out", "held-out.csv"]
        trained_apart(with_tables(folder), *flags, "--architecture", "md-gan-mlp")
        released(folder, "bundle")

    return gallery.show("sums", make)


@pytest.fixture(scope="session", name="tables")
def a_run_on_tables(gallery: Gallery) -> Path:
    """Two sites with tables, and no noise."""

    def make(folder: Path) -> None:
        trained_apart(with_tables(folder), *TABLE, "--held-out", "held-out.csv")
        (folder / "any.toml").write_text("require = []")
        released(folder, "bundle", "--policy", "any.toml")

    return gallery.show("tables", make)


def test_hosts_name_the_generator_though_their_budgets_end_with_the_run(private: Path) -> None:
    checks = checked(private)
    assert wrong(checks) == ""
    lines = [each.line for each in checks]
    (line,) = [each for each in lines if each.startswith("privacy: ")]
    assert line.endswith("as all hosts have signed")
    assert float(line.split()[3]) <= 8
    assert sum(each.startswith("rank(s) ") and "terms alone" not in each for each in lines) == 3


@pytest.mark.slow
@claim(
    "default-both",
    "In both, no host may have refused to sign, and where hosts signed, none may be silent.",
)
@claim("signs-what-it-knows", "A host that knows something else does not sign, and says why.")
def test_hosts_that_were_there_until_the_end_refuse_a_server_that_names_no_generator(
    tmp_path: Path,
) -> None:
    pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")
    lying = "from mdgan.engine.server import peers; peers.digest_of = lambda _: ''; "
    server = [sys.executable, "-c", f"{lying}from mdgan.cli import main; main()"]
    trained_apart(tmp_path, *PRIVATE, "--iterations", "3", iterations=3, server=server)
    done = run_here("release", "run", "-o", "bundle", "--samples", "20", cwd=tmp_path)
    assert done.status == 1, done
    assert done.output.count("the server names no generator") == 2
    assert "NO refused_to_sign <= 0: refused_to_sign = 2" in done.output


@claim("nothing-real", "With differential privacy the number of samples is not told")
@claim("nothing-real", "of the audit only what canaries say.")
def test_a_private_bundle_tells_nothing_that_no_noise_covers(private: Path) -> None:
    evidence = msgspec.json.decode((private / "bundle" / "evidence.json").read_bytes())
    assert evidence["samples"] is None
    assert evidence["audit"]["generator"] == []
    assert all(float(f"{e:.3g}") == e for e in evidence["epsilon"].values())
    texts = [(private / "bundle" / name).read_text() for name in ("card.md", "croissant.json")]
    for word in ("AUC", "copies", "distance to trained", "1,438"):
        assert not any(word in text for text in texts), word


@claim(
    "unsigned",
    "Where no host has signed the bundle's generator (no certificates, moments, "
    "--no-generator), exit status is 1 unless you say --unsigned.",
)
@claim("terms-alone", "sign settings and ε alone.")
def test_hosts_that_told_one_sum_have_signed_the_terms_alone(sums: Path) -> None:
    problems = wrong(checked(sums))
    assert problems.startswith("generator: no host has signed it: which one it is, is the server's")
    checks = checked(sums, unsigned=True)
    assert wrong(checks) == ""
    lines = "\n".join(each.line for each in checks)
    assert lines.count("the terms alone") == 2
    assert "as all hosts have signed" in lines
    assert "samples.csv: made again, every bit is the same" in lines


@claim("unsigned", "mdgan release names the command.")
@pytest.mark.parametrize("run", ["sums", "private"])
def test_the_command_that_release_names_finds_the_bundle_good(
    run: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    folder: Path = request.getfixturevalue(run)
    words = ["release", "run", "-o", str(tmp_path / "b"), "--samples", "20"]
    done = run_here(*words, cwd=folder)
    named = re.search(r"written; `mdgan (.*)` checks it", done.output)
    assert named is not None, done
    assert ("--unsigned" in named[1]) is (run == "sums")
    result = run_here(*named[1].replace("FILE", "ca/ca.pem").split(), cwd=folder)
    assert result.status == 0, result


@claim("nothing-real", "of the audit only what canaries say.")
def test_one_row_less_changes_no_number_of_a_private_bundle(sums: Path, tmp_path: Path) -> None:
    figures = []
    sums = Path(shutil.copytree(sums, tmp_path / "sums"))
    for less in (0, 1):
        folder = tmp_path / f"data{less}"
        folder.mkdir()
        for number in (1, 2):
            lines = (sums / f"site-{number}.csv").read_text().splitlines(keepends=True)
            (folder / f"site-{number}.csv").write_text("".join(lines[: len(lines) - less]))
        where = ["--data-dir", str(folder / "site-{rank}.csv")]
        evidence = released(sums, str(tmp_path / f"b{less}"), *where)
        home = json.loads((sums / "run" / "audit.json").read_text())["generator"]
        told = msgspec.to_builtins(msgspec.structs.replace(evidence, made=""), str_keys=True)
        figures.append((json.dumps(told, sort_keys=True), json.dumps(home)))
    assert len({told for told, _ in figures}) == 1
    assert len({home for _, home in figures}) == 2  # which the audit did see


@claim("nothing-real", "scores, numbers and counts of tables are coarse")
def test_counts_without_noise_leave_so_coarse_that_no_row_is_in_them(tables: Path) -> None:
    assert wrong(checked(tables, policy=tables / "any.toml")) == ""
    schema = read_schema(tables / "bundle" / "schema.json")
    counts = load_file(tables / "bundle" / ENCODING_FILE)["counts"]
    exact = read_tensors(tables / "run" / ENCODING_FILE)[0]["counts"]
    assert not torch.equal(counts, exact)
    kind = TableKind(schema, "sick")
    assert torch.equal(counts, kind.coarse(exact))
    ages, cells = exact[:121], counts[:121]
    (rare,) = (int(n) for n in torch.nonzero(ages == ages[ages > 0].min())[:1])
    assert cells[rare] == cells[rare + 1] or cells[rare] == cells[rare - 1]
    made = read_rows(tables / "bundle" / "samples.csv", schema, "sick")
    assert len(made) == 200


@claim("made-again", "All other files are made again and compared, bit for bit.")
def test_rows_are_written_by_the_counts_and_the_schema_that_hosts_have_signed(
    tables: Path, tmp_path: Path
) -> None:
    counts = load_file(tables / "bundle" / ENCODING_FILE)["counts"]
    data = save({"counts": counts.flip(0)})
    bundle = resealed(tables, tmp_path / "counts", encoding_safetensors=data)
    assert "is not written by the counts of the evidence" in wrong(checked(tables, bundle))
    change = replaced(learnt=digest_of({"counts": counts.flip(0)}))
    bundle = resealed(tables, tmp_path / "learnt", change, encoding_safetensors=data)
    assert wrong(checked(tables, bundle)).count("signed other counts of all sites") == 2
    terms = json.loads((tables / "bundle" / "evidence.json").read_bytes())["terms"]
    bundle = resealed(tables, tmp_path / "wide", replaced(terms={**terms, "width": 1 << 14}))
    assert "bytes, fewer than that of the terms" in wrong(checked(tables, bundle))
    bundle = resealed(tables, tmp_path / "many", replaced(num_samples=10_000_000))
    assert "10,000,000 samples in" in wrong(checked(tables, bundle))
    schema = (tables / "bundle" / "schema.json").read_bytes().replace(b'"M"', b'"X"')
    bundle = resealed(tables, tmp_path / "schema", schema_json=schema)
    assert "schema_sha256 is another one" in wrong(checked(tables, bundle))
    rows = (tables / "bundle" / "samples.csv").read_bytes().splitlines(keepends=True)
    rows[5] = (tables / "site-1.csv").read_bytes().splitlines(keepends=True)[3]
    bundle = resealed(tables, tmp_path / "rows", samples_csv=b"".join(rows))
    assert "samples.csv: made again, it is another one" in wrong(checked(tables, bundle))


@claim("made-again", "Nothing in the bundle is run.")
def test_a_dataset_file_of_ones_own_is_named_by_the_reader(tables: Path, tmp_path: Path) -> None:
    change = replaced(terms={"algorithm": "mdgan", "dataset": "own", "world_size": 3})
    bundle = resealed(tables, tmp_path / "b", change)
    assert "its dataset file own.py is not among mdgan's; name the folder" in wrong(
        checked(tables, bundle)
    )


@pytest.mark.slow
def test_hosts_whose_budgets_end_early_have_their_say(tmp_path: Path) -> None:
    """All of them leave at once, and the server ends with that: it waits for what they sign."""
    pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")
    flags = [*PRIVATE, "--dp-noise", "0.5", "--batch-size", "64", "--iterations", "40"]
    trained_apart(tmp_path, *flags, iterations=7)
    (tmp_path / "any.toml").write_text("require = []")
    evidence = released(tmp_path, "bundle", "--policy", "any.toml")
    assert sorted(rank for answer in evidence.attestations for rank in answer.workers) == [1, 2]
    assert all(answer.signature for answer in evidence.attestations)
    checks = checked(tmp_path, policy=tmp_path / "any.toml", unsigned=True)
    assert not wrong(checks), wrong(checks)
    assert any("as all hosts have signed" in each.line for each in checks)
