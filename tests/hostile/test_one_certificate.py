"""One certificate that names several ranks comes as several hosts; they count as one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from mdgan.engine.host_keys import HostKeys, SignedKey, check_key
from mdgan.families.mdgan.messages import SWAPPED
from mdgan.messages import Message
from mdgan.transport.memory import MemoryHostTransport
from mdgan.transport.server_end import ServerTransport
from tests.hostile.bench import FAMILIES, TINY, with_fields
from tests.processes import ended_well, read_events, run_here
from tests.unit.credentials.test_signing import AUTHORITY, issued
from tests.unit.engine.test_host_keys import RUN

LIARS = (3, 4)


@pytest.mark.parametrize(("certificate", "may_give"), [("eve's", True), ("", False)])
def test_two_hosts_of_one_certificate_are_one_witness(
    tmp_path: Path, certificate: str, may_give: bool
) -> None:
    """Two witnesses keep a host from giving in swaps; without certificates two hosts are two."""
    decide, send = ServerTransport.decide, MemoryHostTransport.send

    def known(end: ServerTransport, hello: Mapping[str, Any], _: str = "") -> Any:
        host = hello["host"]
        named = {"ranks": LIARS if host in LIARS else [host]} if certificate else {}
        own = certificate if host in LIARS else certificate and f"{host}'s"
        return decide(end, {**hello, **named}, own)

    def blames(link: MemoryHostTransport, message: Message) -> int:
        if message.kind == SWAPPED and link.host in LIARS:
            message = with_fields(message, slow=[1, 2])
        return send(link, message)

    with (
        patch.object(ServerTransport, "decide", known),
        patch.object(MemoryHostTransport, "send", blames),
    ):
        flags = [*TINY, *FAMILIES["mdgan"], "--iterations", "20", "--swap-interval", "1"]
        result = run_here("train", *flags, "--out", "run", cwd=tmp_path)
    ended_well(result, tmp_path / "run", 20)
    lately = [move for swap in read_events(tmp_path / "run", "swap")[-9:] for move in swap["moves"]]
    assert ([1, 2] in lately) == may_give


def test_a_server_without_a_role_tells_certificates_apart() -> None:
    """Each host does, so the server must not ask them for a sum of two with one certificate."""
    eve, server = issued(AUTHORITY, "worker", 4, 5), issued(AUTHORITY, None)
    owners = []
    for rank in (4, 5):
        told = HostKeys([rank], eve).make_key(RUN)
        owners.append(check_key(msgspec.convert(told, SignedKey), RUN, server))
    assert owners[0] == owners[1] != ""
