"""Helpers of `server` and `site`: NVFlare's channel, the job's files, and mdgan's process."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

from nvflare.apis.fl_context import FLContext
from nvflare.apis.signal import Signal
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.message import Message

from mdgan.errors import BadInput
from mdgan.launch.minder import Minder
from mdgan.launch.site_file import SiteFile
from mdgan.nvflare.study import Job
from mdgan.nvflare.tunnel import Relay

_VARIABLE = "MDGAN_SITE_FILE"
"""The environment variable with the path of the site's file; by default `local/mdgan.json`."""
_PLACE = ("mdgan", "bytes")  # NVFlare's channel and topic for the tunnel's messages


def relay_over(context: FLContext, connects_to: tuple[str, int] | None = None) -> Relay:
    """Makes a relay whose messages travel between this job's cells, NVFlare's ends of links."""
    # A cell's core sends each message at once; the cell itself would wait for whole streams.
    core = context.get_engine().get_cell().core_cell

    def send(peer: str, content: bytes) -> bool:
        message = Message({}, content)
        errors = core.fire_and_forget(*_PLACE, peer, message, optional=True) or {}
        return not any(errors.values())

    relay = Relay(send, connects_to)

    def receive(message: Message) -> None:
        relay.take(str(message.get_header(MessageHeaderKey.ORIGIN)), bytes(message.payload or b""))

    core.register_request_cb(*_PLACE, cb=receive)
    return relay


def job_files(context: FLContext) -> Job:
    """The folders into which NVFlare has put the job's files on this machine."""
    space, job_id = context.get_engine().get_workspace(), context.get_job_id()
    return Job(Path(space.get_app_config_dir(job_id)), Path(space.get_app_custom_dir(job_id)))


def site_file(context: FLContext) -> SiteFile:
    """Reads the site's file, which this machine's owner has written; makes its folder of runs."""
    local = context.get_engine().get_workspace().get_site_config_dir()
    site = SiteFile.read(Path(os.environ.get(_VARIABLE) or Path(local) / "mdgan.json").absolute())
    if not {"credentials", "certificate"} & site.settings.keys():
        way_out = "let the study's authority issue it some (mdgan credentials issue)"
        raise BadInput(site.path, "names no credentials", way_out)
    site.runs.mkdir(parents=True, exist_ok=True)
    return site


def follow(
    minder: Minder, aborted: Signal, tell: Callable[[str], None], look: Callable[[], bool] = bool
) -> tuple[int, str]:
    """Passes each line of a process to `tell`; stops it if `aborted` is set or `look` returns True.

    Returns:
        The exit status, and the last line of the process's errors.
    """
    last, is_stopped = "", False
    while (output := minder.poll()) is not None:
        lines, status = output
        for stream, line in lines:
            tell(line)
            last = line if stream == "err" and line.strip() else last
        is_over = look() or aborted.triggered
        if status is not None:
            return status, last.removeprefix("mdgan: ")
        if is_over and not is_stopped:
            is_stopped = True
            threading.Thread(target=minder.stop, daemon=True).start()  # its last lines still come
    return -1, last
