"""The hello of a host that joins: which ranks, samples and key it has. The server reads it."""

import secrets
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec

MOST_RANKS = (1 << 31) - 1  # the highest rank, and the most samples of a worker
MOST_CLASSES = 1000
"""The most classes of a host's data, unless the data set says that it has more."""

_CERTIFICATE = "certificate "
_Rank = Annotated[int, msgspec.Meta(le=MOST_RANKS)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=MOST_RANKS)]


class Owner(NamedTuple):
    """The host that a rank or a state belongs to; see `HostHello` for the fields."""

    key: str
    certificate: str
    address: str = ""
    serial: str = ""

    @property
    def who(self) -> str:
        """The name under which the host's acts count; "" on the server's machine, of one user."""
        if self.certificate:
            return f"{_CERTIFICATE}{self.certificate}"
        return f"address {self.address}" if self.address else ""

    @staticmethod
    def is_certificate(who: str) -> bool:
        """Whether a `who` names a certificate, not an address."""
        return who.startswith(_CERTIFICATE)

    def is_same(self, other: "Owner | None") -> bool:
        """Whether the other is the same host, or has the same certificate."""
        return self.has_key_of(other) or (
            other is not None and _same(self.certificate, other.certificate)
        )

    def has_key_of(self, other: "Owner | None") -> bool:
        """Whether the other is the same host, in the same process."""
        return other is not None and _same(self.key, other.key)


def _same(one: str, other: str) -> bool:
    return bool(one) and secrets.compare_digest(one.encode(), other.encode())


class HostHello(msgspec.Struct, frozen=True):
    """The hello of a host that wants to join, with fields that the transport adds."""

    host: int  # its number, which is its first worker's rank
    workers: Annotated[list[_Rank], msgspec.Meta(min_length=1)]
    identity: dict[str, Any]  # what must be equal on every rank
    num_samples: dict[int, _Count]
    class_counts: dict[int, list[_Count]]  # of each worker, the number of samples of each class
    generation: int  # of the server that it was linked with last; 0 for none
    # A secret by which a host that comes back proves that it is the same.
    key: str
    listens: str | None = None  # the address where other hosts fetch from it; None for none
    # Set by the transport: the fingerprint of the host's own certificate; empty if it has none.
    certificate: str = ""
    address: str = ""  # set by the transport: where the connection comes from; "" on this machine
    # Set by the transport: the certificate's serial number, by which it may be revoked.
    serial: str = ""
    ranks: list[int] = []  # set by the transport: the certificate's; the host may have no others

    @property
    def owner(self) -> Owner:
        """The host that sent this hello."""
        return Owner(self.key, self.certificate, self.address, serial=self.serial)

    def why_another_run(self, identity: Mapping[str, Any]) -> str:
        """How the host's run differs from the server's `identity`; empty if it does not."""
        for name, expected in identity.items():
            actual = self.identity.get(name)
            if actual == expected:
                continue
            shown = f"{actual!s:.99}" if not isinstance(actual, list | dict) else "no value"
            if name == "version":
                return (
                    f"rank {self.workers[0]} runs mdgan {shown}, rank 0 runs mdgan {expected}; "
                    "install the same version on every machine"
                )
            if name == "dataset_sha256":
                file = f"{identity.get('dataset')}.py"
                return (
                    f"rank {self.workers[0]} has another {file} than rank 0; copy rank 0's {file} "
                    "to this machine (its --datasets-dir, by default datasets)"
                )
            return (
                f"rank {self.workers[0]} has {name} = {shown}, rank 0 has {name} = {expected}; "
                "start every rank with the same settings"
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
        class_counts: by worker, its number of samples of each class.
        tells_classes: whether the server may know these numbers, or only their sum.
    """
    counts = class_counts if tells_classes else dict.fromkeys(class_counts, ())
    return {
        "purpose": "join",
        "host": host,
        "workers": list(class_counts),
        "num_samples": {str(worker): sum(of_class) for worker, of_class in class_counts.items()},
        "class_counts": {str(worker): list(of_class) for worker, of_class in counts.items()},
        "identity": dict(identity),
        "generation": 0,
        "key": secrets.token_hex(16),
    }


def read_hello(raw_hello: Mapping[str, Any]) -> HostHello | None:
    """Reads a hello, which any process may have sent; None if it is malformed."""
    try:
        hello = msgspec.convert(dict(raw_hello), HostHello, str_keys=True)
        hello.key.encode()
    except (msgspec.ValidationError, UnicodeError):
        return None
    fits = hello.num_samples.keys() == hello.class_counts.keys() == set(hello.workers)
    return hello if fits and hello.host == hello.workers[0] else None
