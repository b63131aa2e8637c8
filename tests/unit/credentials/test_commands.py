"""`mdgan credentials`: the files that it writes, who may read them, and its refusals."""

import errno
import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NoReturn

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from mdgan.credentials.identity import read_credentials
from mdgan.credentials.permit import Permit, permit_of
from mdgan.credentials.revocations import Revocations
from tests.claims.registry import claim
from tests.processes import run_here


def answer(folder: Path, *arguments: str) -> str:
    """The one line that a command of the group answers."""
    done = run_here("credentials", *arguments, cwd=folder)
    assert (done.status, done.errors, done.output.count("\n")) == (0, "", 1), done
    return done.output


def refusal(folder: Path, *arguments: str) -> str:
    """The one line with which a command of the group is refused."""
    done = run_here("credentials", *arguments, cwd=folder)
    assert (done.status, done.output, done.errors.count("\n")) == (2, "", 1), done
    return done.errors


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def permit(path: Path) -> Permit:
    return permit_of(read_credentials(path).certificate)


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@claim("key-file", "readable by you alone")
@claim("key-file", "the key that signed it is thrown away")
def test_one_file_for_all_machines(tmp_path: Path) -> None:
    output = answer(tmp_path, "new", "run.cred", "--days", "2")
    path = tmp_path / "run.cred"
    assert output.startswith("run.cred: ")
    assert "copy it to each of them" in output
    assert mode_of(path) == 0o600
    assert [*contents(tmp_path)] == ["run.cred"]
    assert path.read_bytes().count(b"PRIVATE KEY-----") == 2, "the authority's is thrown away"
    identity = read_credentials(path)
    assert identity.by_name
    shared = permit_of(identity.certificate)
    assert (shared.name, shared.role, shared.ranks) == ("shared", None, None)
    assert "PRIVATE" not in repr(identity)
    assert shared.refusal("server", [0]) is shared.refusal("worker", [7]) is None


def test_an_authority_and_its_machines(tmp_path: Path) -> None:
    assert "mdgan credentials issue au NAME" in answer(tmp_path, "init", "au")
    folder = tmp_path / "au"
    assert mode_of(folder) == 0o700
    assert mode_of(folder / "ca.key") == 0o600
    assert answer(tmp_path, "issue", "au", "alice", "--ranks", "3,4").startswith("au/alice.cred: ")
    answer(tmp_path, "issue", "au", "main", "--role", "server", "--days", "30")
    answer(tmp_path, "issue", "au", "spare", "--role", "standby", "--hours", "12")
    assert mode_of(folder / "alice.cred") == 0o600
    results = [permit(folder / f"{name}.cred") for name in ("alice", "main", "spare")]
    assert [(one.name, one.role, one.ranks) for one in results] == [
        ("alice", "worker", {3, 4}),
        ("main", "server", None),
        ("spare", "standby", None),
    ]
    assert len({one.serial for one in results}) == 3
    authorities = {read_credentials(folder / f"{one.name}.cred").authorities for one in results}
    assert authorities == {(folder / "ca.pem").read_bytes()}


def test_what_a_certificate_is_made_of(tmp_path: Path) -> None:
    answer(tmp_path, "init", "au", "--days", "10")
    answer(tmp_path, "issue", "au", "alice", "--ranks", "3..4", "--hours", "12")
    answer(tmp_path, "issue", "au", "bob", "--days", "400")
    ca, bob = (
        x509.load_pem_x509_certificate((tmp_path / "au" / name).read_bytes())
        for name in ("ca.pem", "issued/bob.pem")
    )
    assert bob.not_valid_after_utc == ca.not_valid_after_utc, "none outlives its authority"
    now = datetime.now(UTC)
    made = x509.load_pem_x509_certificate((tmp_path / "au" / "issued" / "alice.pem").read_bytes())
    assert abs(made.not_valid_before_utc - now + timedelta(minutes=5)) < timedelta(minutes=2)
    assert abs(made.not_valid_after_utc - now - timedelta(hours=12)) < timedelta(minutes=2)
    key = made.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert isinstance(key.curve, ec.SECP256R1)
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [name.value for name in names] == [
        *("mdgan-host", "mdgan:role:worker", "mdgan:rank:3", "mdgan:rank:4")
    ]
    assert not made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    usage = made.extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.digital_signature
    assert not usage.key_cert_sign


def test_who_is_revoked_stands_in_the_list(tmp_path: Path) -> None:
    answer(tmp_path, "init", "au")
    for name in ("alice", "bob", "carol"):
        answer(tmp_path, "issue", "au", name)
    alice, bob, carol = (
        permit(tmp_path / "au" / f"{name}.cred") for name in ("alice", "bob", "carol")
    )
    (tmp_path / "au" / "alice.cred").rename(tmp_path / "alice.cred")  # to her machine
    path, authorities = tmp_path / "au" / "revoked.pem", (tmp_path / "au" / "ca.pem").read_bytes()
    revoked = Revocations(path, authorities)
    assert alice.serial not in revoked
    assert "--revoked au/revoked.pem" in answer(tmp_path, "revoke", "au", "alice")
    assert alice.serial in revoked
    assert bob.serial not in revoked
    answer(tmp_path, "revoke", "au", "bob")
    assert alice.serial in revoked
    assert bob.serial in revoked
    assert carol.serial not in revoked
    before = contents(tmp_path / "au")
    assert "is revoked already" in refusal(tmp_path, "revoke", "au", "alice")
    assert "has issued alice, bob, carol" in refusal(tmp_path, "revoke", "au", "dave")
    assert contents(tmp_path / "au") == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["issue", "au", "alice"], ["alice: au has issued this name already"]),
        (["issue", "au", "../mallory"], ["'../mallory'", "letters, digits"]),
        (["issue", "au", "x" * 64], ["up to 63 letters"]),
        (["issue", "au", "mdgan-server"], ["'mdgan-server'"]),
        (["issue", "au", "m", "--role", "server", "--ranks", "1"], ["--ranks 1", "server"]),
        (["issue", "au", "m", "--ranks", "0"], ["--ranks 0", "--role server"]),
        (["issue", "au", "m", "--ranks", ""], ["--ranks"]),
        (["issue", "au", "m", "--ranks", "1..2000"], ["2000 are too many", "leave --ranks out"]),
        (["issue", "au", "m", "--days", "1", "--hours", "1"], ["--hours 1", "--days 1"]),
        (["issue", "nowhere", "m"], ["nowhere", "mdgan credentials init nowhere"]),
        (["revoke", "nowhere", "m"], ["nowhere", "mdgan credentials init nowhere"]),
        (["revoke", "au", "../alice"], ["'../alice'"]),
        (["init", "au"], ["au: is not empty", "new folder"]),
        (["init", "no/au"], ["no/au: cannot write there"]),
        (["new", "au/alice.cred"], ["au/alice.cred: is there already", "another name"]),
        (["new", "no/run.cred"], ["no/run.cred: cannot write there"]),
        (["show", "au/ca.key"], ["au/ca.key: holds no certificate"]),
        (["show", "au"], ["au: cannot be read"]),
    ],
    ids=lambda value: " ".join(value)[:40],
)
def test_what_cannot_work_is_refused(tmp_path: Path, arguments: list[str], says: list[str]) -> None:
    answer(tmp_path, "init", "au")
    answer(tmp_path, "issue", "au", "alice")
    before = contents(tmp_path)
    message = refusal(tmp_path, *arguments)
    for part in says:
        assert part in message
    assert contents(tmp_path) == before


@claim("key-file", "Keys that other users can read are refused.")
def test_a_key_of_an_authority_that_others_can_read(tmp_path: Path) -> None:
    answer(tmp_path, "init", "au")
    (tmp_path / "au" / "ca.key").chmod(0o644)
    assert "chmod 600 au/ca.key" in refusal(tmp_path, "issue", "au", "alice")


def test_a_list_that_was_tampered_with_is_not_signed_anew(tmp_path: Path) -> None:
    for folder in ("au", "other"):
        answer(tmp_path, "init", folder)
    answer(tmp_path, "issue", "au", "alice")
    (tmp_path / "other" / "revoked.pem").replace(tmp_path / "au" / "revoked.pem")
    assert "au/revoked.pem: is not signed" in refusal(tmp_path, "revoke", "au", "alice")


def full_disk(_descriptor: int) -> NoReturn:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(tmp_path, "init", "au")
    answer(tmp_path, "issue", "au", "bob")
    before = contents(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full_disk)
        for arguments in (
            ["new", "run.cred"],
            ["init", "second"],
            ["issue", "au", "alice"],
            ["revoke", "au", "bob"],
        ):
            assert "free some space there" in refusal(tmp_path, *arguments)
            assert contents(tmp_path) == before
    for arguments in (["init", "second"], ["issue", "au", "alice"], ["revoke", "au", "bob"]):
        answer(tmp_path, *arguments)
