"""Writes the page again while its runs go on, and serves it to browsers on this machine.

The server answers only requests whose Host header names this machine. Otherwise a foreign web page
could point its own name at this machine and read the report (DNS rebinding).
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from mdgan.errors import BadInput
from mdgan.records.run_directory import runs_in
from mdgan.report.build import PAGE_NAME, Report
from mdgan.spelling import flag

_log = logging.getLogger(__name__)

_LOOPBACK = "127.0.0.1"
_LOOK_SECONDS = 1.0
_REST = 4
"""The next page waits this many times the duration of the last, to leave the cores to training."""
_LAST_PAGE_SECONDS = 3.0
"""How long the server keeps serving the last page beyond the time in which browsers reload it."""
_SLOW_CLIENT_SECONDS = 10.0


def keep_writing(
    paths: Sequence[Path], write: Callable[[], Report], every_seconds: float, port: int | None
) -> None:
    """Writes a report again and again until its runs are over, or the user presses Ctrl-C.

    If no run is under way, it writes the page once, and with a port serves it until Ctrl-C.

    Args:
        every_seconds: least time between two pages, and how often browsers reload the page.
        port: to serve the page at; 0 for one that the system chooses; None not to serve it.
    """
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as resources:
        before = _stamp(paths)  # before the page, which may miss what comes meanwhile
        page, took = _timed(write)
        _tell(f"{page.path}: {page.num_figures} figures")
        if port is not None:
            _tell(f"served at {resources.enter_context(_serving(page.path, port))}")
        if not page.running:
            _tell("no run is under way" + ("; Ctrl-C ends this" if port is not None else ""))
            while port is not None:
                time.sleep(_LOOK_SECONDS)
            return
        _tell(f"written again every {every_seconds:g} s until the run ends; Ctrl-C ends this")
        while page.running:
            time.sleep(max(every_seconds, _REST * took))
            while (now := _stamp(paths)) == before:  # the runs have written nothing new
                time.sleep(_LOOK_SECONDS)
            before = now
            page, took = _timed(write)
        _tell(f"the run is over; {page.path} is complete")
        if port is not None:
            time.sleep(every_seconds + _LAST_PAGE_SECONDS)


def _timed(write: Callable[[], Report]) -> tuple[Report, float]:
    began = time.monotonic()
    return write(), time.monotonic() - began


def _stamp(paths: Sequence[Path]) -> list[int]:
    """When the runs last wrote their files; it changes with every new record."""
    names = ("run.json", "metrics.jsonl")
    files = [run / name for path in paths for run in runs_in(path) for name in names]
    return [file.stat().st_mtime_ns for file in files if file.exists()]


@contextlib.contextmanager
def _serving(page: Path, port: int) -> Iterator[str]:
    try:
        server = ThreadingHTTPServer((_LOOPBACK, port), _handler(page))
    except OSError as error:
        why = f"cannot listen on {_LOOPBACK} ({error.strerror})"
        raise BadInput(flag("serve", port), why, "0 takes a free port") from error
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://{_LOOPBACK}:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def _handler(page: Path) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Answers GET with the page as it is now."""

        server: ThreadingHTTPServer
        server_version, sys_version = "mdgan", ""
        timeout = _SLOW_CLIENT_SECONDS

        def do_GET(self) -> None:
            """Sends the page, or an error."""
            port = self.server.server_port
            ours = [[f"{name}:{port}"] for name in (_LOOPBACK, "localhost")]
            if self.headers.get_all("Host", []) not in ours:
                self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
                return
            if self.path.partition("?")[0] not in ("/", f"/{PAGE_NAME}"):
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            try:
                content = page.read_bytes()
            except OSError:
                self.send_error(HTTPStatus.SERVICE_UNAVAILABLE)
                return
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("Cross-Origin-Resource-Policy", "same-origin")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("X-Frame-Options", "DENY")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, _format: str, *_arguments: object) -> None:
            """Logs no requests."""

    return Handler


def _tell(text: str) -> None:
    _log.info("%s", text, extra={"shown": "result"})
