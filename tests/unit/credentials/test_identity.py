"""The certificates that a process reads at its start; it refuses wrong ones in one line."""

from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from hypothesis import given
from hypothesis import strategies as st

from mdgan.credentials import files
from mdgan.credentials.authority import make_authority
from mdgan.credentials.files import write_shared
from mdgan.credentials.identity import Identity, read_credentials, read_own_pki
from mdgan.credentials.pem import key_pem, now, pem_of
from mdgan.credentials.permit import permit_of
from mdgan.errors import BadInput
from tests.claims.registry import claim

DAY = timedelta(days=1)
AUTHORITY, OTHER = make_authority(DAY, now()), make_authority(DAY, now())
CERTIFICATE, KEY = AUTHORITY.issue("alice", "worker", [3], DAY, now())
WHOLE = key_pem(KEY) + pem_of(CERTIFICATE, AUTHORITY.certificate)


def refusal(path: Path) -> str:
    with pytest.raises(BadInput) as refused:
        read_credentials(path)
    message = str(refused.value)
    assert "\n" not in message
    assert str(path) in message
    return message


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
@claim("key-file", "Keys that other users can read are refused.")
def test_a_key_that_others_can_read_or_write(tmp_path: Path, mode: int) -> None:
    path = written(tmp_path / "run.cred", WHOLE)
    path.chmod(mode)
    assert f"chmod 600 {path}" in refusal(path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "holds no certificate"),
        (b"a secret\n", "holds no certificate"),
        (key_pem(KEY), "holds no certificate"),
        (pem_of(CERTIFICATE, AUTHORITY.certificate), "holds no private key"),
        (WHOLE + key_pem(KEY), "holds 2 private keys"),
        (key_pem(KEY) + pem_of(CERTIFICATE), "was not made by `mdgan credentials`"),
        (key_pem(OTHER.key) + WHOLE.removeprefix(key_pem(KEY)), "does not belong to"),
        (key_pem(KEY) + pem_of(CERTIFICATE, OTHER.certificate), "is not signed by the authority"),
        (bytes(2**20 + 1), "is larger than"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_file_of_credentials(tmp_path: Path, content: bytes, says: str) -> None:
    assert says in refusal(written(tmp_path / "run.cred", content))


def test_expired_and_not_yet_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(name: str, after: timedelta) -> Path:
        """As a machine makes it whose clock is ahead by so much."""
        monkeypatch.setattr(files, "now", lambda: clock + after)
        write_shared(tmp_path / name, DAY)
        return tmp_path / name

    clock = now()
    old, end = made("old.cred", -2 * DAY), clock - DAY
    message = refusal(old)
    assert f"expired at {end:%Y-%m-%d %H:%M} UTC" in message
    assert f"this machine's clock says {clock:%Y-%m-%d}" in message
    message = refusal(made("new.cred", DAY))
    assert f"valid from {clock + DAY - timedelta(minutes=5):%Y-%m-%d %H:%M} UTC" in message
    assert "the clocks differ" in message
    assert read_credentials(made("slow.cred", timedelta(minutes=4))).by_name


@given(st.data())
def test_mutated_files_are_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        if data.draw(st.booleans()):
            content[place] = data.draw(st.integers(0, 255))
        else:
            del content[place : place + data.draw(st.integers(1, 200))]
    path = tmp_path_factory.getbasetemp() / "mutated"
    written(path, bytes(content))
    message = ""
    try:
        assert read_credentials(path).certificate == pem_of(CERTIFICATE)
    except BadInput as error:
        message = str(error)
    assert "\n" not in message


class OwnPki:
    """The three files, given one by one, beside an authority of others."""

    def __init__(self, folder: Path) -> None:
        self.ca = written(folder / "ca.pem", pem_of(OTHER.certificate, AUTHORITY.certificate))
        self.certificate = written(folder / "me.pem", pem_of(CERTIFICATE))
        self.key = written(folder / "me.key", key_pem(KEY))

    def read(self) -> Identity:
        return read_own_pki(self.ca, self.certificate, self.key)

    def refusal(self) -> str:
        with pytest.raises(BadInput) as refused:
            self.read()
        assert "\n" not in str(refused.value)
        return str(refused.value)


def test_own_pki(tmp_path: Path) -> None:
    own_file = OwnPki(tmp_path)
    identity = own_file.read()
    assert not identity.by_name
    assert identity.authorities == own_file.ca.read_bytes()
    assert permit_of(identity.certificate).name == "alice"
    own_file.ca.chmod(0o644)
    own_file.certificate.chmod(0o644)
    assert own_file.read() == identity


def test_own_pki_that_cannot_work(tmp_path: Path) -> None:
    own_file = OwnPki(tmp_path)
    written(own_file.ca, pem_of(OTHER.certificate))
    assert f"{own_file.certificate}: the certificate is not signed by" in own_file.refusal()
    own_file = OwnPki(tmp_path)
    written(own_file.key, key_pem(rsa.generate_private_key(65537, 2048)))
    told = own_file.refusal()
    assert (
        f"{own_file.key}: the key does not belong to the certificate {own_file.certificate}" in told
    )
    secret = KEY.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password")
    )
    written(own_file.key, secret)
    assert "openssl pkey -in" in own_file.refusal()
    own_file.key.chmod(0o644)
    assert f"chmod 600 {own_file.key}" in own_file.refusal()
    own_file.key.unlink()
    assert f"{own_file.key}: does not exist" in own_file.refusal()


def test_own_pki_with_an_old_form_of_key_and_one_between(tmp_path: Path) -> None:
    """OpenSSL writes `EC PRIVATE KEY`, often after a block of parameters."""
    own_file = OwnPki(tmp_path)
    old = KEY.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    parameters = b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"
    written(own_file.key, parameters + old)
    written(own_file.certificate, pem_of(CERTIFICATE, AUTHORITY.certificate))
    assert own_file.read().certificate.count(b"BEGIN") == 2
