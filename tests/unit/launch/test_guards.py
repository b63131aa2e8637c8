"""The settings that guard links: which files go together, and which addresses need them."""

from typing import Any

import pytest

from mdgan.errors import BadInput
from mdgan.launch.settings import LaunchSettings, check_exposed, read_identity, without_other_guards


def test_without_a_file_there_is_no_identity() -> None:
    assert read_identity(LaunchSettings().links) is None
    assert read_identity(LaunchSettings(insecure=True).links) is None


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"credentials": "x", "insecure": True}, "--insecure: --credentials is given, too"),
        ({"ca": "x", "insecure": True}, "--insecure: --ca is given, too"),
        ({"credentials": "x", "key": "y"}, "--key: --credentials has it all"),
        ({"ca": "x"}, "--ca x: needs --certificate"),
        ({"certificate": "x"}, "--certificate x: needs --ca"),
        ({"key": "x"}, "--key x: needs --ca"),
        ({"ca": "x", "key": "y"}, "--ca x: needs --certificate"),
        ({"credentials": "nowhere"}, "nowhere: does not exist"),
    ],
)
def test_what_contradicts_itself(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_identity(LaunchSettings(**settings).links)
    assert says in str(caught.value)


def test_flags_that_guard_links_replace_all_those_of_a_file() -> None:
    theirs = {"credentials": "run.cred", "insecure": False, "seed": 3, "revoked": "list"}
    assert without_other_guards({"seed": 4, "ca": None, "insecure": False}, theirs) == theirs
    for flags in ({"insecure": True}, {"ca": "a", "certificate": "b", "key": "c"}):
        assert without_other_guards(flags, theirs) == {"seed": 3, "revoked": "list"}


@pytest.mark.parametrize("address", ["10.0.0.1", "192.168.7.3", "0.0.0.0", "::", "fe80::1%eth0"])
def test_an_address_that_others_can_reach_needs_credentials(address: str) -> None:
    with pytest.raises(BadInput) as caught:
        check_exposed(address, LaunchSettings(master_addr="somewhere").links)
    for part in ("--master-addr somewhere", address, "--credentials FILE", "--insecure"):
        assert part in str(caught.value)
    check_exposed(address, LaunchSettings(credentials="run.cred").links)
    check_exposed(address, LaunchSettings(ca="a", certificate="b", key="c").links)
    check_exposed(address, LaunchSettings(insecure=True).links)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.1", "::1"])
def test_what_no_other_machine_can_reach_needs_none(address: str) -> None:
    check_exposed(address, LaunchSettings().links)
