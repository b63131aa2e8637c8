"""Where a host says that others fetch from it: what it may name."""

import ipaddress
import re
from urllib.parse import unquote

_PLACE = re.compile(r"(?:([0-9.]{7,15})|\[([0-9a-fA-F:.]{2,45})\]):([0-9]{1,5})")
_MOST_PORT = 65_535


def may_be_tried(place: str, peer: str) -> bool:
    """Whether the server may look for a host of the run at a place that a host has named.

    Args:
        place: an IP address, in brackets if it is one of IPv6, and a port. Names are not believed:
            they may mean another machine a moment later.
        peer: where the connection of that host comes from, such as `ipv4:10.0.0.7:41250`.

    It may not be an address, other than that of the connection, that means something else on each
    machine, or a group of machines.
    """
    match = _PLACE.fullmatch(place)
    if match is None or not 0 < int(match[3]) <= _MOST_PORT:
        return False
    try:
        named = ipaddress.ip_address(match[1] or match[2])
    except ValueError:
        return False
    means_others = named.is_loopback or named.is_unspecified or named.is_multicast
    return named == _address_of(peer) or not (
        means_others or named.is_link_local or named.is_reserved
    )


def _address_of(peer: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    family, _, rest = unquote(peer).partition(":")
    try:
        found = ipaddress.ip_address(rest.rpartition(":")[0].strip("[]"))
    except ValueError:
        return None
    mapped = getattr(found, "ipv4_mapped", None)  # of a server that listens for both families
    return mapped or found if family in ("ipv4", "ipv6") else None
