"""What ledgers hold, which sums are sent again, and the noise that is left when some collude."""

import json
import sqlite3
from hashlib import sha256
from pathlib import Path

import pytest
import torch

from mdgan.engine.host_keys import HostKeys, NotMasked
from mdgan.privacy.ledger import look_up
from mdgan.privacy.ledger_file import FILE
from mdgan.privacy.shared_noise import NoiseSharing, variance_of_part
from tests.accounts import charges_in
from tests.claims.registry import claim
from tests.processes import check_refused, ended_well, run_here
from tests.unit.credentials.test_signing import AUTHORITY, issued
from tests.unit.engine.secure import RUN, Hosts
from tests.unit.privacy.test_clients import account, begin_rounds
from tests.unit.privacy.test_ledger import of, spend


def names_in(ledger: Path) -> set[bytes]:
    db = sqlite3.connect(ledger / FILE)
    try:
        return {name for (name,) in db.execute("SELECT key FROM samples")}
    finally:
        db.close()


@claim(
    "account", "knows every unit that was trained on with noise, by a salted hash of its content"
)
def test_names_in_a_ledger_are_those_of_no_other_one_and_no_plain_hashes(tmp_path: Path) -> None:
    numbers = range(2**250, 2**250 + 5)
    for name in ("one", "two"):
        spend(tmp_path / name, numbers, 1)
        assert all(look_up(tmp_path / name, of([number])).taken == 1 for number in numbers)
        assert look_up(tmp_path / name, of([2**251])).taken == 0
    one, two = names_in(tmp_path / "one"), names_in(tmp_path / "two")
    assert len(one) == len(two) == 5
    assert not one & two
    bytes_before = (tmp_path / "one" / FILE).read_bytes()
    for (digest,) in (of([number]).digests for number in numbers):
        assert digest not in bytes_before
        assert sha256(digest).digest() not in bytes_before


MOMENTS = [
    *("train", "--algorithm", "moments", "--architecture", "md-gan-mlp", "--width", "8"),
    *("--batch-size", "10", "--iterations", "2", "--threads", "1", "--sample-interval", "0"),
    *("--eval-interval", "0", "--set", "num_features=100", "--transport", "memory"),
    *("--world-size", "4", "--workers-per-host", "1", "--dp-delta", "1e-4", "--dp-ledger", "kept"),
]


@pytest.mark.parametrize("flags", [["--secure-aggregation"], ["--audit-canaries", "60"]], ids=str)
@claim("told-once", "The identical question is free, unless noise is shared.")
def test_what_was_told_in_parts_or_with_canaries_spends_again(
    tmp_path: Path, flags: list[str]
) -> None:
    pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")
    first = [*MOMENTS, *flags, "--dp-epsilon", "3"]
    ended_well(run_here(*first, "--out", "first", cwd=tmp_path), tmp_path / "first", 2)
    assert len(charges_in(tmp_path / "kept")) == 3
    check_refused(run_here(*first, "--out", "again", cwd=tmp_path), "have spent", "give more")
    more = [*MOMENTS, *flags, "--dp-epsilon", "6", "--out", "more"]
    ended_well(run_here(*more, cwd=tmp_path), tmp_path / "more", 2)
    assert sum(charge.steps for charge in charges_in(tmp_path / "kept")) == 6


@claim(
    "noise-left",
    "if certificates name their ranks (mdgan credentials issue --ranks) and a sum needs all "
    "workers.",
)
def test_no_certificate_stands_for_the_ranks_of_another_one() -> None:
    """Host 5 is honest; the server leaves it out, and host 4 says that it has that worker, too."""
    credentials = {host: issued(AUTHORITY, "worker", host) for host in range(1, 6)}
    hosts = Hosts(5, sharing=NoiseSharing(5), certificates=credentials)
    with pytest.raises(NotMasked, match="all but 4 of the 5 workers"):
        hosts.answer(1, torch.zeros(2, 3), hosts.question(parties={"0": [1, 2, 3, 4]}))
    liar = HostKeys([4, 5], credentials[4]).make_key(RUN)
    hosts.masks[1].keys.learn([liar])
    assert hosts.masks[1].keys.refused == {4}
    message = hosts.answer(1, torch.zeros(2, 3), hosts.question(2, parties={"0": [1, 2, 3, 4]}))
    assert not message.tensors


@pytest.mark.parametrize("sharers", [3, 4, 10, 100])
@claim(
    "sharers-left",
    "has a machine help with no sum of fewer; with K = M + c the stated ε holds against c of them.",
)
def test_a_server_that_chooses_the_sum_leaves_the_noise_of_all_but_c(sharers: int) -> None:
    noise = 5.0
    for liars in range(sharers):
        required = sharers + liars
        sharing = NoiseSharing(10 * required, sharers, required)
        assert sharing.lacking(10 * required, required - 1, sharers)
        assert not sharing.lacking(10 * required, required, sharers)
        honest = required - liars
        assert honest * variance_of_part(noise, noise, sharers) >= noise**2 * (1 - 1e-12)


def test_a_host_tells_the_server_numbers_alone_of_its_clients_past(tmp_path: Path) -> None:
    pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")
    host = account(tmp_path)
    begin_rounds(host, 0, 3)
    host.close()
    told = dict(account(tmp_path).tell())
    pasts = json.loads(json.dumps(told.pop("pasts")))
    ((order, charges),) = pasts
    assert charges == [[2.0, 0.5, 3]]
    assert isinstance(order, float)
    for (digest,) in (of([number]).digests for number in range(5)):
        assert digest.hex() not in json.dumps([told, pasts])
    assert not told or not any(isinstance(value, str) for value in told.values()), told
