"""Only the named files of the code unpickle anything or open ports."""

import re
from collections.abc import Iterator

from tests.claims.registry import claim
from tests.processes import REPOSITORY

UNPICKLES = re.compile(
    r"\b(?:(?:cloud)?pickle\.(?:loads?|Unpickler)|(?:dill|joblib|marshal|jsonpickle)\.loads?"
    r"|shelve\.open|read_pickle|(?:torch|jit|export)\.load|yaml\.(?:unsafe_)?load)\b"
    r"|allow_pickle ?= ?True|from (?:cloudpickle|dill|joblib|marshal|shelve)\b"
    r"|from pickle import (?!UnpicklingError\n)"
)
READS_PICKLES = {
    "datasets/cifar10.py": "by an unpickler that knows arrays alone",
    "mdgan/data/handed.py": "from a pipe of the program that started this process",
    "mdgan/release/contents.py": "what it has just written itself: `torch.export` unpickles",
    "mdgan/metrics/network_files.py": "weights of Inception, and TorchScript that the user names",
}
LISTENS = re.compile(
    r"\b(?:add_(?:in)?secure_port|create_server|start_server|bind|\w*HTTPServer|TCPServer"
    r"|TCPStore|init_process_group)\(|\bProcessGroup[A-Z]\w+"
)
OPENS_PORTS = {
    "mdgan/transport/streams.py": "the sockets of the page's table, and behind its ports",
    "mdgan/transport/front.py": "the ports of the page's table",
    "mdgan/transport/front_process.py": "names its sockets towards the server",
    "mdgan/transport/plain_socket.py": "a socket in the private folder",
    "mdgan/families/data_parallel/collective.py": "gloo, with `--all-reduce direct`",
    "mdgan/report/live.py": "`mdgan report --serve`, on loopback",
    "mdgan/launch/addresses.py": "tries whether an address is free, and closes",
    "mdgan/launch/minder.py": "the same",
    "mdgan/cli/chaos.py": "the same",
    "mdgan/nvflare/tunnel.py": "on loopback, for hosts behind the tunnel",
    "mdgan/nvflare/server.py": "tries whether a port of loopback is free, and closes",
    "mdgan/transport/torchrun_store.py": "asks the store of torchrun, and serves none",
}


def code() -> Iterator[tuple[str, str]]:
    """The files of the program, and what stands in them."""
    for folder in ("mdgan", "datasets", "scripts"):
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            yield str(path.relative_to(REPOSITORY)), path.read_text(encoding="utf-8")


@claim("no-pickle", "No pickle that comes in a file or over a socket can run code")
def test_nothing_is_unpickled_in_any_other_file() -> None:
    results = {name: text for name, text in code() if UNPICKLES.search(text)}
    assert results.keys() == READS_PICKLES.keys()
    for text in results.values():
        loads = re.findall(r"torch\.load\([^)]*\)[^)]*\)", text)
        assert all("weights_only=True" in load for load in loads), loads


@claim("no-other-port", "mdgan opens no other port than these")
def test_ports_are_opened_in_no_other_file() -> None:
    results = {name for name, text in code() if LISTENS.search(text)}
    assert results == OPENS_PORTS.keys()


def test_what_would_be_found() -> None:
    for line in (
        "x = pickle.loads(y)",
        "np.load(f, allow_pickle=True)",
        "from pickle import loads",
        "state = torch.load(path)",
    ):
        assert UNPICKLES.search(line), line
    assert not UNPICKLES.search("from pickle import UnpicklingError\n")
    assert LISTENS.search("self.socket.bind(place)")
