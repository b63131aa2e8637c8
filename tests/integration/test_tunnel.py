"""Sites reach the server through a tunnel of messages, which others cannot use."""

import contextlib
import json
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from mdgan.nvflare.study import Study
from mdgan.nvflare.tunnel import TunnelPiece
from tests.claims.registry import claim
from tests.processes import MDGAN, QUICK_SETTINGS, Process, finish, generator_bytes, run_here, start
from tests.unit.nvflare.channel import FakeCells

STUDY = {**QUICK_SETTINGS, "world_size": 3, "swap_interval": 3, "seed": 5}
SHORT = ("--set", "connect_timeout=8")
UNREAD = {"approved": [], "data_dir": "a-folder-that-is-refused"}
"""A site that approves no study, and has data that `digits` refuses as soon as it is read."""


@pytest.fixture(autouse=True)
def _certificates(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text(json.dumps(STUDY))
    for folder in ("authority", "others"):
        server = ["issue", folder, "main", "--role", "server"]
        workers = (["issue", folder, *rest] for rest in (["a", "--ranks", "2"], ["b"]))
        for command in (["init", folder], server, *workers):
            assert run_here("credentials", *command, cwd=tmp_path).status == 0


@contextmanager
def served(
    folder: Path, change: Callable[[bytes], bytes]
) -> Iterator[tuple[Process, int, FakeCells]]:
    """Rank 0, and the port at a site from which the tunnel leads there."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    flags = ["--ranks", "0", "--listen", f"127.0.0.1:{port}", "--out", "run"]
    own_flags = ["--credentials", "authority/main.cred"]
    server = start([*MDGAN, "train", "--config", "study.json", *flags, *own_flags], folder)
    cells = FakeCells(change)
    far, near = cells.relay("server", ("127.0.0.1", port)), cells.relay("site")
    try:
        yield server, near.listen("server"), cells
    finally:
        near.close()
        far.close()


def join(folder: Path, port: int, name: str, *more: str, **content: object) -> Process:
    """A site that joins by its file."""
    site = folder / f"{Path(name).stem}.json"
    site.write_text(json.dumps({"credentials": f"{name}.cred", **content}))
    return start([*MDGAN, "join", "--site", str(site), "--master-port", str(port), *more], folder)


def damaged(message: bytes) -> bytes:
    """A message whose last byte was changed, if it carries more than the begin of a connection."""
    piece = msgspec.msgpack.decode(message, type=TunnelPiece)
    if piece.kind != "data" or piece.number < 2:
        return message
    data = piece.data[:-1] + bytes([piece.data[-1] ^ 1])
    return msgspec.msgpack.encode(msgspec.structs.replace(piece, data=data))


def cut(message: bytes) -> bytes:
    """The same message without its last byte, so that it is none of the tunnel's."""
    return message if damaged(message) == message else message[:-1]


@claim("nvflare-ranks", "A site has one worker, of the rank that its certificate names.")
@claim("nvflare-tunnel", "and can delay and cut it, but can neither read nor change it.")
def test_sites_behind_the_tunnel_give_the_generator_of_one_command(tmp_path: Path) -> None:
    digest = Study.read(tmp_path / "study.json").digest
    with served(tmp_path, bytes) as (server, port, cells):
        first = join(tmp_path, port, "authority/a", approved=[digest])
        second, ended = join(tmp_path, port, "authority/b"), finish(first, 90)
        assert ended.status == 0, ended
        for each in (second, server):
            assert finish(each, 90).status == 0
        assert "rank 2" in ended.errors + ended.output
        carried = b"".join(cells.carried)
        assert len(carried) > 100_000
        assert not any(word in carried for word in (b"swap_interval", b"digits", b"weight"))
    alone = start([*MDGAN, "train", "--config", "study.json", "--out", "alone"], tmp_path)
    assert finish(alone, 90).status == 0
    assert generator_bytes(tmp_path / "run") == generator_bytes(tmp_path / "alone")


@pytest.mark.parametrize(
    ("name", "content", "change", "said"),
    [
        ("authority/a", UNREAD, bytes, "not among those that this site approved"),
        ("authority/a", {"dp_ledger": "ledger"}, bytes, "dp"),
        ("others/a", {}, bytes, "authority"),
        ("authority/a", {}, damaged, "server|TLS"),  # by which byte was changed
        ("authority/a", {}, cut, "server|TLS"),
    ],
    ids=["not approved", "not private", "no certificate of the study", "changed", "cut"],
)
@claim("nvflare-approved", "so does mdgan join --site without NVFlare.")
@claim(
    "nvflare-ledger",
    "With a dp_ledger the site takes part in studies with differential privacy alone.",
)
@claim("nvflare-tunnel", "and can delay and cut it, but can neither read nor change it.")
def test_who_cannot_take_part_is_told_so_in_one_line(
    tmp_path: Path,
    name: str,
    content: dict[str, object],
    change: Callable[[bytes], bytes],
    said: str,
) -> None:
    with served(tmp_path, change) as (server, port, _):
        refused = finish(join(tmp_path, port, name, *SHORT, **content), 90)
        assert refused.status == 2
        assert re.search(said, refused.errors.splitlines()[-1])
        assert "Traceback" not in refused.errors
        assert server.poll() is None  # it waits for others
        server.terminate()
        finish(server, 60)


@contextmanager
def flood(cells: FakeCells, folder: Path) -> Iterator[None]:
    """A site with a certificate of another authority, which calls the server all the time."""
    port, ends = cells.relay("evil").listen("server"), threading.Event()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(folder / "others" / "a.cred")
    context.set_alpn_protocols(["h2"])

    def call() -> None:
        while not ends.is_set():
            end = socket.create_connection(("127.0.0.1", port), 5)
            with end, contextlib.suppress(OSError), context.wrap_socket(end) as link:
                link.recv(1)

    threads = [threading.Thread(target=call) for _ in range(16)]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        ends.set()
        for each in threads:
            each.join()


@claim(
    "nvflare-stranger",
    "A site of NVFlare without a certificate of the study's authority takes no part in a run, and "
    "keeps no other site out.",
)
def test_a_site_without_a_certificate_that_floods_the_tunnel_keeps_no_other_out(
    tmp_path: Path,
) -> None:
    with served(tmp_path, bytes) as (server, port, cells), flood(cells, tmp_path):
        for each in (*(join(tmp_path, port, f"authority/{name}") for name in "ab"), server):
            assert finish(each, 90).status == 0
    joined = (tmp_path / "run" / "audit-log.jsonl").read_text()
    assert joined.count('"outcome": "let in"') == 2
