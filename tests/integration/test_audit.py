"""`mdgan audit` on the command line."""

import json
import shutil
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import mdgan
from mdgan.privacy import real_half
from mdgan.privacy.canaries import read_watched
from mdgan.records.audit import Audit, read_audit
from mdgan.records.recorded_run import RecordedRun
from mdgan.report.compose import compose
from tests.claims.registry import claim
from tests.gallery import Gallery
from tests.processes import run, run_here
from tests.unit.privacy.attackers import flawed_noise
from tests.unit.report.parsed_page import ParsedPage

DATA = """
import torch
from torch import nn

from mdgan.data import InMemoryPartitioner

SHAPE, Z_DIM, NUM_CLASSES = (1, 8, 8), 64, 10


def noise(number, seed):
    random = torch.Generator().manual_seed(seed)
    return torch.rand(number, *SHAPE, generator=random) * 2 - 1, torch.arange(number) % 10


class Partitioner(InMemoryPartitioner):
    reads_files = False

    def read(self, _folder):
        return noise(80, 1)


class HeldOut(InMemoryPartitioner):
    reads_files = False

    def read(self, _folder):
        return noise(300, 2)


class Even(nn.Module):
    def forward(self, z):
        return torch.erf(z / 2**0.5)


class Generator(nn.Sequential):
    def __init__(self):
        linear = nn.Linear(64, 64, bias=False)
        nn.init.eye_(linear.weight)
        super().__init__(linear, Even(), nn.Unflatten(1, SHAPE))


class Discriminator(nn.Sequential):
    def __init__(self):
        layers = nn.Linear(64, 96), nn.LeakyReLU(0.2), nn.Linear(96, 1)
        super().__init__(nn.Flatten(), *layers)
"""
"""Forty samples of noise a worker. The generator makes noise of the same kind from the start, so
that a discriminator can tell them apart in one way alone: by learning its shard by heart."""


def generator() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Unflatten(1, (1, 8, 8)))


def discriminator() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 1))


FLAGS = ["--dataset", "few", "--datasets-dir", ".", "--transport", "memory", "--world-size", "3"]
QUICK = ["--threads", "1", "--sample-interval", "0", "--eval-interval", "0", "--batch-size", "8"]
OVERFIT = [
    *("--swap-interval", "0", "--iterations", "90", "--local-steps", "6"),
    *("--discriminator-optimizer", "lr=3e-3", "--generator-optimizer", "lr=1e-9"),
    *("--step-samples", "48"),
]


def trained(folder: Path, name: str, *flags: str, data: str = DATA) -> Path:
    (folder / "few.py").write_text(data)
    result = run("train", *FLAGS, *QUICK, *flags, "--out", name, cwd=folder)
    assert result.status == 0, result
    return folder / name


def audit(path: Path, *flags: str) -> Audit:
    result = run_here(
        "audit", str(path), "-n", "300", "--json", *(flags or ["--steps", "15"]), cwd=path.parent
    )
    assert result.status == 0, result
    outcome = read_audit(path)
    assert outcome is not None
    assert json.loads(result.output)["seed"] == outcome.seed
    return outcome


def refusal(path: Path, *flags: str) -> str:
    result = run_here("audit", str(path), *flags, cwd=path.parent)
    assert (result.status, result.output) == (2, ""), result
    *warnings, line = result.errors.splitlines()
    assert all("has changed since the run began" in warning for warning in warnings)
    return line


@pytest.fixture(scope="session")
def overfit(gallery: Gallery) -> Path:
    return gallery.show("overfit", lambda folder: trained(folder, "run", *OVERFIT)) / "run"


def test_a_run_that_learnt_its_shards_by_heart_is_found_out(overfit: Path, tmp_path: Path) -> None:
    shutil.copytree(overfit.parent, tmp_path, dirs_exist_ok=True)
    overfit = tmp_path / "run"
    outcome = audit(overfit)
    assert (outcome.iteration, outcome.checkpoint, outcome.left_out) == (90, 90, {})
    assert [(judged.worker, judged.last) for judged in outcome.discriminators] == [(1, 1), (2, 2)]
    for judged in outcome.discriminators:
        assert judged.of_last.auc > 0.9
        assert judged.of_last.members == 40
        assert judged.iterations == {judged.worker: 90}
    answers = {(each.answer, each.batch_size): each for each in outcome.inversions}
    assert answers.keys() == {(kind, b) for kind in ("update", "feedback") for b in (1, 4, 48)}
    assert answers["update", 1].psnr > answers["update", 1].control_psnr
    assert answers["update", 1].found.auc > 0.95
    assert answers["feedback", 48].blind is not None
    check_page(overfit, outcome)


@pytest.mark.slow
def test_the_same_seed_finds_the_same(overfit: Path, tmp_path: Path) -> None:
    shutil.copytree(overfit.parent, tmp_path, dirs_exist_ok=True)
    results = []
    for _ in range(2):
        seen = audit(tmp_path / "run")
        files = (tmp_path / "run" / "audit").iterdir()
        results.append((seen, {path: path.read_bytes() for path in files}))
    assert results[0] == results[1]


def check_page(path: Path, result: Audit) -> None:
    html, _, missing = compose([RecordedRun.read(path)], datetime.now())
    page = ParsedPage(html)
    assert "fig-audit" in page.drawn
    assert "audit" not in missing
    aucs = result.discriminators[1].of_last.auc, result.generator[0].membership.auc
    for text in ("What insiders learn", "at worker 2", "batch of 48", *(f"{x:.3f}" for x in aucs)):
        assert text in page.text, text


def test_tables_say_what_was_found_and_what_was_left_out(overfit: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(overfit, tmp_path / "run", ignore=shutil.ignore_patterns("worker-*"))
    shutil.copy(overfit.parent / "few.py", tmp_path)
    result = run_here("audit", str(copy), "-n", "300", "--steps", "5", cwd=overfit.parent)
    assert result.status == 0, result
    assert "generator, by pixels" in result.output
    assert "left out: discriminators, updates and feedback: no state of a worker" in result.output
    assert "--set", "checkpoint_to_server=true" in result.output
    audited = RecordedRun.read(copy).audit
    assert audited is not None
    assert audited.bound is None
    assert not audited.discriminators
    html, _, missing = compose([RecordedRun.read(copy)], datetime.now())
    assert "fig-audit" in ParsedPage(html).drawn
    assert "audit" not in missing


def change(path: Path, name: str, **fields: Any) -> None:
    file = path / name
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def test_what_cannot_be_audited_is_refused_in_one_line(overfit: Path, tmp_path: Path) -> None:
    assert "not a run" in refusal(tmp_path)
    assert "--data-dir there: --dataset few reads no files" in refusal(
        overfit, "--data-dir", "there"
    )
    copy = shutil.copytree(overfit, tmp_path / "run")
    shutil.copy(overfit.parent / "few.py", tmp_path)
    change(copy, "run.json", state="running")
    line = refusal(copy)
    assert f"{copy}: is not over (running); wait for its end, or go on with" in line
    change(copy, "run.json", state="stopped", dataset_file="../bare.py")
    (tmp_path / "bare.py").write_text(DATA.replace("class HeldOut", "class Other"))
    assert "has no held-out samples here" in refusal(copy)
    assert "--held-out DIR" in refusal(copy)
    (tmp_path / "bare.py").write_text(DATA.replace("noise(300, 2)", "noise(5, 2)"))
    assert "5 held-out samples cannot judge an attack; give at least 20" in refusal(copy)
    (copy / "generator.safetensors").unlink()
    (copy / "generator-average.safetensors").unlink(missing_ok=True)
    assert "has no generator yet" in refusal(copy)


@pytest.mark.slow
def test_a_program_audits_a_run_of_its_step_samples() -> None:
    images = torch.rand(200, 1, 8, 8, generator=torch.Generator().manual_seed(0)) * 2 - 1
    samples = [(image, n % 10) for n, image in enumerate(images)]
    data = mdgan.Data(train=samples[:80], held_out=samples[80:])
    with tempfile.TemporaryDirectory() as folder:
        run = mdgan.train(
            data,
            generator=generator,
            discriminator=discriminator,
            z_dim=8,
            world_size=3,
            transport="memory",
            batch_size=8,
            iterations=20,
            eval_interval=0,
            out=f"{folder}/run",
            quiet=True,
        )
        outcome = run.audit(n=200, steps=0)
        assert [judged["worker"] for judged in outcome["discriminators"]] == [1, 2]
        assert json.loads((run.path / "audit.json").read_text()) == json.loads(json.dumps(outcome))
        with pytest.raises(mdgan.BadInput, match="no attack depends on it"):
            run.audit(batch_size=3)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["fl-gan", "fegan", "paragan"])
def test_other_algorithms_are_attacked_where_their_discriminators_are(
    tmp_path: Path, algorithm: str
) -> None:
    path = trained(tmp_path, "run", "--algorithm", algorithm, "--iterations", "30")
    outcome = audit(path)
    assert outcome.discriminators[0].worker == 0
    assert outcome.discriminators[0].of_all.members == 80
    assert {each.answer for each in outcome.inversions} == {"update"}
    assert outcome.left_out == {"feedback": f"workers of {algorithm} send none"}


@pytest.mark.slow
def test_under_differential_privacy_what_was_spent_stands_beside_the_figures(
    tmp_path: Path,
) -> None:
    pytest.importorskip("opacus")
    private = ["--dp-noise", "4", "--dp-delta", "1e-3"]
    path = trained(tmp_path, "run", *OVERFIT, *private)
    outcome = audit(path)
    assert all(judged.of_last.auc < 0.8 for judged in outcome.discriminators)
    assert sorted(outcome.epsilon) == [1, 2]
    assert not outcome.inversions
    assert "a secret that the run does not have" in outcome.left_out["updates and feedback"]
    result = run_here("audit", str(path), "-n", "300", "--steps", "0", cwd=tmp_path)
    assert "differential privacy: ε = " in result.output


CANARIES = [
    *("--dp-epsilon", "1", "--dp-delta", "1e-4", "--dp-ledger", "ledger"),
    *("--audit-canaries", "150", "--swap-interval", "5"),
]


def canary_run(folder: Path, *flags: str) -> Path:
    (folder / "few.py").write_text(DATA)
    result = run_here("train", *FLAGS, *QUICK, *CANARIES, *flags, "--out", "run", cwd=folder)
    assert result.status == 0, result
    return folder / "run"


def test_noise_on_a_grid_contradicts_the_stated_epsilon_aloud(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The noise of 4088b5e: angles of 24 bits, in single precision."""
    pytest.importorskip("opacus")
    monkeypatch.setattr(real_half, "with_noise", flawed_noise)
    path = canary_run(tmp_path, "--iterations", "60")
    result = run_here("audit", str(path), "-n", "300", "--steps", "0", cwd=tmp_path)
    assert result.status == 0, result
    first = result.output.splitlines()[0]
    assert "THE STATED ε IS WRONG: ε ≥ " in first
    assert "(95 %), at most " in first
    assert "could be shown, stated ≤ 1" in first
    bound = RecordedRun.read(path).audit.bound  # type: ignore[union-attr] # it was made above
    assert bound is not None
    assert bound.contradicts
    html, _, _ = compose([RecordedRun.read(path)], datetime.now())
    page = ParsedPage(html)
    assert "fig-audit" in page.drawn
    assert f"The stated ε is wrong, by the audit's canaries: {bound}." in page.text


@claim("canaries-stay", "mdgan puts it nowhere else.")
def test_a_run_that_does_as_it_says_is_not_contradicted_and_keeps_its_coins_to_itself(
    tmp_path: Path,
) -> None:
    pytest.importorskip("opacus")
    flags = ["--iterations", "20", "--set", "checkpoint_to_server=true"]
    path = canary_run(tmp_path, *flags)
    before = [read_watched(path / "canaries" / f"{n}.json") for n in (1, 2)]
    assert [each.steps for each in before if each] == [20, 20]
    result = run_here(
        "train", "--resume", "run", "--iterations", "40", "--dp-epsilon", "1.5", cwd=tmp_path
    )
    assert result.status == 0, result
    later = [read_watched(path / "canaries" / f"{n}.json") for n in (1, 2)]
    assert [each.steps for each in later if each] == [40, 40]
    assert [each.coins for each in later if each] == [each.coins for each in before if each]
    result = run_here("audit", str(path), "-n", "300", "--steps", "0", cwd=tmp_path)
    outcome = RecordedRun.read(path).audit
    assert outcome is not None
    assert outcome.bound is not None
    assert outcome.bound.epsilon <= outcome.bound.stated == 1.5
    assert f"canaries ({outcome.bound.kind}): {outcome.bound}" in result.output
    assert "IS WRONG" not in result.output
    told = b"".join(
        file.read_bytes()
        for file in path.rglob("*")
        if file.is_file() and file.parent.name != "canaries"
    )
    for each in filter(None, later):
        for values in (each.coins, each.scores):
            kinds = torch.bool if values is each.coins else torch.float64
            assert torch.tensor(values, dtype=kinds).numpy().tobytes()[:64] not in told
            assert json.dumps(values)[1:200].encode() not in told
            assert json.dumps(values, separators=(",", ":"))[1:200].encode() not in told
