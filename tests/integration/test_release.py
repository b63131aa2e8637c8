"""A bundle that leaves a run: written, signed, checked by strangers, refused where it must be."""

import html
import os
import re
import shutil
import socket
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from random import Random

import msgspec
import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import mdgan
from mdgan.release.evidence import RunEvidence
from mdgan.release.verify import Trust, verify_bundle
from tests.claims.registry import claim
from tests.integration.signed_runs import checked, issue, replaced, resealed, wrong
from tests.processes import check_refused, run_here


def test_a_stranger_learns_who_signed_what(place: Path) -> None:
    result = run_here("verify", "bundle", "--authority", "ca/ca.pem", cwd=place)
    assert result.status == 0, result
    for part in ("server: signed by server", "rank(s) 1: signed by site1", "closest_record_ratio"):
        assert part in result.output
    check_refused(run_here("verify", "bundle", cwd=place), "--authority FILE", lines=1)


@claim("files-signatures", "every file is as the manifest says")
def test_one_flipped_bit_anywhere_is_named(place: Path, tmp_path: Path) -> None:
    random = Random(0)
    for path in sorted((place / "bundle").iterdir()):
        data = path.read_bytes()
        places = random.sample(range(len(data)), min(len(data), 8))
        bundle = tmp_path / path.name
        shutil.copytree(place / "bundle", bundle)
        for at in places:
            changed = bytearray(data)
            changed[at] ^= 1 << random.randrange(8)
            (bundle / path.name).write_bytes(changed)
            assert wrong(checked(place, bundle)), f"{path.name}, byte {at}"


@claim("files-signatures", "every file is as the manifest says")
def test_files_that_come_or_go_are_named(place: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(place / "bundle", bundle)
    (bundle / "card.md").unlink()
    (bundle / "more.txt").write_text("trust me")
    os.mkfifo(bundle / "pipe")
    problems = wrong(checked(place, bundle))
    for part in ("card.md: cannot be read", "more.txt: is not in the", "pipe: is not in the"):
        assert part in problems


@claim("release", "mdgan verify bundle --authority authority/ca.pem # anywhere, without a network")
def test_a_bundle_is_checked_without_a_network(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_network(*asked: object) -> None:
        raise AssertionError(f"a socket {asked}")

    for name in ("connect", "connect_ex", "bind", "sendto"):
        monkeypatch.setattr(socket.socket, name, no_network)
    assert wrong(checked(place)) == ""


@claim("files-signatures", "certificates are not revoked")
def test_a_revoked_certificate_is_named(place: Path, tmp_path: Path) -> None:
    ours = tmp_path / "ca"
    shutil.copytree(place / "ca", ours)
    issue(tmp_path, "revoke", "ca", "site1")
    problems = wrong(checked(place, revoked=ours / "revoked.pem")).splitlines()
    assert problems[0].startswith("rank(s) 1: signed by site1")
    assert problems[0].endswith("whose certificate is revoked")
    assert problems[1:] == ["policy: silent <= 0 if known: silent = 1"]


@claim("files-signatures", "certificates are not revoked")
def test_the_certificate_of_another_authority_counts_for_nothing(
    place: Path, tmp_path: Path
) -> None:
    issue(tmp_path, "init", "theirs")
    result = verify_bundle(place / "bundle", Trust(tmp_path / "theirs" / "ca.pem"))
    assert {line.partition(":")[0] for line in wrong(result).splitlines()} == {
        *("server", "rank(s) 1", "rank(s) 2", "generator")
    }


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"generator": "0" * 64}, "is another one than that of the evidence"),
        ({"run": "another"}, "signed another run"),
        ({"terms": {"algorithm": "mdgan", "batch_size": 1}}, "signed other terms"),
        ({"made": "yesterday"}, "makes no sense"),
    ],
)
@claim("files-signatures", "hosts signed this run, and this generator or none.")
def test_a_server_that_says_something_else_later_is_named(
    place: Path, tmp_path: Path, change: dict[str, object], said: str
) -> None:
    bundle = resealed(place, tmp_path / "b", replaced(**change))
    assert said in wrong(checked(place, bundle))


def test_a_signature_that_was_moved_to_another_rank_is_named(place: Path, tmp_path: Path) -> None:
    def moved(evidence: RunEvidence) -> RunEvidence:
        first, *others = evidence.attestations
        first = msgspec.structs.replace(first, workers=[7])
        return msgspec.structs.replace(evidence, attestations=[first, *others])

    assert "rank(s) 7: has not signed" in wrong(
        checked(place, resealed(place, tmp_path / "b", moved))
    )


def test_certificates_that_are_none_are_named(place: Path, tmp_path: Path) -> None:
    def spoilt(evidence: RunEvidence) -> RunEvidence:
        texts = ("no PEM", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
        both = zip(evidence.attestations, texts, strict=True)
        results = [msgspec.structs.replace(answer, chain=text) for answer, text in both]
        return msgspec.structs.replace(evidence, attestations=results)

    problems = wrong(checked(place, resealed(place, tmp_path / "b", spoilt)))
    assert problems.count("has not signed") == 2


def test_a_list_of_revoked_certificates_that_is_none_is_named(place: Path, tmp_path: Path) -> None:
    def with_a_list(evidence: RunEvidence) -> RunEvidence:
        (tmp_path / "b" / "revoked.pem").write_text("nothing is revoked")
        return evidence

    problems = wrong(checked(place, resealed(place, tmp_path / "b", with_a_list)))
    assert "revoked.pem: is no list of revoked certificates" in problems


@claim("policy-yours", "The policy: yours (--policy FILE), or mdgan's")
def test_readers_may_have_rules_of_their_own(place: Path, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text('require = ["signed_by >= 2", "fid <= 0.001 * floor"]')
    checks = checked(place, policy=tmp_path / "p.toml")
    assert wrong(checks).startswith("policy: fid <= 0.001 * floor: fid = ")
    with pytest.raises(mdgan.BadInput, match="cannot be read"):
        checked(place, policy=tmp_path / "none.toml")


def test_ten_lines_of_torch_sample_the_same_bits(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (lines,) = re.findall(r"```python\n(.*?)```", (place / "bundle" / "card.md").read_text(), re.S)
    assert len(lines.splitlines()) <= 10
    assert "mdgan" not in lines
    output, known = tmp_path / "s.npz", dict[str, torch.Tensor]()
    done = run_here("sample", "run", "-n", "300", "-o", str(output), cwd=place)
    assert done.status == 0, done
    monkeypatch.chdir(place / "bundle")
    exec(compile(lines, "card.md", "exec"), known)
    assert torch.equal(known["samples"], torch.from_numpy(np.load(output)["images"]))


@pytest.mark.slow
def test_a_stranger_with_torch_alone_samples_the_same_bits(place: Path, tmp_path: Path) -> None:
    card = (place / "bundle" / "card.md").read_text()
    (lines,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    assert len(lines.splitlines()) <= 10
    program = lines + "import sys\nassert 'mdgan' not in sys.modules\n"
    program += f"torch.save(samples, {str(tmp_path / 'samples.pt')!r})"
    command = [sys.executable, "-I", "-c", program]
    subprocess.run(command, cwd=place / "bundle", check=True, timeout=300)
    (tmp_path / "o").mkdir()
    output = str(tmp_path / "o" / "s.npz")
    assert run_here("sample", "run", "-n", "300", "-o", output, cwd=place).status == 0
    theirs = torch.load(tmp_path / "samples.pt", weights_only=True)
    assert torch.equal(theirs, torch.from_numpy(np.load(output)["images"]))


@claim(
    "nothing-real",
    "mdgan puts no sample of a worker into it, no classifier that was trained on samples, and "
    "no names of files, nor of machines but in certificates.",
)
def test_nothing_in_the_bundle_was_real_or_names_a_machine(place: Path) -> None:
    contents = [path.read_bytes() for path in (place / "bundle").iterdir()]
    for path in (place / "bundle").glob("*.npz"):
        with zipfile.ZipFile(path) as file:
            contents += [file.read(name) for name in file.namelist()]
    whole = b"\0".join(contents)
    for image in load_digits().images:
        pixels = np.round(image / 16 * 255)
        for form in (image / 8 - 1, pixels / 127.5 - 1, image / 16, pixels):
            assert form.astype(np.float32).tobytes() not in whole
        assert image.astype(np.uint8).tobytes() not in whole
        assert pixels.astype(np.uint8).tobytes() not in whole
    for name in (str(place), str(Path(mdgan.__file__).parent), ".py"):
        assert name.encode() not in whole, name
    for path in (place / "bundle").glob("*.[jmh]*"):
        assert not re.search(rf"\b{re.escape(socket.gethostname())}\b", path.read_text())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the libraries that read it
def test_croissant_and_card_are_valid(place: Path) -> None:
    croissant = pytest.importorskip("mlcroissant")
    data = croissant.Dataset(str(place / "bundle" / "croissant.json"))
    assert data.metadata.issues.errors == set()
    assert {each.name for each in data.metadata.distribution} == {
        *("generator.safetensors", "generator.pt2", "samples.png", "samples.npz")
    }
    page = (place / "bundle" / "card.html").read_text()
    assert "http://" not in page
    assert "https://" not in page


@claim("release-dry-run", "--dry-run says what the policy says and writes no bundle")
@claim("release", "refused if the policy is not met")
def test_a_policy_that_is_not_met_writes_nothing(place: Path, tmp_path: Path) -> None:
    place = Path(shutil.copytree(place, tmp_path / "place"))
    (place / "strict.toml").write_text('require = ["signed_by >= 3", "fid <= 1000"]')
    result = run_here("release", "run", "-o", "none", "--policy", "strict.toml", cwd=place)
    assert result.status == 1
    assert "NO signed_by >= 3: signed_by = 2" in result.output
    assert "ok fid <= 1000: fid = " in result.output
    tried = run_here("release", "run", "-o", "none", "--dry-run", cwd=place)
    assert tried.status == 0, tried
    assert "rank(s) 1: signed by site1, key " in tried.output
    assert not (place / "none").exists()
    check_refused(run_here("release", "run", "-o", "bundle", cwd=place), "is there already")
    nothing = run_here("release", "run", "-o", "n", "--samples", "0", "--no-generator", cwd=place)
    check_refused(nothing, "nothing is left")


@claim(
    "unsigned",
    "Where no host has signed the bundle's generator (no certificates, moments, "
    "--no-generator), exit status is 1 unless you say --unsigned.",
)
def test_a_bundle_without_its_generator_is_taken_only_on_the_servers_word(
    place: Path, tmp_path: Path
) -> None:
    place = Path(shutil.copytree(place, tmp_path / "place"))
    arguments = ["release", "run", "-o", str(tmp_path / "b"), "--samples", "20", "--no-generator"]
    assert run_here(*arguments, cwd=place).status == 0
    assert not list((tmp_path / "b").glob("generator*"))
    line = "samples and cards: are the server's word, since the bundle has no generator"
    assert line in wrong(checked(place, tmp_path / "b"))
    assert wrong(checked(place, tmp_path / "b", unsigned=True)) == ""


def test_python_and_the_report_say_the_same(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Path(shutil.copytree(place, tmp_path / "place"))
    monkeypatch.chdir(place)
    found = mdgan.Run.open(place / "run").release(place / "unused", dry_run=True)
    assert found.is_fit
    assert found.path is None
    page = mdgan.Run.open(place / "run").report(place / "report.html").read_text()
    assert "Fit for release? Yes" in page
    for verdict in found.verdicts:
        assert html.escape(verdict.why) in page


class Stored(torch.nn.Module):
    """A generator that has ten real samples by heart."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        images = torch.tensor(load_digits().images[300:310] / 8 - 1).float()
        self.register_buffer("kept", images[:, None])

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        places = (z[:, :8] > 0).long() @ (2 ** torch.arange(8))
        kept = self.kept
        assert isinstance(kept, torch.Tensor)
        return kept[places % 10] + 0 * self.weight


def samples(numbers: Sequence[int]) -> list[tuple[torch.Tensor, int]]:
    digits = load_digits()
    images = torch.tensor(digits.images / 8 - 1).float()[:, None]
    return [(images[n], int(digits.target[n])) for n in numbers]


@pytest.mark.slow
def test_a_generator_that_stores_ten_samples_is_refused(tmp_path: Path) -> None:
    data = mdgan.Data(train=samples(range(300, 1797)), held_out=samples(range(300)))
    run = mdgan.train(
        data,
        generator=Stored,
        discriminator=lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 1)),
        z_dim=16,
        world_size=3,
        iterations=5,
        batch_size=8,
        quiet=True,
        out=str(tmp_path / "run"),
    )
    result = run.release(tmp_path / "bundle")
    assert not result.is_fit
    unmet = {each.why.partition(" ")[0] for each in result.verdicts if not each.met}
    assert "copied_share" in unmet
    assert not (tmp_path / "bundle").exists()


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_one_trained_on_thirty_samples_is_refused_and_an_honest_one_is_not(
    tmp_path: Path, seed: int
) -> None:
    order = torch.randperm(1797, generator=torch.Generator().manual_seed(seed)).tolist()
    fit = []
    for number in (30, 1400):
        data = mdgan.Data(train=samples(order[:number]), held_out=samples(order[1400:]))
        run = mdgan.train(
            data,
            architecture="md-gan-mlp",
            iterations=3000,
            batch_size=10,
            out=str(tmp_path / f"run{number}"),
            world_size=3,
            transport="memory",
            seed=seed,
            quiet=True,
        )
        fit.append(run.release(tmp_path / f"b{number}", dry_run=True).is_fit)
    assert fit == [False, True]
