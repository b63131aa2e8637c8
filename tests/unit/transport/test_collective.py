"""Members of a group add up, notice who is gone, and pass over strangers."""

import os
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
import torch
from torch import Tensor

from mdgan.transport.base import LOOPBACK
from mdgan.transport.collective import Collective, most_place_bytes


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


def add_up(members: Sequence[Collective], tensors: Sequence[Sequence[Tensor]]) -> list[bool]:
    pairs = zip(members, tensors, strict=True)
    return at_once(*(lambda m=member, t=given: m.add_up(*t) for member, given in pairs))


@pytest.mark.parametrize("size", [2, 5])
def test_every_member_has_the_sum(size: int) -> None:
    members = connected(size)
    whole = [torch.tensor([2**60 // size + rank, -rank]) for rank in range(size)]
    rough = [torch.tensor([0.5]).bfloat16() for _ in range(size)]
    empty = [torch.empty(0) for _ in range(size)]
    expected = torch.stack(whole).sum(0)
    assert all(add_up(members, list(zip(whole, empty, rough, strict=True))))
    assert all(torch.equal(found, expected) for found in whole)
    assert [found.item() for found in rough] == [size / 2] * size


def test_a_member_that_leaves_is_noticed() -> None:
    first, second = connected(2)
    second.close()
    assert not first.add_up(torch.ones(3))
    assert not first.add_up(torch.ones(3)), "the group is of no use any more"
    assert not second.add_up(torch.ones(3))


@pytest.mark.parametrize("other", [None, b"", b"garbage" * 20, b"0" * 10_000])
def test_places_that_are_none(other: bytes | None) -> None:
    member = Collective(0, 2, LOOPBACK)
    assert not member.connect([member.place] if other is None else [member.place, other])
    assert not member.add_up(torch.ones(3))


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
    numbers = [torch.arange(1000) for _ in members]
    assert all(add_up(members, [[tensor] for tensor in numbers]))
    assert all(torch.equal(tensor, 3 * torch.arange(1000)) for tensor in numbers)
    for stranger in strangers:
        stranger.close()
    assert all(add_up(members, [[tensor] for tensor in numbers]))


def listening() -> set[tuple[str, int]]:
    """Where this process listens."""
    found = psutil.Process(os.getpid()).net_connections("tcp")
    return {(c.laddr.ip, c.laddr.port) for c in found if c.status == psutil.CONN_LISTEN}
