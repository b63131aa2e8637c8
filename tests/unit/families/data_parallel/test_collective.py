"""Members of a group exchange parts of tensors, notice lost members, and ignore strangers."""

import os
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
import torch
from torch import Tensor

from mdgan.families.data_parallel.collective import Collective, most_place_bytes
from mdgan.transport.base import LOOPBACK


def at_once(*works: Callable[[], bool]) -> list[bool]:
    """What members do at the same time."""
    with ThreadPoolExecutor(len(works)) as pool:
        return [done.result() for done in [pool.submit(work) for work in works]]


def connected(size: int) -> list[Collective]:
    members = [Collective(rank, size, LOOPBACK) for rank in range(size)]
    places = [member.place for member in members]
    assert max(map(len, places)) <= most_place_bytes(size)
    assert all(at_once(*(lambda m=member: m.connect(places) for member in members)))
    return members


def gather(members: Sequence[Collective], parts: Sequence[Tensor]) -> list[Tensor]:
    """What each member has when all have gathered."""
    wholes = [torch.zeros(len(parts) * len(parts[0])) for _ in parts]
    given = zip(members, wholes, parts, strict=True)
    assert all(at_once(*(lambda m=m, w=w, p=p: m.gather(w, p) for m, w, p in given)))
    return wholes


@pytest.mark.parametrize("size", [2, 5])
def test_every_member_has_all_parts(size: int) -> None:
    parts = [torch.full((3,), float(rank)) for rank in range(size)]
    result = gather(connected(size), parts)
    assert all(torch.equal(whole, torch.cat(parts)) for whole in result)


def test_parts_of_different_lengths_reach_whom_they_are_for() -> None:
    members = connected(3)
    lengths = [0, 2, 1]  # of what each member gives to each
    tensor = [torch.arange(3.0 * n) + 10 * n for n in lengths]
    taken = [torch.zeros(sum(lengths)) for _ in members]
    trades = zip(members, taken, tensor, lengths, strict=True)
    assert all(
        at_once(
            *(lambda m=m, t=t, g=g, n=n: m.trade(t, g, lengths, [n] * 3) for m, t, g, n in trades)
        )
    )
    for rank, own in enumerate(taken):
        expected = [
            vector[rank * n : (rank + 1) * n] for n, vector in zip(lengths, tensor, strict=True)
        ]
        assert torch.equal(own, torch.cat(expected))


def test_a_member_that_leaves_is_noticed() -> None:
    first, second = connected(2)
    second.close()
    whole, part = torch.zeros(6), torch.ones(3)
    assert not first.gather(whole, part)
    assert not first.trade(whole, whole.clone(), [3, 3], [3, 3]), "the group is of no use any more"
    assert not second.gather(whole, part)


@pytest.mark.parametrize("other", [None, b"", b"garbage" * 20, b"0" * 10_000])
def test_places_that_are_none(other: bytes | None) -> None:
    member = Collective(0, 2, LOOPBACK)
    assert not member.connect([member.place] if other is None else [member.place, other])
    assert not member.gather(torch.zeros(6), torch.ones(3))


def test_an_address_of_another_machine() -> None:
    member = Collective(0, 2, "192.0.2.1")
    assert member.place == b""
    assert not member.connect([b"", b""])


def test_strangers_change_nothing() -> None:
    before = listening()
    members = connected(3)
    opened = listening() - before
    assert {address for address, _ in opened} == {LOOPBACK}
    random = bytes(torch.randint(256, (4000,), generator=torch.manual_seed(0)).tolist())
    strangers = [socket.create_connection(place) for place in sorted(opened) * 3]
    for stranger, said in zip(strangers, [b"", bytes(8), random] * len(opened), strict=True):
        stranger.sendall(said)
    parts = [torch.arange(1000.0)] * 3
    assert all(torch.equal(whole, torch.cat(parts)) for whole in gather(members, parts))
    for stranger in strangers:
        stranger.close()
    assert all(torch.equal(whole, torch.cat(parts)) for whole in gather(members, parts))


def listening() -> set[tuple[str, int]]:
    """Where this process listens."""
    result = psutil.Process(os.getpid()).net_connections("tcp")
    return {(c.laddr.ip, c.laddr.port) for c in result if c.status == psutil.CONN_LISTEN}
