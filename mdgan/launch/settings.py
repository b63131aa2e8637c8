"""The settings of one machine: its ranks, the server's address, credentials and time limits."""

import ipaddress
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from mdgan.credentials.identity import Identity, OwnIdentity, read_credentials, read_own_pki
from mdgan.credentials.pem import in_words
from mdgan.credentials.permit import permit_of
from mdgan.credentials.reread import Reread
from mdgan.credentials.revocations import Revocations
from mdgan.errors import BadInput
from mdgan.launch.requirements import FORMS, Requirements, parse_requirements
from mdgan.settings import declare
from mdgan.settings.excludes import Excludes
from mdgan.settings.machine import parse_cores, path_of
from mdgan.spelling import flag, key
from mdgan.timeouts import Timeouts

_GUARDS = ("credentials", "ca", "certificate", "key", "insecure")
ANY_CORES = "any"
_NOT_TRIED = (
    "is tried out where one `mdgan train` starts all processes on the CPU; with {when} give a "
    "number"
)
_SECONDS = declare.number(lambda seconds: 0 < seconds < 1e7, "must be seconds above 0")


def _file(about: str, **more: Any) -> Any:
    return declare.own_setting(None, about, declare.text(), metavar="FILE", **more)


def _read_cores(text: str) -> str:
    """Checks a `--cores` value; `core_sets` reads it."""
    if text != ANY_CORES:
        parse_cores(text)
    return text


class LinkSettings(declare.Settings, group="network"):
    """Where the server is, which processes may take part, and how long others wait for one."""

    master_addr: str = declare.own_setting(
        "127.0.0.1",
        "Address of rank 0; after a comma those of its standbys.",
        declare.text(),
        metavar="HOST[,HOST…]",
        is_usual=True,
    )
    master_port: int | None = declare.own_setting(
        None,
        "Port of rank 0.",
        declare.whole(0, 65535, otherwise="must be in [0, 65535]"),
        metavar="PORT",
        default_text="a free one if every rank is here, else 29500",
    )
    network_interface: str | None = declare.own_key_setting(
        None,
        "Network interface to talk through.",
        declare.text(),
        metavar="NAME",
        default_text="the one that reaches rank 0",
    )
    connect_timeout: float = declare.own_key_setting(
        300.0, "Seconds to wait for the server, and for the workers.", _SECONDS, metavar="SECONDS"
    )
    listen: str | None = declare.own_setting(
        None,
        "Where rank 0 listens for other machines. Ranks on its own machine need no port.",
        declare.text(),
        metavar="ADDRESS[:PORT]",
        default_text="--master-addr if some ranks are elsewhere, else nowhere",
    )
    credentials: str | None = _file(
        "File with the certificate and the key of this machine (`mdgan credentials` makes one); "
        "needed where others can reach --master-addr.",
        is_usual=True,
    )
    ca: str | None = _file(
        "Your own authority's certificate, instead of --credentials.", has_flag=False
    )
    certificate: str | None = _file("This machine's certificate, by `ca`.", has_flag=False)
    key: str | None = _file("The key of `certificate`.", has_flag=False)
    revoked: str | None = _file("The authority's list of certificates that rank 0 lets in no more.")
    insecure: bool = declare.own_setting(
        False,
        "Talk without encryption: who reaches --master-addr can take part, and who is on the way "
        "can read and change everything.",
        declare.switch(),
    )
    liveness_timeout: float = declare.own_setting(
        30.0,
        "Seconds of silence after which a machine counts as gone.",
        _SECONDS,
        metavar="SECONDS",
        group="faults",
    )
    patience: float = declare.own_key_setting(
        300.0,
        "Seconds that a server without workers waits for one, and a worker for a server.",
        declare.number(lambda seconds: 0 <= seconds < 1e7, "must be seconds, 0 or more"),
        metavar="SECONDS",
        group="faults",
    )
    require: Requirements | None = declare.own_setting(
        None,
        f"What a run must have for this machine to take part: {FORMS}.",
        declare.parsed(parse_requirements, several=True),
        metavar="WHAT[,WHAT…]",
        default_text="nothing",
        group="privacy",
    )
    max_world_size: int | None = declare.own_key_setting(
        None,
        "Ranks that may ever take part, rank 0 and those that join later among them. Rank 0 "
        "decides.",
        declare.whole(2, 1 << 31),
        default_text="4 x --world-size, at least 33",
        group="faults",
    )

    @property
    def is_guarded(self) -> bool:
        """Whether links to other machines are encrypted and ask for a known certificate."""
        return self.credentials is not None or self.certificate is not None

    def addresses(self) -> list[str]:
        """The addresses where the server may be: that of rank 0, then those of its standbys."""
        return [address.strip() for address in self.master_addr.split(",")]

    def timeouts(self) -> Timeouts:
        """The time limits of a run, those from settings and the constant ones."""
        return Timeouts(
            connect=self.connect_timeout, liveness=self.liveness_timeout, patience=self.patience
        )


class LaunchSettings(declare.Settings, group="network"):
    """How this machine takes part; every machine has its own settings."""

    links = declare.section(LinkSettings)

    workers_per_host: int | Literal["auto"] | None = declare.own_setting(
        None,
        "Workers that share one process; auto: as many as make iterations fastest here, which is "
        "tried out before the run.",
        declare.whole(1, word="auto"),
        metavar="W|auto",
        default_text="1, or a process a core for small models trained here alone; all of them with "
        "--transport memory",
    )
    transport: str = declare.own_setting(
        "tcp",
        "Processes linked over the network, or everything in one process.",
        declare.one_of("tcp", "memory"),
    )
    device: str = declare.own_setting(
        "cpu",
        "Where tensors live.",
        declare.one_of("cpu", "cuda", "mps", "auto"),
        group="speed",
        other_names=("--gpu", "--cuda"),
        is_usual=True,
    )
    ranks: str | None = declare.own_setting(
        None,
        'Ranks to start on this machine: "0,1,2" or "0..30".',
        declare.text(),
        metavar="RANKS",
        default_text="all, or torchrun's RANK",
        is_usual=True,
    )
    threads: int | Literal["auto"] = declare.own_setting(
        "auto",
        "Compute threads per process.",
        declare.whole(1, 1024, word="auto"),
        metavar="N|auto",
        default_text="auto: cores // processes here; the server takes all cores",
        group="speed",
        is_usual=True,
    )
    cores: str = declare.own_setting(
        ANY_CORES,
        "Cores for the hosts of this machine, one entry for each and then from the first again: "
        '"0,1,1" or "0..3,4..7". The server may use all.',
        declare.ValueKind(str, _read_cores),
        metavar="LIST",
        group="speed",
    )
    out: str | None = declare.own_setting(
        None,
        "Folder of the run.",
        declare.text(),
        metavar="DIR",
        default_text="runs/NAME-TIME",
        group="output",
        is_usual=True,
    )

    log_file: str | None = _file(
        "File that also gets every line which the program prints, with its time.", group="output"
    )

    @property
    def core_sets(self) -> tuple[frozenset[int], ...]:
        """The cores of each host in order; empty if hosts may use all."""
        return () if self.cores == ANY_CORES else parse_cores(self.cores)

    excludes = (
        Excludes(
            "transport=memory",
            "ranks",
            "with {when} every rank is in this process; leave {ranks} out",
        ),
        Excludes("ranks transport=memory device!=cpu cores", "workers_per_host=auto", _NOT_TRIED),
    )

    def carried(self, by: str) -> int | None:
        """Reads `--workers-per-host` if another program (`by`) starts processes; refuses auto."""
        if self.workers_per_host == "auto":
            why, _, way_out = _NOT_TRIED.format(when=by).partition("; ")
            raise BadInput(flag("workers_per_host", "auto"), why, way_out)
        return self.workers_per_host


def without_other_guards(flags: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Drops credentials from the settings of a file or a run, if the user's flags name others."""
    has_guards = any(flags.get(name) not in (None, False) for name in _GUARDS)
    return {name: v for name, v in settings.items() if not (has_guards and name in _GUARDS)}


def read_identity(settings: LinkSettings) -> OwnIdentity | None:
    """Makes the function that reads this machine's certificate and whom it trusts.

    It reads the files anew at each call, since users may renew certificates. None without TLS.
    """
    files = {name: getattr(settings, name) for name in ("ca", "certificate", "key")}
    named = [name for name, value in files.items() if value is not None]
    if settings.insecure and (settings.credentials is not None or named):
        guard = flag("credentials") if settings.credentials is not None else key(named[0])
        raise BadInput(flag("insecure"), f"{guard} is given, too", "leave out one of them")
    if settings.credentials is not None:
        if named:
            why = f"{flag('credentials')} has it all"
            raise BadInput(key(named[0]), why, "leave out one of them")
        path = path_of(settings.credentials)
        return _renewed([path], partial(read_credentials, path))
    if not named:
        return None
    if missing := [name for name in files if name not in named]:
        why = f"needs {key(missing[0], 'FILE')}, too"
        raise BadInput(key(named[0], files[named[0]]), why)
    paths = [path_of(str(file)) for file in files.values()]
    return _renewed(paths, partial(read_own_pki, *paths))


def _renewed(paths: Sequence[Path], read: OwnIdentity) -> OwnIdentity:
    """Wraps a function that reads credentials, to log a line when the files have changed."""

    def in_log(identity: Identity) -> str:
        end = in_words(permit_of(identity.certificate).end)
        return f"{paths[0]}: has changed; links from now on have its certificate, valid until {end}"

    return Reread(paths, read, in_log).now


def read_revocations(
    settings: LinkSettings, identity: OwnIdentity | None, *, serves: bool = True
) -> Revocations:
    """Reads the list of revoked certificates. Only rank 0 must have it; elsewhere it may lack."""
    if settings.revoked is None or not (serves or path_of(settings.revoked).is_file()):
        return Revocations(None, b"")
    if identity is None:
        raise BadInput(flag("revoked", settings.revoked), f"needs {flag('credentials')}, too")
    return Revocations(path_of(settings.revoked), identity().authorities)


def check_exposed(address: str, settings: LinkSettings) -> None:
    """Refuses an address that other machines can reach, without credentials or `--insecure`."""
    if settings.is_guarded or settings.insecure:
        return
    if not ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        way_out = f"give {flag('credentials', 'FILE')} on every machine (`mdgan credentials new "
        way_out += f"FILE` makes one), or {flag('insecure')}"
        what = flag("master_addr", settings.master_addr)
        raise BadInput(what, f"others can reach {address}", way_out)
