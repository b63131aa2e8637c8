"""What a host says of itself when it joins: the host makes it, the server reads it."""

import secrets
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec

MOST_RANKS = (1 << 31) - 1  # no rank is higher, and no worker has more samples
MOST_CLASSES = 1000
"""If the data set does not say that it has more; hosts may find groups themselves."""

_CERTIFICATE = "certificate "
_Rank = Annotated[int, msgspec.Meta(le=MOST_RANKS)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=MOST_RANKS)]


class Owner(NamedTuple):
    """Which host a rank, or a state, belongs to; see `HostHello`."""

    key: str
    certificate: str
    address: str = ""
    serial: str = ""

    @property
    def who(self) -> str:
        """Who answers for what the host does; on the server's machine that is one user."""
        if self.certificate:
            return f"{_CERTIFICATE}{self.certificate}"
        return f"address {self.address}" if self.address else ""

    @staticmethod
    def is_certificate(who: str) -> bool:
        """Whether that is who has a certificate of its own."""
        return who.startswith(_CERTIFICATE)

    def is_same(self, other: "Owner | None") -> bool:
        """Whether another one is the same host, or one with the same certificate."""
        return self.has_key_of(other) or (
            other is not None and _same(self.certificate, other.certificate)
        )

    def has_key_of(self, other: "Owner | None") -> bool:
        """Whether another one is the same host, in the same process."""
        return other is not None and _same(self.key, other.key)


def _same(ours: str, theirs: str) -> bool:
    return bool(ours) and secrets.compare_digest(ours.encode(), theirs.encode())


class HostHello(msgspec.Struct, frozen=True):
    """A host that wants to join; its number is that of its first worker."""

    host: int
    workers: Annotated[list[_Rank], msgspec.Meta(min_length=1)]
    identity: dict[str, Any]  # what must be equal on every rank
    num_samples: dict[int, _Count]
    class_counts: dict[int, list[_Count]]  # of each worker, the number of samples of each class
    generation: int  # of the server that it was linked with last; 0 for none
    # A secret of this host; with it the host proves that it is the same when it comes back.
    key: str
    listens: str | None = None  # where other hosts fetch from it; None if they need not know
    # What the transport knows it by, whatever it says itself; empty if the host has no certificate
    # that is its own.
    certificate: str = ""
    address: str = ""  # where its connection comes from, by the transport; empty on this machine
    # The number of its certificate, by which that may be revoked; empty without one.
    serial: str = ""
    ranks: list[int] = []  # that its certificate names; then it has no others

    @property
    def owner(self) -> Owner:
        """Which host says it."""
        return Owner(self.key, self.certificate, self.address, serial=self.serial)

    def why_another_run(self, identity: Mapping[str, Any]) -> str:
        """What differs between a host and this server; empty if nothing does."""
        for name, ours in identity.items():
            theirs = self.identity.get(name)
            if theirs == ours:
                continue
            shown = f"{theirs!s:.99}" if not isinstance(theirs, list | dict) else "no value"
            if name == "version":
                return (
                    f"rank {self.workers[0]} runs mdgan {shown}, rank 0 runs mdgan {ours}; "
                    "install the same version on every machine"
                )
            if name == "dataset_sha256":
                file = f"{identity.get('dataset')}.py"
                return (
                    f"rank {self.workers[0]} has another {file} than rank 0; copy rank 0's {file} "
                    "to this machine (its --datasets-dir, by default datasets)"
                )
            return (
                f"rank {self.workers[0]} has {name} = {shown}, rank 0 has {name} = {ours}; start "
                "every rank with the same settings"
            )
        return ""


def make_hello(
    host: int,
    class_counts: Mapping[int, Sequence[int]],
    identity: Mapping[str, Any],
    *,
    tells_classes: bool = True,
) -> dict[str, Any]:
    """The hello of a host that has not joined any server yet, as JSON values.

    Args:
        class_counts: the number of samples of each class, for each of its workers.
        tells_classes: whether to tell more than how many samples there are in all.
    """
    counts = class_counts if tells_classes else dict.fromkeys(class_counts, ())
    return {
        "purpose": "join",
        "host": host,
        "workers": list(class_counts),
        "num_samples": {str(worker): sum(held) for worker, held in class_counts.items()},
        "class_counts": {str(worker): list(held) for worker, held in counts.items()},
        "identity": dict(identity),
        "generation": 0,
        "key": secrets.token_hex(16),
    }


def read_hello(given: Mapping[str, Any]) -> HostHello | None:
    """Reads a hello, which any process may have sent; None if it is malformed."""
    try:
        hello = msgspec.convert(dict(given), HostHello, str_keys=True)
        hello.key.encode()
    except (msgspec.ValidationError, UnicodeError):
        return None
    fits = hello.num_samples.keys() == hello.class_counts.keys() == set(hello.workers)
    return hello if fits and hello.host == hello.workers[0] else None
