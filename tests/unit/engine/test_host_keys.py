"""Keys that hosts agree on, and masks that cancel in the sum of all and nowhere else."""

import os
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mdgan.credentials.identity import Identity
from mdgan.engine.host_keys import HostKeys, NotMasked, run_digest
from mdgan.messages import Message
from mdgan.privacy.masks import (
    LIMBS,
    PRIME,
    Limbs,
    Mask,
    as_secret,
    masked,
    put_together,
    shared,
    sign_between,
    without_masks,
)
from tests.claims.registry import claim
from tests.marks import examples
from tests.unit.credentials.test_signing import ANOTHER, AUTHORITY, issued

P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
RUN = run_digest({"run": "digits", "generation": 1}, {"seed": 0})
ALICE, BOB, CARA = (issued(AUTHORITY, "worker", n) for n in (1, 2, 3))
SERVER, SHARED = issued(AUTHORITY, "server"), issued(AUTHORITY, None)


def hosts(**identities: Identity | None) -> dict[str, tuple[HostKeys, dict[str, Any]]]:
    """By name, a host's keys, and what it tells of them."""
    results = {}
    for number, (name, identity) in enumerate(identities.items(), 1):
        keys = HostKeys([number], identity)
        results[name] = keys, keys.make_key(RUN)
    return results


def pair(one: Identity | None = None, two: Identity | None = None) -> tuple[HostKeys, HostKeys]:
    keys = hosts(one=one, two=two)
    (first, told), (second, told_too) = keys["one"], keys["two"]
    first.learn([told_too])
    second.learn([told])
    return first, second


@pytest.mark.parametrize(("one", "two"), [(None, None), (ALICE, BOB), (SHARED, SHARED)])
def test_two_hosts_have_secrets_of_their_own(one: Identity | None, two: Identity | None) -> None:
    first, second = pair(one, two)
    assert first.derived(2, b"a use") == second.derived(1, b"a use") != first.derived(2, b"other")
    assert first.keys_of([1, 2]) == second.keys_of([1, 2])
    sealed = first.seal(2, b"context", b"text")
    assert second.unseal(1, b"context", sealed) == b"text"
    for bad in (sealed[:-1], sealed[:5], b"", sealed[:-1] + bytes([sealed[-1] ^ 1])):
        with pytest.raises(ValueError, match="host 1 has not sealed this for host 2"):
            second.unseal(1, b"context", bad)
    for reader, sender, context in ((second, 1, b"other"), (first, 2, b"context")):
        with pytest.raises(ValueError, match="has not sealed this"):
            reader.unseal(sender, context, sealed)


@claim("what-is-answered", "whose certificates differ and sign their keys")
def test_the_server_cannot_put_its_own_key_in_between(caplog: pytest.LogCaptureFixture) -> None:
    """It can only take keys that a worker's certificate has signed for this run and these ranks."""
    keys = hosts(alice=ALICE, bob=BOB)
    (alice, _), (_, bobs) = keys["alice"], keys["bob"]
    own = HostKeys([2], None).make_key(RUN)
    other_run = run_digest({"run": "digits", "generation": 2}, {"seed": 0})
    lies: dict[str, dict[str, Any]] = {
        "its certificate does not count": own,
        "the signature is not that of its certificate": {**bobs, "key": own["key"]},
        "is that of a server, not of a worker": HostKeys([2], SERVER).make_key(RUN),
        "names no role, as that of a worker does": HostKeys([2], SHARED).make_key(RUN),
        "names rank 3, not 2": HostKeys([2], CARA).make_key(RUN),
        "certificate does not count": HostKeys([2], issued(ANOTHER)).make_key(RUN),
        "signature is not": HostKeys([2], BOB).make_key(other_run),
        "is refused: ": {**bobs, "key": "00" * 32},
        "it is written otherwise": {**bobs, "key": with_another_bit(bobs["key"])},
    }
    for why, lie in lies.items():
        alice.learn([bobs])
        assert (alice.knows(2), alice.refused) == (True, set())
        alice.learn([lie])
        assert (alice.knows(2), alice.refused) == (False, {2})
        assert why in caplog.text
        caplog.clear()


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"key": "x"}, "sends malformed keys"),
        ({"key": "ab" * 32 + "\n"}, "sends malformed keys"),
        ({"workers": [1]}, "a key in this host's name"),
    ],
)
def test_a_server_that_cannot_be_honest_is_not_answered(changed: dict[str, Any], why: str) -> None:
    keys = hosts(alice=ALICE, bob=BOB)
    with pytest.raises(NotMasked, match=why):
        keys["alice"][0].learn([{**keys["bob"][1], **changed}])


def with_another_bit(key: str) -> str:
    """The same point, written otherwise: X25519 leaves out the highest bit."""
    return key[:-2] + f"{int(key[-2:], 16) | 128:02x}"


@claim("what-is-answered", "whose certificates differ and sign their keys")
def test_two_hosts_of_a_sum_have_two_certificates() -> None:
    twin = issued(AUTHORITY, "worker", 2, 3)
    keys = hosts(alice=ALICE, twin=twin, other=twin)
    alice = keys["alice"][0]
    alice.learn([keys["twin"][1], keys["other"][1]])
    assert alice.keys_of([1, 2])
    with pytest.raises(NotMasked, match="two with the same key or certificate"):
        alice.keys_of([1, 2, 3])


@claim("what-is-answered", "whose certificates differ and sign their keys")
def test_one_certificate_signed_twice_is_one() -> None:
    """From an ECDSA signature (r, s) a stranger can make another valid one: (r, n - s)."""
    eve = issued(AUTHORITY, "worker")
    twin = replace(eve, certificate=signed_otherwise(eve.certificate))
    alice = HostKeys([1], issued(AUTHORITY, "worker", 1))
    alice.make_key(RUN)
    alice.learn([HostKeys([2], eve).make_key(RUN), HostKeys([3], twin).make_key(RUN)])
    assert twin.certificate != eve.certificate
    with pytest.raises(NotMasked, match="two with the same key or certificate"):
        alice.keys_of([1, 2, 3])


def signed_otherwise(pem: bytes) -> bytes:
    certificate = x509.load_pem_x509_certificate(pem)
    der, body = certificate.public_bytes(Encoding.DER), certificate.tbs_certificate_bytes
    r, s = decode_dss_signature(certificate.signature)
    bits = b"\0" + encode_dss_signature(r, P256_ORDER - s)
    algorithm = der[der.index(body) + len(body) : -len(certificate.signature) - 3]
    whole = body + algorithm + b"\x03" + bytes([len(bits)]) + bits
    other = b"\x30\x82" + len(whole).to_bytes(2, "big") + whole
    return x509.load_der_x509_certificate(other).public_bytes(Encoding.PEM)


def test_one_key_for_two_hosts_is_refused() -> None:
    keys = HostKeys([1])
    keys.make_key(RUN)
    told = HostKeys([2]).make_key(RUN)
    keys.learn([told, {**told, "workers": [3]}])
    with pytest.raises(NotMasked, match="two with the same key"):
        keys.keys_of([1, 2, 3])


STATE: dict[str, Tensor] = {
    "weight": torch.randn(3, 4),
    "half": torch.randn(5).to(torch.bfloat16),
    "step": torch.tensor(7.0),
    "count": torch.tensor([1, 2]),
    "mask": torch.tensor([True, False]),
    "nothing": torch.empty(0),
}


def test_messages_travel_sealed() -> None:
    one, two = pair()
    sealed = one.seal_message(2, Message("SWAP", 5, {"a": 1}, STATE))
    assert STATE["weight"].numpy().tobytes() not in sealed.numpy().tobytes()
    opened = two.unseal_message(1, "SWAP", 5, sealed)
    assert (opened.kind, opened.iteration, opened.fields) == ("SWAP", 5, {"a": 1})
    assert opened.tensors.keys() == STATE.keys()
    for name, tensor in STATE.items():
        assert torch.equal(opened.tensors[name], tensor)
        assert opened.tensors[name].dtype == tensor.dtype
    altered = sealed.clone()
    altered[50] ^= 1
    for giver, kind, i, content in (
        (1, "COPY", 5, sealed),
        (1, "SWAP", 6, sealed),
        (1, "SWAP", 5, altered),
        (1, "SWAP", 5, torch.empty(0)),
        (3, "SWAP", 5, sealed),
    ):
        with pytest.raises(ValueError, match=r".*"):
            two.unseal_message(giver, kind, i, content)
    with pytest.raises(ValueError, match=r".*"):
        one.unseal_message(2, "SWAP", 5, sealed)


@pytest.mark.parametrize("text", [b"", b"no message", (1 << 40).to_bytes(8, "little") + b"{}"])
def test_a_partner_that_seals_no_message_gives_nothing(text: bytes) -> None:
    one, two = pair()
    sealed = one.seal(2, b"SWAP of 5 from 1 to 2", text)
    with pytest.raises(ValueError, match="host 1 gives"):
        two.unseal_message(1, "SWAP", 5, torch.tensor(list(sealed), dtype=torch.uint8))


quick = settings(deadline=None, max_examples=examples(16))
bytes_of_secrets = st.binary(min_size=32, max_size=32)


@quick
@given(data=st.data(), secrets=st.lists(bytes_of_secrets, min_size=1, max_size=4))
def test_any_t_holders_put_the_secrets_together(data: st.DataObject, secrets: list[bytes]) -> None:
    num_holders = data.draw(st.integers(1, 12))
    threshold = data.draw(st.integers(1, num_holders))
    true = np.stack([as_secret(each) for each in secrets])
    rows = shared(true, threshold, num_holders)
    holders = data.draw(st.permutations(range(num_holders)))[:threshold]
    result = put_together(rows[holders], [1 + holder for holder in holders])
    assert result.dtype == true.dtype
    assert (result == true).all()


@quick
@given(bytes_of_secrets, bytes_of_secrets, st.integers(2, 6))
def test_fewer_shares_fit_every_secret(one: bytes, other: bytes, threshold: int) -> None:
    """For t - 1 shares of one secret there is a polynomial through them and any other secret."""
    rows = shared(as_secret(one), threshold, threshold)
    seen, points = rows[: threshold - 1], list(range(1, threshold))
    # The share at the last point that would make it the other secret, by linearity.
    zeros = np.zeros((threshold - 1, 1, LIMBS), dtype=np.uint16)
    unit = np.ones((1, 1, LIMBS), dtype=np.uint16)
    of_seen = put_together(np.concatenate([seen, 0 * unit]), [*points, threshold]).astype(int)
    weight = int(put_together(np.concatenate([zeros, unit]), [*points, threshold])[0, 0])
    last = (as_secret(other).astype(int) - of_seen) * pow(weight, -1, PRIME) % PRIME
    fitting = np.concatenate([seen, last.reshape(1, 1, LIMBS).astype(np.uint16)])
    assert (put_together(fitting, [*points, threshold]) == as_secret(other)).all()


def test_shares_of_equal_secrets_are_spread_alike_over_the_field() -> None:
    """A share is even over all numbers, whatever the secret: its mean is within six deviations."""
    for secret in (bytes(32), b"\xff" * 32, bytes(range(32))):
        secrets = np.repeat(as_secret(secret)[None], 1440, axis=0)
        rows = shared(secrets, 3, 4).astype(float)
        error = PRIME / np.sqrt(12 * 1440 * LIMBS)
        assert (abs(rows.mean(axis=(1, 2)) - (PRIME - 1) / 2) < 6 * error).all()


@pytest.mark.parametrize("num_hosts", [50, 200])
def test_many_holders(num_hosts: int) -> None:
    secret = as_secret(b"\xfe" * 32)
    threshold = 2 * num_hosts // 3 + 1
    rows = shared(secret, threshold, num_hosts)[-threshold:]
    points = list(range(num_hosts - threshold + 1, num_hosts + 1))
    assert (put_together(rows, points) == secret).all()


def seed() -> Limbs:
    return as_secret(os.urandom(32))


def all_masked(addends: list[Tensor]) -> tuple[list[Tensor], list[Limbs]]:
    """What hosts send, and each one's own seed."""
    hosts = range(len(addends))
    own, pairs = [seed() for _ in hosts], {pair: seed() for pair in combinations(hosts, 2)}
    sent = []
    for host, addend in enumerate(addends):
        between = [
            Mask(its, sign_between(host, sum(pair) - host))
            for pair, its in pairs.items()
            if host in pair
        ]
        sent.append(masked(addend, [Mask(own[host]), *between]))
    return sent, own


@settings(max_examples=examples(8), deadline=None)
@given(st.lists(st.integers(-(2**62), 2**62), min_size=3, max_size=5))
def test_the_sum_of_all_is_exact(values: list[int]) -> None:
    addends = [torch.tensor([value, -value, 0]) for value in values]
    sent, own = all_masked(addends)
    total = without_masks(dict(enumerate(sent)), map(Mask, own))
    true = sum(values)
    wrapped = [(x + 2**63) % 2**64 - 2**63 for x in (true, -true, 0)]
    assert total.tolist() == wrapped


def test_what_a_host_sends_is_evenly_spread_over_all_numbers() -> None:
    """Of 64,000 bits of a mask on zeros, half are set: 5 standard deviations are 632.5."""
    (sent, *_others), _ = all_masked([torch.zeros(1000, dtype=torch.int64)] * 3)
    ones = sum(bin(value % 2**64).count("1") for value in sent.tolist())
    assert abs(ones - 32_000) < 633


def test_each_seed_that_is_missing_hides_all() -> None:
    addends = [torch.full((50,), value) for value in (1, 2, 3, 4)]
    sent, own = all_masked(addends)
    for known in (own[1:], own[:0]):
        assert not (without_masks(dict(enumerate(sent)), map(Mask, known)).abs() < 2**40).any()
    without = dict(enumerate(sent[1:]))
    assert not (without_masks(without, map(Mask, own[1:])).abs() < 2**40).any()


def test_the_addend_stays_as_it_is() -> None:
    addend = torch.arange(6).view(2, 3)
    assert masked(addend, [Mask(seed())]).shape == (2, 3)
    assert torch.equal(addend, torch.arange(6).view(2, 3))
