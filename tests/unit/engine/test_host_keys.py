"""Hosts agree on keys that the server passes on; it can neither exchange nor use them."""

import json
from typing import Any

import pytest
import torch
from torch import Tensor

from mdgan.credentials.identity import Identity
from mdgan.engine.host_keys import HostKeys, NotMasked, run_digest
from tests.unit.credentials.test_signing import ANOTHER, AUTHORITY, issued

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
        "tells keys that are none": {**bobs, "key": "x"},
        "is refused: ": {**bobs, "key": "00" * 32},
        "a key of this host's own": {**bobs, "workers": [1]},
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


def test_tensors_travel_sealed() -> None:
    one, two = pair()
    fields, sealed = one.seal_tensors(2, "swap", 5, STATE)
    assert sealed.keys() == {"sealed"}
    clear = STATE["weight"].numpy().tobytes()
    assert clear not in sealed["sealed"].numpy().tobytes()
    opened = two.unseal_tensors(1, "swap", 5, fields, sealed)
    assert opened.keys() == STATE.keys()
    for name, tensor in STATE.items():
        assert torch.equal(opened[name], tensor)
        assert opened[name].dtype == tensor.dtype
    altered = sealed["sealed"].clone()
    altered[50] ^= 1
    shapes = [*fields["layout"][1:], fields["layout"][0]]
    for use, i, lied, tensors in (
        ("copy", 5, fields, sealed),
        ("swap", 6, fields, sealed),
        ("swap", 5, {"layout": shapes}, sealed),
        ("swap", 5, {}, sealed),
        ("swap", 5, fields, {"sealed": altered}),
        ("swap", 5, fields, {}),
    ):
        with pytest.raises(ValueError, match=r".*"):
            two.unseal_tensors(1, use, i, lied, tensors)
    with pytest.raises(ValueError, match=r".*"):
        two.unseal_tensors(3, "swap", 5, fields, sealed)


@pytest.mark.parametrize(
    "layout",
    [
        [["x", "float32", [-1, -4]]],
        [["x", "float32", [5]]],
        [["x", "float64", [1]], ["y", "float32", [1]], ["z", "float32", [9]]],
        [["x", "object", [4]]],
    ],
)
def test_a_partner_that_lies_about_shapes_gives_nothing(layout: Any) -> None:
    one, two = pair()
    context = json.dumps(["swap", 5, 1, 2, layout]).encode()
    sealed = torch.frombuffer(bytearray(one.seal(2, context, bytes(16))), dtype=torch.uint8)
    with pytest.raises(ValueError, match="cannot be read"):
        two.unseal_tensors(1, "swap", 5, {"layout": layout}, {"sealed": sealed})
