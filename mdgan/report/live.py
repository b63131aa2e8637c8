"""A page that is written again while its runs go on, and a server for it on this machine alone.

The server answers only requests that name this machine as host: else a web page from elsewhere
could point its own name here and read the report (DNS rebinding).
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
"""Times as long as a page took to write, nothing is written, so that training keeps the cores."""
_LAST_PAGE_SECONDS = 3.0
"""How much longer than browsers take to read the page again the last one is served."""
_SLOW_CLIENT_SECONDS = 10.0


def keep_writing(
    paths: Sequence[Path], write: Callable[[], Report], every_seconds: float, port: int | None
) -> None:
    """Writes a report again and again until its runs are over, or the user presses Ctrl-C.

    If no run is under way, it is written once; with a port it is then served until Ctrl-C.

    Args:
        every_seconds: least time between two pages, and how often browsers read the page again.
        port: to serve the page at; 0 for one that the system chooses; None not to serve it.
    """
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as resources:
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
            before = _stamp(paths)
            time.sleep(max(every_seconds, _REST * took))
            while _stamp(paths) == before:  # nothing new to draw
                time.sleep(_LOOK_SECONDS)
            page, took = _timed(write)
        _tell(f"the run is over; {page.path} is complete")
        if port is not None:
            time.sleep(every_seconds + _LAST_PAGE_SECONDS)


def _timed(write: Callable[[], Report]) -> tuple[Report, float]:
    began = time.monotonic()
    return write(), time.monotonic() - began


def _stamp(paths: Sequence[Path]) -> list[int]:
    """When the runs last wrote what a page shows; differs if there is something new."""
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
            """Sends the page, or an error if it may not be read."""
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
            """Says nothing of requests."""

    return Handler


def _tell(text: str) -> None:
    _log.info("%s", text, extra={"shown": "result"})
