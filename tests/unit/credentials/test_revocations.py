"""The list of revoked certificates, which a server reads while it runs."""

import logging
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from mdgan.credentials.authority import Authority, make_authority
from mdgan.credentials.pem import now, pem_of
from mdgan.credentials.revocations import Revocations
from mdgan.errors import BadInput
from mdgan.storage.whole_file import write_whole

DAY = timedelta(days=1)
OURS, THEIRS = make_authority(DAY, now()), make_authority(DAY, now())
TRUSTED = pem_of(OURS.certificate)


def signed(authority: Authority, *serials: int, encoding: Encoding = Encoding.PEM) -> bytes:
    return authority.revoke([], now(), *serials).public_bytes(encoding)


@pytest.mark.parametrize("encoding", [Encoding.PEM, Encoding.DER])
def test_a_list_of_one_of_several_authorities(tmp_path: Path, encoding: Encoding) -> None:
    path = tmp_path / "revoked.pem"
    path.write_bytes(signed(OURS, 5, encoding=encoding))
    revoked = Revocations(path, pem_of(THEIRS.certificate, OURS.certificate))
    assert 5 in revoked
    assert 6 not in revoked


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "does not exist"),
        (b"", "no list"),
        (TRUSTED, "no list"),
        (signed(THEIRS, 5), "not signed"),
        (signed(OURS, 5)[:200], "no list"),
        (signed(OURS, 5, encoding=Encoding.DER)[:-1] + b"\0", "not signed|no list"),
    ],
)
def test_a_bad_list_at_the_start(tmp_path: Path, content: bytes | None, says: str) -> None:
    path = tmp_path / "revoked.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadInput, match=says) as refused:
        Revocations(path, TRUSTED)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


@given(place=st.integers(0), value=st.integers(0, 255), cut=st.integers(0, 200))
def test_damaged_lists(
    tmp_path_factory: pytest.TempPathFactory, place: int, value: int, cut: int
) -> None:
    good = signed(OURS, 5)
    place %= len(good)
    path = tmp_path_factory.getbasetemp() / "damaged"
    path.write_bytes(good[:place] + bytes([value]) + good[place + cut :])
    message = ""
    try:
        assert 5 in Revocations(path, TRUSTED)
    except BadInput as error:
        message = str(error)
    assert "\n" not in message


def test_a_list_that_turns_bad_keeps_the_last_good_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "revoked.pem"
    write_whole(path, signed(OURS, 5))
    revoked = Revocations(path, TRUSTED)
    for bad in (signed(THEIRS), signed(THEIRS, 7), b"", None):
        if bad is None:
            path.unlink()
        else:
            write_whole(path, bad)
        assert 5 in revoked
        assert 5 in revoked
        assert 7 not in revoked
    told = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(told) == 3, "one for each reason"
    assert all("the last good content is used" in record.getMessage() for record in told)
    write_whole(path, signed(OURS, 5, 6))
    assert 6 in revoked
