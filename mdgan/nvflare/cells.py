"""What the server's and a site's part have in common: the channel, the files, the process."""

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
"""The variable that says where the site's file is; else it is `local/mdgan.json`."""
_PLACE = ("mdgan", "bytes")  # the channel of cells, and its topic


def relay_over(context: FLContext, connects_to: tuple[str, int] | None = None) -> Relay:
    """A relay whose messages go between this job's cells."""
    # The core of a cell sends each message as it is; what is around it waits for whole streams.
    core = context.get_engine().get_cell().core_cell

    def send(peer: str, content: bytes) -> bool:
        told = Message({}, content)
        return not any((core.fire_and_forget(*_PLACE, peer, told, optional=True) or {}).values())

    relay = Relay(send, connects_to)

    def hear(message: Message) -> None:
        relay.take(str(message.get_header(MessageHeaderKey.ORIGIN)), bytes(message.payload or b""))

    core.register_request_cb(*_PLACE, cb=hear)
    return relay


def job_files(context: FLContext) -> Job:
    """Where NVFlare has put the job's files on this machine."""
    space, job_id = context.get_engine().get_workspace(), context.get_job_id()
    return Job(Path(space.get_app_config_dir(job_id)), Path(space.get_app_custom_dir(job_id)))


def site_file(context: FLContext) -> SiteFile:
    """The file of this machine's owner."""
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
    """Tells each line of a process until it ends, asked to by the signal or by what `look` says.

    Returns:
        The exit status, and the last line of its errors.
    """
    last, is_stopped = "", False
    while (news := minder.poll()) is not None:
        lines, status = news
        for stream, line in lines:
            tell(line)
            last = line if stream == "err" and line.strip() else last
        is_over = look() or aborted.triggered
        if status is not None:
            return status, last.removeprefix("mdgan: ")
        if is_over and not is_stopped:
            is_stopped = True
            threading.Thread(target=minder.stop, daemon=True).start()  # it has last lines to tell
    return -1, last
