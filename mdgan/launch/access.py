"""Who may take part: the token, and when there must be one."""

import ipaddress
import stat
from collections.abc import Iterable

from mdgan.errors import BadInput
from mdgan.launch.settings import LaunchSettings
from mdgan.settings.machine import path_of

LEAST_TOKEN_BYTES = 16


def read_token(settings: LaunchSettings) -> bytes:
    """The secret of those who may take part; empty if anybody may.

    Raises:
        BadInput: its file cannot be read, or holds too little.
    """
    if settings.join_token is None:
        return b""
    path = path_of(settings.join_token)
    try:
        token = path.read_bytes().strip()
    except OSError as error:
        raise BadInput(
            f"--join-token {path}: cannot be read ({error.strerror}); `mdgan token FILE` makes one"
        ) from error
    if len(token) < LEAST_TOKEN_BYTES:
        raise BadInput(
            f"--join-token {path}: holds {len(token)} bytes, too few to be a secret (at least "
            f"{LEAST_TOKEN_BYTES}); `mdgan token FILE` makes one"
        )
    return token


def is_readable_by_others(settings: LaunchSettings) -> bool:
    """Whether the file of the secret can be read by other users of this machine."""
    if settings.join_token is None:
        return False
    mode = path_of(settings.join_token).stat().st_mode
    return bool(mode & (stat.S_IRWXG | stat.S_IRWXO))


def check_exposed(addresses: Iterable[str], settings: LaunchSettings) -> None:
    """Checks that a port which others can reach is guarded, or is meant not to be.

    Args:
        addresses: that this machine is about to listen on.
        settings: what the user asked for.

    Raises:
        BadInput: one is not this machine's own, and there is neither a token nor --insecure.
    """
    if settings.join_token is not None or settings.insecure:
        return
    for address in addresses:
        if not ipaddress.ip_address(address.partition("%")[0]).is_loopback:
            raise BadInput(
                f"--master-addr {settings.master_addr}: others can reach {address}; give "
                "--join-token FILE on every machine (`mdgan token FILE` makes one), or --insecure"
            )
