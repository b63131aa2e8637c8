"""Helpers of `server` and `site`: NVFlare's channel, the job's files, and mdgan's process."""

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


def site_and_job(context: FLContext) -> tuple[SiteFile, Job]:
    """Reads the file of this machine's owner and NVFlare's copy of the job; BadInput if they clash.

    No code of the job has run before.
    """
    space = context.get_engine().get_workspace()
    site = SiteFile.read(Path(space.get_site_config_dir()).absolute() / "mdgan.json")
    if not {"credentials", "certificate"} & site.settings.keys():
        way_out = "let the study's authority issue it some (mdgan credentials issue)"
        raise BadInput(site.path, "names no credentials", way_out)
    job = Job.read(Path(space.get_app_config_dir(context.get_job_id())))
    job.check_approved(site)
    site.runs.mkdir(mode=0o700, parents=True, exist_ok=True)
    return site, job


def follow(
    minder: Minder,
    aborted: Signal,
    tell: Callable[[str], object] = bool,
    look: Callable[[], bool] = bool,
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
