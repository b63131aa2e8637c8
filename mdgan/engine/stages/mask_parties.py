"""Which hosts masked sums can have: those whose keys others accept, and as many as each wants."""

from collections.abc import Collection, Mapping

from mdgan.engine.server.engine import Engine
from mdgan.engine.server.peers import Peers
from mdgan.engine.stages.mask import Refusal
from mdgan.privacy.secure_settings import LEAST_PARTIES
from mdgan.records.values import in_words


def able_hosts(members: Peers, among: Collection[int]) -> dict[int, int]:
    """Those of some hosts that one sum can have, each with how many hosts it wants in a sum.

    They have told a key. One that wants more hosts than there are is left out, not waited for. One
    that is not here yet is taken to be like others.
    """
    known = {host: members.member(host) for host in among}
    able = {h: 0 if m is None else int(m.key["least"]) for h, m in known.items() if not m or m.key}
    while (most := max(able.values(), default=0)) > len(able):
        able = {host: least for host, least in able.items() if least < most}
    return able


def least_of(hosts: Collection[int], members: Peers) -> int:
    """How many hosts each of these would have in a sum."""
    known = (members.member(host) for host in hosts)
    return max([LEAST_PARTIES, *(int(m.key["least"]) for m in known if m is not None and m.key)])


def least_parties(members: Peers) -> int:
    """How many hosts a sum takes: as many as the host that insists on most, and can have them."""
    return least_of(able_hosts(members, members.hosts()), members)


def heed_refusals(
    refusing: Mapping[int, Refusal], answered: Collection[int], engine: Engine
) -> None:
    """Goes on without hosts whose keys most others refuse, or else without those that refuse.

    The server has checked each key itself, so that a few hosts cannot shut another one out.
    """
    peers = engine.peers
    num_owners, blamed = len({peers.identity(host) for host in answered}), set[int]()
    for host in sorted(frozenset().union(*refusing.values())):
        by = {peers.identity(h) for h, refused in refusing.items() if host in refused}
        if 2 * len(by) >= num_owners:
            blamed.add(host)
            peers.blame(host, "most other hosts refuse its key")
    for host, refused in refusing.items():
        if (others := refused - blamed) and (member := peers.member(host)) is not None:
            member.key = {}
            engine.note(
                f"host {host} takes part in no sum until it joins again: it refuses the key of "
                f"host(s) {in_words(sorted(others))}, which the server accepts"
            )
    engine.handle_losses()
