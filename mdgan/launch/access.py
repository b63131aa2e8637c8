"""Who may take part: the token, and when there must be one."""

import ipaddress
import stat
from collections.abc import Iterable

from mdgan.errors import BadInput
from mdgan.launch.machine import path_of
from mdgan.settings.deployment import Deployment

LEAST_TOKEN_BYTES = 16


def read_token(deployment: Deployment) -> bytes:
    """The secret of those who may take part; empty if anybody may.

    Raises:
        BadInput: its file cannot be read, or holds too little.
    """
    if deployment.join_token is None:
        return b""
    path = path_of(deployment.join_token)
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


def is_readable_by_others(deployment: Deployment) -> bool:
    """Whether the file of the secret can be read by other users of this machine."""
    if deployment.join_token is None:
        return False
    mode = path_of(deployment.join_token).stat().st_mode
    return bool(mode & (stat.S_IRWXG | stat.S_IRWXO))


def check_exposed(addresses: Iterable[str], deployment: Deployment) -> None:
    """Checks that a port which others can reach is guarded, or is meant not to be.

    Args:
        addresses: that this machine is about to listen on.
        deployment: what the user asked for.

    Raises:
        BadInput: one is not this machine's own, and there is neither a token nor --insecure.
    """
    if deployment.join_token is not None or deployment.insecure:
        return
    for address in addresses:
        if not ipaddress.ip_address(address.partition("%")[0]).is_loopback:
            raise BadInput(
                f"--master-addr {deployment.master_addr}: others can reach {address}; give "
                "--join-token FILE on every machine (`mdgan token FILE` makes one), or --insecure"
            )
