"""Makes several machines out of one: network namespaces with own addresses, on one switch."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Machine:
    """One namespace: `prefix` before a command runs it there; `port` of `switch` leads to it."""

    name: str
    address: str
    switch: str
    port: str

    @property
    def prefix(self) -> list[str]:
        return ["ip", "netns", "exec", self.name]


def available() -> bool:
    """Whether this machine lets us make namespaces."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        return False
    probe = f"mdgan-probe-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, check=False)
    subprocess.run(["ip", "netns", "delete", probe], capture_output=True, check=False)
    return made.returncode == 0


@contextmanager
def machines(count: int) -> Iterator[list[Machine]]:
    """Makes machines that reach each other and nothing else; removes them afterwards."""
    switch = f"mdgan-{os.getpid()}-switch"
    made = [
        Machine(f"mdgan-{os.getpid()}-{n}", f"10.77.0.{n}", switch, f"port{n}")
        for n in range(1, count + 1)
    ]
    try:
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge", "up")
        for machine in made:
            _ip("netns", "add", machine.name)
            cable = ["type", "veth", "peer", "eth0", "netns", machine.name]
            _ip("-n", switch, "link", "add", machine.port, *cable)
            _ip("-n", switch, "link", "set", machine.port, "master", "bridge", "up")
            _ip("-n", machine.name, "address", "add", f"{machine.address}/24", "dev", "eth0")
            _ip("-n", machine.name, "link", "set", "eth0", "up")
            _ip("-n", machine.name, "link", "set", "lo", "up")
        yield made
    finally:
        for name in [switch, *(machine.name for machine in made)]:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


@contextmanager
def names(machine: Machine, lines: str) -> Iterator[None]:
    """What a machine's `/etc/hosts` says, for commands that begin within the block."""
    folder = Path("/etc/netns") / machine.name  # where `ip netns exec` looks
    folder.mkdir(parents=True)
    try:
        (folder / "hosts").write_text(f"127.0.0.1 localhost\n{lines}\n")
        yield
    finally:
        shutil.rmtree(folder)


def pull_cable(machine: Machine) -> None:
    """Cuts a machine off: nothing that is sent arrives, and neither end is told."""
    _ip("-n", machine.switch, "link", "set", machine.port, "down")


def plug_in(machine: Machine) -> None:
    """Undoes `pull_cable`."""
    _ip("-n", machine.switch, "link", "set", machine.port, "up")


def limit_bandwidth(
    machine: Machine, kilobytes_per_second: int, *, both_ways: bool = False
) -> None:
    """Slows down what reaches a machine, and what leaves it if that is asked for."""
    rate = f"{8 * kilobytes_per_second}kbit"
    burst = f"{max(32, kilobytes_per_second // 200)}kb"  # a timer of 250 Hz must not be the limit
    shape = ["root", "tbf", "rate", rate, "burst", burst, "latency", "500ms"]
    ends = [(machine.switch, machine.port)]
    ends += [(machine.name, "eth0")] if both_ways else []
    for name, device in ends:
        command = ["tc", "-n", name, "qdisc", "replace", "dev", device, *shape]
        subprocess.run(command, check=True, capture_output=True)


def listening_addresses(machine: Machine) -> set[str]:
    """The addresses on which processes of a machine listen."""
    answer = subprocess.run(
        [*machine.prefix, "ss", "-Hltn"], capture_output=True, text=True, check=True
    )
    places = (line.split()[3].rpartition(":")[0] for line in answer.stdout.splitlines())
    return {place.strip("[]").removeprefix("::ffff:") for place in places}  # as gRPC has them


def moved_bytes(machine: Machine) -> tuple[int, int]:
    """What has left a machine and what has reached it, by its network card's own counters."""
    counters = [f"/sys/class/net/eth0/statistics/{way}_bytes" for way in ("tx", "rx")]
    answer = subprocess.run(
        [*machine.prefix, "cat", *counters], capture_output=True, text=True, check=True
    )
    sent, received = answer.stdout.split()
    return int(sent), int(received)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
