"""Hosts agree on keys that the server passes on; it can neither exchange nor use them."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from cryptography.hazmat.primitives.serialization import Encoding
from torch import Tensor

from mdgan.credentials.identity import Identity
from mdgan.engine.host_keys import HostKeys, NotMasked, run_digest
from mdgan.messages import Message
from tests.unit.credentials.test_signing import ANOTHER, AUTHORITY, issued

P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
RUN = run_digest({"run": "digits", "generation": 1}, {"seed": 0})
ALICE, BOB, CARA = (issued(AUTHORITY, "worker", n) for n in (1, 2, 3))
SERVER, SHARED = issued(AUTHORITY, "server"), issued(AUTHORITY, None)


def hosts(**identities: Identity | None) -> dict[str, tuple[HostKeys, dict[str, Any]]]:
    """By name, a host's keys, and what it tells of them."""
    found = {}
    for number, (name, identity) in enumerate(identities.items(), 1):
        keys = HostKeys([number], identity)
        found[name] = keys, keys.begin(RUN)
    return found


def pair(one: Identity | None = None, two: Identity | None = None) -> tuple[HostKeys, HostKeys]:
    found = hosts(one=one, two=two)
    (first, told), (second, told_too) = found["one"], found["two"]
    first.learn([told_too])
    second.learn([told])
    return first, second


@pytest.mark.parametrize(("one", "two"), [(None, None), (ALICE, BOB), (SHARED, SHARED)])
def test_two_hosts_have_secrets_of_their_own(one: Identity | None, two: Identity | None) -> None:
    first, second = pair(one, two)
    assert first.derived(2, b"a use") == second.derived(1, b"a use") != first.derived(2, b"other")
    assert first.of([1, 2]) == second.of([1, 2])
    sealed = first.seal(2, b"context", b"text")
    assert second.unseal(1, b"context", sealed) == b"text"
    for bad in (sealed[:-1], sealed[:5], b"", sealed[:-1] + bytes([sealed[-1] ^ 1])):
        with pytest.raises(ValueError, match="host 1 has not sealed this for host 2"):
            second.unseal(1, b"context", bad)
    for reader, sender, context in ((second, 1, b"other"), (first, 2, b"context")):
        with pytest.raises(ValueError, match="has not sealed this"):
            reader.unseal(sender, context, sealed)


def test_the_server_cannot_put_its_own_key_in_between() -> None:
    """It can only take keys that a worker's certificate has signed for this run and these ranks."""
    found = hosts(alice=ALICE, bob=BOB)
    (alice, _), (_, bobs) = found["alice"], found["bob"]
    own = HostKeys([2], None).begin(RUN)
    other_run = run_digest({"run": "digits", "generation": 2}, {"seed": 0})
    lies: dict[str, dict[str, Any]] = {
        "its certificate does not count": own,
        "the signature is not that of its certificate": {**bobs, "key": own["key"]},
        "is that of a server, not of a worker": HostKeys([2], SERVER).begin(RUN),
        "names no role, as that of a worker does": HostKeys([2], SHARED).begin(RUN),
        "names rank 3, not 2": HostKeys([2], CARA).begin(RUN),
        "certificate does not count": HostKeys([2], issued(ANOTHER)).begin(RUN),
        "signature is not": HostKeys([2], BOB).begin(other_run),
        "sends malformed keys": {**bobs, "key": "x"},
        "is refused: ": {**bobs, "key": "00" * 32},
        "a key in this host's name": {**bobs, "workers": [1]},
    }
    for why, lie in lies.items():
        with pytest.raises(NotMasked, match=why):
            alice.learn([lie])
    alice.learn([bobs])
    assert alice.knows(2)


def test_two_hosts_of_a_sum_have_two_certificates() -> None:
    twin = issued(AUTHORITY, "worker", 2, 3)
    found = hosts(alice=ALICE, twin=twin, other=twin)
    alice = found["alice"][0]
    alice.learn([found["twin"][1], found["other"][1]])
    assert alice.of([1, 2])
    with pytest.raises(NotMasked, match="two with the same key or certificate"):
        alice.of([1, 2, 3])


def test_one_certificate_signed_twice_is_one() -> None:
    """Of an ECDSA signature (r, s) anyone can make another one that counts, too: (r, n - s)."""
    eve = issued(AUTHORITY, "worker")
    twin = replace(eve, certificate=signed_otherwise(eve.certificate))
    alice = HostKeys([1], issued(AUTHORITY, "worker", 1))
    alice.begin(RUN)
    alice.learn([HostKeys([2], eve).begin(RUN), HostKeys([3], twin).begin(RUN)])
    assert twin.certificate != eve.certificate
    with pytest.raises(NotMasked, match="two with the same key or certificate"):
        alice.of([1, 2, 3])


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
    keys.begin(RUN)
    told = HostKeys([2]).begin(RUN)
    keys.learn([told, {**told, "workers": [3]}])
    with pytest.raises(NotMasked, match="two with the same key"):
        keys.of([1, 2, 3])


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
    for giver, kind, i, given in (
        (1, "COPY", 5, sealed),
        (1, "SWAP", 6, sealed),
        (1, "SWAP", 5, altered),
        (1, "SWAP", 5, torch.empty(0)),
        (3, "SWAP", 5, sealed),
    ):
        with pytest.raises(ValueError, match=r".*"):
            two.unseal_message(giver, kind, i, given)
    with pytest.raises(ValueError, match=r".*"):
        one.unseal_message(2, "SWAP", 5, sealed)


@pytest.mark.parametrize("text", [b"", b"no message", (1 << 40).to_bytes(8, "little") + b"{}"])
def test_a_partner_that_seals_no_message_gives_nothing(text: bytes) -> None:
    one, two = pair()
    sealed = one.seal(2, b"SWAP of 5 from 1 to 2", text)
    with pytest.raises(ValueError, match="host 1 gives"):
        two.unseal_message(1, "SWAP", 5, torch.tensor(list(sealed), dtype=torch.uint8))
