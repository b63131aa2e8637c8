"""`mdgan join`: a worker that comes while training is under way."""

import threading
from collections.abc import Mapping
from typing import Any

from mdgan.launch.access import read_token
from mdgan.launch.launcher import launch
from mdgan.launch.links import server_addresses
from mdgan.launch.prepare import make_plan
from mdgan.settings.config import build_deployment
from mdgan.timeouts import Timeouts
from mdgan.transport.tcp import ask_server

_NOT_SETTINGS = ("version", "dataset_sha256", "extractor")


def join(settings: Mapping[str, Any], launched: float) -> int:
    """Asks the server what is being computed and as whom to take part, and takes part.

    Args:
        settings: flags of the deployment.
        launched: when the user started it, by the machine's monotonic clock.

    Returns:
        The exit status, as `launch`.

    Raises:
        BadInput: there is no server, or it refused, or this machine lacks what it takes.
    """
    deployment = build_deployment(settings)
    timeouts = Timeouts(connect=deployment.connect_timeout, liveness=deployment.liveness_timeout)
    addresses, token = server_addresses(deployment), read_token(deployment)
    told = ask_server(addresses, token, {}, timeouts, threading.Event())
    experiment = {name: v for name, v in told["identity"].items() if name not in _NOT_SETTINGS}
    plan = make_plan(settings, experiment, launched=launched, joins_as=int(told["rank"]))
    return launch(plan)
