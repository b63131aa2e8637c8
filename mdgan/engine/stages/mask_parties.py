"""Which hosts a masked sum can have: others accept their keys, and each sets a least number."""

from collections.abc import Collection, Mapping

from mdgan.engine.server.engine import Engine
from mdgan.engine.server.peers import Peers
from mdgan.engine.stages.mask import Refusal
from mdgan.privacy.secure_settings import LEAST_PARTIES
from mdgan.records.values import in_words


def hosts_for_sums(members: Peers, among: Collection[int]) -> dict[int, int]:
    """Selects the hosts that can be in one sum, each with its least number of hosts in a sum.

    They have sent a key, or have not joined yet. A host whose least number is above the number of
    hosts is left out, and the others do not wait for it.
    """
    peers = {host: members.member(host) for host in among}
    parties = {h: int(m.key["least"]) if m else 0 for h, m in peers.items() if not m or m.key}
    while (most := max(parties.values(), default=0)) > len(parties):
        parties = {host: least for host, least in parties.items() if least < most}
    return parties


def least_of(hosts: Collection[int], members: Peers) -> int:
    """The least number of hosts in a sum of these hosts, so that none of them refuses it."""
    peers = (members.member(host) for host in hosts)
    return max([LEAST_PARTIES, *(int(m.key["least"]) for m in peers if m is not None and m.key)])


def least_parties(members: Peers) -> int:
    """The least number of hosts in a sum of all hosts that can be in one."""
    return least_of(hosts_for_sums(members, members.hosts()), members)


def heed_refusals(
    refusing: Mapping[int, Refusal], answered: Collection[int], engine: Engine
) -> None:
    """Blames hosts whose keys most others refuse; leaves other refusing hosts out of sums.

    The server has checked each key itself, so that a few hosts cannot shut another host out.
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
