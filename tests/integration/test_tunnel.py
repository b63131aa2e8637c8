"""Sites reach the server through a tunnel of messages, which others cannot use."""

import json
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from mdgan.nvflare.study import Study
from mdgan.nvflare.tunnel import TunnelPiece
from tests.processes import MDGAN, QUICK_SETTINGS, Process, finish, generator_bytes, run_here, start
from tests.unit.nvflare.channel import FakeCells

STUDY = {**QUICK_SETTINGS, "world_size": 3, "swap_interval": 3, "seed": 5}
SHORT = ("--set", "connect_timeout=8")


@pytest.fixture(autouse=True)
def _certificates(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text(json.dumps(STUDY))
    for folder in ("authority", "others"):
        server = ["issue", folder, "main", "--role", "server"]
        for command in (["init", folder], server, ["issue", folder, "a"], ["issue", folder, "b"]):
            assert run_here("credentials", *command, cwd=tmp_path).status == 0


@contextmanager
def served(folder: Path, change: Callable[[bytes], bytes]) -> Iterator[tuple[Process, int]]:
    """Rank 0, and the port at a site from which the tunnel leads there."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    flags = ["--ranks", "0", "--listen", f"127.0.0.1:{port}", "--out", "run"]
    own_flags = ["--credentials", "authority/main.cred"]
    server = start([*MDGAN, "train", "--config", "study.json", *flags, *own_flags], folder)
    cells = FakeCells(change)
    far, near = cells.relay("server", ("127.0.0.1", port)), cells.relay("site")
    try:
        yield server, near.listen("server")
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


def test_sites_behind_the_tunnel_give_the_generator_of_one_command(tmp_path: Path) -> None:
    digest = Study.read(tmp_path / "study.json").digest
    with served(tmp_path, bytes) as (server, port):
        first = join(tmp_path, port, "authority/a", approved=[digest])
        for each in (first, join(tmp_path, port, "authority/b"), server):
            assert finish(each, 90).status == 0
    alone = start([*MDGAN, "train", "--config", "study.json", "--out", "alone"], tmp_path)
    assert finish(alone, 90).status == 0
    assert generator_bytes(tmp_path / "run") == generator_bytes(tmp_path / "alone")


@pytest.mark.parametrize(
    ("name", "content", "change", "said"),
    [
        ("authority/a", {"approved": []}, bytes, "not among those that this site approved"),
        ("others/a", {}, bytes, "authority"),
        ("authority/a", {}, damaged, "server|TLS"),  # by which byte was changed
    ],
    ids=["not approved", "no certificate of the study", "bytes changed on the way"],
)
def test_who_cannot_take_part_is_told_so_in_one_line(
    tmp_path: Path,
    name: str,
    content: dict[str, object],
    change: Callable[[bytes], bytes],
    said: str,
) -> None:
    with served(tmp_path, change) as (server, port):
        refused = finish(join(tmp_path, port, name, *SHORT, **content), 90)
        assert refused.status == 2
        assert re.search(said, refused.errors.splitlines()[-1])
        assert "Traceback" not in refused.errors
        assert server.poll() is None  # it waits for others
        server.terminate()
        finish(server, 60)
