"""`mdgan join`: a worker that comes while training is under way."""

import threading
from collections.abc import Mapping
from typing import Any

from mdgan.launch.launcher import launch
from mdgan.launch.links import server_addresses
from mdgan.launch.prepare import prepare
from mdgan.launch.settings import LaunchSettings, read_token
from mdgan.transport.dial import ask_server

_NOT_SETTINGS = ("version", "dataset_sha256", "extractor")


def join(settings: Mapping[str, Any], launched: float) -> int:
    """Asks the server for the settings of the run and for a rank, and takes part.

    Args:
        settings: flags of this machine.
        launched: when the user started it, by the machine's monotonic clock.

    Returns:
        The exit status, as `launch`.

    Raises:
        BadInput: there is no server, it refused, or this machine cannot take part.
    """
    own = LaunchSettings.read(settings)
    addresses, token = server_addresses(own), read_token(own)
    told = ask_server(addresses, token, own.timeouts(), threading.Event())
    shared = {name: v for name, v in told["identity"].items() if name not in _NOT_SETTINGS}
    prepared = prepare(settings, shared, launched=launched, joins_as=int(told["rank"]))
    return launch(prepared)
