"""The keys of hosts for each other, as the server passes them on; see `host_keys.py`."""

from collections.abc import Callable, Collection
from typing import Any

import msgspec

from mdgan.credentials.identity import Identity
from mdgan.engine.host_keys import SignedKey, check_key
from mdgan.engine.server.hosts import in_words
from mdgan.engine.server.peers import Peers
from mdgan.messages import Kind, Message


def take_key(members: Peers, host: int, told: Any, trusts: Identity | None) -> str:
    """Keeps a live host's key for others; says why the host cannot take part, empty if it can.

    Raises:
        ValueError: the key is not signed as it must be, or another live host has it.
    """
    try:
        signed = msgspec.convert(told, SignedKey)
    except msgspec.ValidationError as error:
        raise ValueError(f"a malformed key ({error!s:.99})") from error
    if signed.workers != list(members.carried(host)):
        raise ValueError("the key of other ranks")
    fingerprint = check_key(signed, members.run, trusts)
    for other in members.hosts():
        known = members.member(other)
        if other != host and known and known.key.get("key") == signed.key:
            raise ValueError("the key of another host")
        if other != host and known and fingerprint and known.fingerprint == fingerprint:
            return (
                f"rank(s) {in_words(signed.workers)} and {in_words(known.workers)} are two hosts "
                "with one certificate, which can have one part of a secure sum; carry them in one "
                "host (--workers-per-host), or issue a certificate for each"
            )
    member = members.member(host)
    assert member is not None, "asked for a live host"
    member.key, member.fingerprint = msgspec.to_builtins(signed), fingerprint
    return ""


def tell_keys(
    members: Peers, tell: Callable[[int, Message], object], hosts: Collection[int]
) -> None:
    """Tells each of some hosts the keys of the others that it does not know yet."""
    keyed = {host: member for host in hosts if (member := members.member(host)) and member.key}
    known = {host: str(member.key["key"]) for host, member in keyed.items()}
    for host, member in keyed.items():
        if new := known.items() - member.knows.items() - {(host, known[host])}:
            member.knows.update(new)
            keys = [keyed[other].key for other, _ in sorted(new)]
            tell(host, Message(Kind.KEYS, members.iteration, {"keys": keys}))
