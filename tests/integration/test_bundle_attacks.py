"""A server that changes bundles after the run gets no farther than hosts' signatures allow."""

import io
import pickle
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save

from mdgan.credentials.identity import read_credentials
from mdgan.gan.model_state import digest_of
from mdgan.privacy.attestation import Attestation, Statement, attest
from mdgan.records.rows import ScoresRow
from mdgan.release.evidence import RunEvidence, versions
from mdgan.release.signing import MANIFEST_FILE, SIGNATURE_FILE, seal
from mdgan.samples.contract import npz_of
from tests.claims.registry import claim
from tests.integration.signed_runs import checked, replaced, resealed, same, wrong
from tests.processes import run_here


def lines(place: Path, bundle: Path, **trust: object) -> str:
    return "\n".join(each.line for each in checked(place, bundle, **trust))


def signed_anew(
    place: Path,
    evidence: RunEvidence,
    ranks: Sequence[int] = (1, 2),
    epsilon: float | None = None,
    **changes: object,
) -> list[Attestation]:
    """What hosts would have signed, had the server asked them for something else."""
    results = []
    for rank in ranks:
        credentials = read_credentials(place / "ca" / f"site{rank}.cred")
        (said,) = [each.said() for each in evidence.attestations if rank in each.workers]
        said = msgspec.structs.replace(said, **changes)
        spent = {} if epsilon is None else {str(rank): epsilon}
        account = {"epsilon": spent, "replaced": spent}
        results.append(attest(credentials, said.text(), said, [rank], account, leaves_early=True))
    assert all(each.signature for each in results)
    return results


@claim("policy-yours", "Figures that no host has signed are marked as the server's word.")
def test_an_honest_bundle_holds_with_every_file_made_again(place: Path) -> None:
    printed = lines(place, place / "bundle")
    assert not wrong(checked(place)), printed
    for name in ("card.md", "card.html", "croissant.json", "generator.pt2", "samples.npz"):
        assert f"{name}: made again, every bit is the same" in printed
    assert "the server's word: audit_auc = " in printed
    assert "policy: signed_by" not in printed


@pytest.mark.parametrize("epsilon", [{}, {1: 0.5, 2: 0.5}])
@claim("privacy-signed", "Privacy, once hosts have signed, follows from their signatures alone")
def test_a_run_without_noise_is_none_with_it_whatever_the_server_says(
    place: Path, tmp_path: Path, epsilon: dict[int, float]
) -> None:
    (tmp_path / "p.toml").write_text(
        'require = ["epsilon <= 1"]\n[dp]\nrequire = ["delta <= 1e-5"]\n'
        '[no_dp]\nrequire = ["audit_auc <= 0"]\n'
    )
    bundle = resealed(place, tmp_path / "b", replaced(epsilon=epsilon))
    problems = wrong(checked(place, bundle, policy=tmp_path / "p.toml"))
    assert "policy: epsilon <= 1: epsilon not known" in problems
    assert "policy: audit_auc <= 0: audit_auc" in problems
    assert "delta" not in problems
    assert ("tells an ε, and the terms have no noise" in problems) == bool(epsilon)

    def with_noise(evidence: RunEvidence) -> RunEvidence:
        terms = {**evidence.terms, "dp_epsilon": 0.5, "dp_delta": 1e-9, "dp_clip": 1.0}
        return msgspec.structs.replace(evidence, terms=terms, epsilon=epsilon)

    problems = wrong(checked(place, resealed(place, tmp_path / "c", with_noise)))
    assert problems.count("signed other terms") == 2


@claim("files-signatures", "hosts signed this run, and this generator or none.")
def test_hosts_that_name_no_generator_stand_for_none(place: Path, tmp_path: Path) -> None:
    other = load_file(place / "bundle" / "generator.safetensors")
    other = {name: tensor + 1 if tensor.is_floating_point() else tensor
             for name, tensor in other.items()}  # fmt: skip

    def blank(evidence: RunEvidence) -> RunEvidence:
        answers = signed_anew(place, evidence, generator="")
        digest = digest_of(other)
        return msgspec.structs.replace(evidence, attestations=answers, generator=digest)

    bundle = resealed(place, tmp_path / "b", blank, generator_safetensors=save(other))
    assert "generator: no host has signed it: which one it is, is the server's word" in wrong(
        checked(place, bundle)
    )
    (tmp_path / "p.toml").write_text('require = ["signed_by >= 1", "signed_terms >= 2"]')
    checks = checked(place, bundle, policy=tmp_path / "p.toml", unsigned=True)
    assert "policy: signed_by >= 1: signed_by = 0" in wrong(checks)
    assert (True, "policy: signed_terms >= 2: signed_terms = 2") in checks


@claim(
    "default-both",
    "In both, no host may have refused to sign, and where hosts signed, none may be silent.",
)
@claim("default-both", "where hosts signed, none may be silent.")
def test_signers_that_are_dropped_are_missed(place: Path, tmp_path: Path) -> None:
    def one(evidence: RunEvidence) -> RunEvidence:
        return msgspec.structs.replace(evidence, attestations=evidence.attestations[:1])

    bundle = resealed(place, tmp_path / "b", one)
    assert "policy: silent <= 0 if known: silent = 1" in wrong(checked(place, bundle))


@claim("privacy-signed", "if a worker that trains has signed none, ε is not known.")
def test_accounts_of_all_hosts_decide_what_was_spent(place: Path, tmp_path: Path) -> None:
    def private(ranks: Sequence[int], told: dict[int, float]) -> Path:
        def change(evidence: RunEvidence) -> RunEvidence:
            terms = {**evidence.terms, "dp_epsilon": 3.0, "dp_delta": 1e-5, "dp_clip": 1.0}
            with_account = signed_anew(place, evidence, ranks, 2.5, terms=terms)
            others = [n for n in (1, 2) if n not in ranks]
            answers = [*with_account, *signed_anew(place, evidence, others, terms=terms)]
            return msgspec.structs.replace(
                evidence, terms=terms, attestations=answers, epsilon=told, audit=None, samples=None
            )

        return resealed(place, tmp_path / f"b{len(list(tmp_path.iterdir()))}", change)

    printed = lines(place, private([1, 2], {1: 2.5, 2: 2.5}))
    assert "privacy: ε = 2.5 at most, δ = 1e-05, as all hosts have signed" in printed
    problems = wrong(checked(place, private([1, 2], {1: 2.5, 2: 1.0})))
    assert "rank 2: its account says ε = 2.5, the evidence 1" in problems
    problems = wrong(checked(place, private([1], {1: 2.5, 2: 1.0})))
    assert "privacy: ε is not known: rank(s) 2 have signed no account" in problems
    assert "policy: epsilon <= 10: epsilon not known" in problems


@claim("privacy-signed", "With --dp-unit client ε is the server's word.")
def test_where_the_server_adds_the_noise_epsilon_is_marked_as_its_word(
    place: Path, tmp_path: Path
) -> None:
    def change(evidence: RunEvidence) -> RunEvidence:
        terms = {**evidence.terms, "algorithm": "fl-gan", "dp_unit": "client"}
        terms |= {"dp_epsilon": 3.0, "dp_delta": 1e-4, "dp_clip": 1.0}
        answers = signed_anew(place, evidence, terms=terms)
        told = {"epsilon": {0: 0.1}, "audit": None, "samples": None}
        return msgspec.structs.replace(evidence, terms=terms, attestations=answers, **told)

    printed = lines(place, resealed(place, tmp_path / "b", change))
    assert (
        "ε = 0.1 at most, δ = 0.0001: the server's word alone, as with --dp-unit client" in printed
    )
    assert "policy: epsilon <= 10: epsilon = 0.1, the server's word" in printed


class Others(torch.nn.Module):
    """A program that gives samples of its own whatever the generator would."""

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return z[:, :64].reshape(-1, 1, 8, 8).clamp(-1, 1)


@claim("made-again", "Nothing in the bundle is run.")
@claim("made-again", "All other files are made again and compared, bit for bit.")
@claim(
    "unsigned",
    "Where no host has signed the bundle's generator (no certificates, moments, "
    "--no-generator), exit status is 1 unless you say --unsigned.",
)
def test_files_that_the_generator_does_not_give_are_named(place: Path, tmp_path: Path) -> None:
    own = place / "bundle"
    arrays = np.load(own / "samples.npz")["images"]
    arrays[7] = -arrays[7]
    program = torch.export.export(
        Others(), (torch.zeros(2, 100),), dynamic_shapes={"z": {0: torch.export.Dim("n", max=256)}}
    )
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    state = load_file(own / "generator.safetensors")
    attacks = {
        "generator.pt2": buffer.getvalue(),
        "samples.npz": npz_of(torch.from_numpy(arrays), None),
        "samples.png": (own / "samples.png").read_bytes() + b"a real sample",
        "card.md": (own / "card.md").read_bytes().replace(b"mdgan", b"MDGAN", 1),
        "card.html": (own / "card.html").read_bytes() + b"<p>Approved.</p>",
        "croissant.json": (own / "croissant.json").read_bytes().replace(b"1.0.0", b"1.0.1"),
        "generator.safetensors": save(state, metadata={"a": "real sample"}),
    }
    *made, weights = attacks
    for names in (made, [weights]):
        files = {name.replace(".", "_"): attacks[name] for name in names}
        bundle = resealed(place, tmp_path / names[0], same, **files, real_npz=b"real samples")
        problems = wrong(checked(place, bundle))
        for name in names:
            assert f"{name}: made again, it is another one" in problems, name
        assert "real.npz: is none that mdgan makes" in problems
    bundle = resealed(place, tmp_path / "less", generator_safetensors=None)
    assert "samples and cards: are the server's word" in wrong(checked(place, bundle))


class Bomb:
    """Makes a file where a pickle of it is read."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self._trace,)


@claim("made-again", "Nothing in the bundle is run.")
def test_no_file_of_a_bundle_can_run_code(place: Path, tmp_path: Path) -> None:
    trace, arrays = tmp_path / "trace", io.BytesIO()
    bomb = pickle.dumps(Bomb(trace))
    np.savez(arrays, images=np.array([Bomb(trace)], dtype=object))
    files = {"samples_npz": arrays.getvalue(), "generator_safetensors": bomb}
    for name, data in {**dict.fromkeys(("generator_pt2", "samples_png"), bomb), **files}.items():
        bundle = resealed(place, tmp_path / name, same, **{name: data})
        assert wrong(checked(place, bundle)), name
        assert not trace.exists(), name
    pickle.loads(bomb)
    assert trace.exists(), "the bomb works"


@claim("files-signatures", "hosts signed this run, and this generator or none.")
def test_a_server_does_not_sign_in_the_place_of_a_host(place: Path, tmp_path: Path) -> None:
    credentials = read_credentials(place / "ca" / "server.cred")

    def change(evidence: RunEvidence) -> RunEvidence:
        first, second = evidence.attestations
        account = {"epsilon": dict[str, float](), "replaced": dict[str, float]()}
        forged = attest(credentials, second.statement, second.said(), second.workers, account)
        return msgspec.structs.replace(evidence, attestations=[first, forged])

    problems = wrong(checked(place, resealed(place, tmp_path / "b", change)))
    assert "has not signed" in problems
    assert "policy: silent <= 0 if known: silent = 1" in problems


def test_what_the_server_says_beside_figures_stands_on_the_card(
    place: Path, tmp_path: Path
) -> None:
    bundle = resealed(place, tmp_path / "b", replaced(purpose="Approved for all uses."))
    assert "card.md: made again, it is another one" in wrong(checked(place, bundle))
    assert "the server's word" in lines(place, bundle)


@claim("made-again", "are made again and compared, bit for bit.")
def test_samples_that_differ_in_last_digits_are_others(place: Path, tmp_path: Path) -> None:
    arrays = np.load(place / "bundle" / "samples.npz")["images"]
    data = npz_of(torch.from_numpy(arrays * (1 - np.float32(1e-7))), None)
    bundle = resealed(place, tmp_path / "b", samples_npz=data)
    assert "samples.npz: made again, it is another one" in wrong(checked(place, bundle))
    elsewhere = {**versions(), "processor": "ANOTHER"}
    bundle = resealed(place, tmp_path / "c", replaced(versions=elsewhere), samples_npz=data)
    assert f"made with processor ANOTHER (here {versions()['processor']})" in wrong(
        checked(place, bundle)
    )


def with_scores(**scores: float) -> Callable[[RunEvidence], RunEvidence]:
    def change(evidence: RunEvidence) -> RunEvidence:
        row = evidence.scores or ScoresRow(iteration=1, n=1)
        return msgspec.structs.replace(evidence, scores=msgspec.structs.replace(row, scores=scores))

    return change


def test_no_score_stands_for_what_hosts_sign(place: Path, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text('require = ["epsilon <= 1", "delta <= 0.01"]\n')
    bundle = resealed(place, tmp_path / "b", with_scores(epsilon=0.5, delta=1e-9))
    problems = wrong(checked(place, bundle, policy=tmp_path / "own.toml"))
    assert "epsilon <= 1: epsilon not known" in problems
    assert "delta <= 0.01: delta not known" in problems


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"versions": {"mdgan": "1", "data": "all of it"}}, "mdgan writes no such versions"),
        ({"epsilon": {77: 1.0}}, "mdgan writes no such epsilon"),
        ({"purpose": "Good.\n\n## Who signed\n\nEverybody"}, "mdgan writes no such purpose"),
        ({"made": "0001-01-01T00:00:00+14:00"}, "makes no sense"),
        ({"state": "x" * 100}, "makes no sense"),
        ({"iteration": 10**6}, "but signed another iteration"),
    ],
)
def test_evidence_has_no_room_for_other_data(
    changes: dict[str, Any], says: str, place: Path, tmp_path: Path
) -> None:
    bundle = resealed(place, tmp_path / "b", replaced(**changes))
    assert says in wrong(checked(place, bundle))


def test_a_link_in_a_bundle_is_none_of_its_files(place: Path, tmp_path: Path) -> None:
    bundle = resealed(place, tmp_path / "b")
    (bundle / "card.md").rename(tmp_path / "card.md")
    (bundle / "card.md").symlink_to(tmp_path / "card.md")
    assert "card.md: cannot be read (it is a link)" in wrong(checked(place, bundle))


@claim("policy-yours", "The policy: yours (--policy FILE), or mdgan's, and not that in the bundle.")
def test_the_servers_policy_decides_nothing(place: Path, tmp_path: Path) -> None:
    bundle = resealed(place, tmp_path / "b", policy_toml=b"require = []\n")
    checks = checked(place, bundle)
    assert (True, "policy.toml: is not mdgan's own, and has 0 rule(s)") in checks
    assert "policy: audit_auc <= 0.6: audit_auc = " in lines(place, bundle)
    assert "card.md: made again, it is another one" in wrong(checks)


@claim(
    "unsigned",
    "Where no host has signed the bundle's generator (no certificates, moments, "
    "--no-generator), exit status is 1 unless you say --unsigned.",
)
@claim("exit-1", "exit status 1 if one does not hold.")
def test_an_unsigned_bundle_is_taken_only_by_those_who_say_so(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "bundle", tmp_path / "b")
    bundle = resealed(place, tmp_path / "c", replaced(attestations=[]))
    names = {path.name for path in bundle.iterdir()} - {MANIFEST_FILE, SIGNATURE_FILE}
    for name, data in seal({n: (bundle / n).read_bytes() for n in names}, None).items():
        (bundle / name).write_bytes(data)
    result = run_here("verify", str(bundle), cwd=place)
    assert result.status == 1
    assert "NO generator: no host has signed it: all that this bundle says" in result.output


def test_a_bundle_of_an_earlier_form_says_which_mdgan_checks_it(
    place: Path, tmp_path: Path
) -> None:
    bundle = tmp_path / "b"
    shutil.copytree(place / "bundle", bundle)
    old = b'{"figures": {}, "versions": {"mdgan": "0.6.0"}}'
    (bundle / "evidence.json").write_bytes(old)
    names = {path.name for path in bundle.iterdir()} - {MANIFEST_FILE, SIGNATURE_FILE}
    for name, data in seal({n: (bundle / n).read_bytes() for n in names}, None).items():
        (bundle / name).write_bytes(data)
    (line,) = wrong(checked(place, bundle)).splitlines()
    assert "check it with mdgan 0.6.0, which made it, or release the run again" in line


@claim("nothing-real", "scores, numbers and counts of tables are coarse")
def test_numbers_have_no_more_digits_than_they_measure(place: Path) -> None:
    evidence = msgspec.json.decode((place / "bundle" / "evidence.json").read_bytes())

    def numbers(value: object) -> list[float]:
        if isinstance(value, dict):
            return [n for each in value.values() for n in numbers(each)]
        if isinstance(value, list):
            return [n for each in value for n in numbers(each)]
        return [value] if isinstance(value, float) else []

    figures_read = numbers([evidence["scores"], evidence["audit"]])
    assert len(figures_read) > 20
    assert [n for n in figures_read if float(f"{n:.2g}") != n] == []
    assert evidence["samples"] == 1400


def test_the_terms_do_not_tell_which_data_were_trained_on() -> None:
    text = Statement("r", {"batch_size": 8, "data_sha256": "ab" * 32}, 3).text()
    assert "abab" not in text
    assert "batch_size" in text
