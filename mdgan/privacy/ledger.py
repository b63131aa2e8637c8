"""What was spent: by a worker's samples, on its own machine; by clients, on the server's.

A file for each shard, named by what the shard holds and not by a rank or a run: it holds the secret
that noise is made of, and how many steps may have been taken. Steps are reserved in blocks before
they are used. A process that is killed leaves its block spent, and the next one goes on behind it;
a process that ends in order leaves the exact number.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import msgspec
import torch
from torch import Tensor

from mdgan.errors import BadInput, cannot_write
from mdgan.gan.labels import Samples
from mdgan.privacy.accountant import Charge, joined
from mdgan.privacy.random_stream import SECRET_BYTES, step_key
from mdgan.privacy.settings import PrivacySettings
from mdgan.settings.machine import path_of
from mdgan.storage.whole_file import make_folder, whole_file

BLOCK = 64
"""Steps that are reserved at once."""
_SAME_SAMPLES = (
    "another worker of this machine trains on the same samples; give each worker samples of its own"
)
_PROBED = 64
_PRIVATE = 0o600
_VERSION = 1


class _Entry(msgspec.Struct, frozen=True):
    """Steps that are alike; see `Charge`."""

    noise: float
    rate: float
    steps: int


class Plan(msgspec.Struct, frozen=True):
    """What the last steps were taken for.

    Attributes:
        asked: all that decides the other two.
        noise: σ.
        until: the number of steps of all runs at which it is used up.
    """

    asked: str
    noise: float
    until: int


class Content(msgspec.Struct, frozen=True):
    """What a ledger's file holds."""

    secret: str
    entries: list[_Entry]
    plan: Plan | None = None
    version: int = _VERSION

    @property
    def charges(self) -> tuple[Charge, ...]:
        """All steps that were taken, or may have been."""
        return joined([Charge(entry.noise, entry.rate, entry.steps) for entry in self.entries])

    @property
    def taken(self) -> int:
        """Their number."""
        return sum(entry.steps for entry in self.entries)


class Sampled(Protocol):
    """A shard."""

    def __len__(self) -> int: ...

    def class_counts(self) -> list[int]:
        """The number of samples of each class."""

    def taken(self, positions: Tensor) -> Samples:
        """The samples at some positions."""


def fingerprint(shard: Sampled) -> str:
    """What tells a shard from others: its size, its classes, and 64 samples spread over it.

    Two shards that are confused have one ledger, which then counts too much and never too little.

    Args:
        shard: with at least one sample.
    """
    places = torch.linspace(0, len(shard) - 1, min(_PROBED, len(shard)), dtype=torch.float64)
    images = shard.taken(places.round().long()).images
    digest = hashlib.sha256(json.dumps([len(shard), shard.class_counts()]).encode())
    digest.update(images.contiguous().numpy().tobytes())
    return digest.hexdigest()


def ledger_folder(settings: PrivacySettings) -> Path:
    """Where this machine remembers what its samples have spent.

    Raises:
        BadInput: the user has no home folder and names none.
    """
    if settings.dp_ledger is not None:
        return path_of(settings.dp_ledger)
    given = os.environ.get("XDG_STATE_HOME", "")
    try:
        # The XDG specification: relative paths there are to be ignored.
        base = Path(given) if Path(given).is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise BadInput(
            f"{settings.dp_flag}: there is no home folder to remember in what samples have spent; "
            "give --dp-ledger DIR"
        ) from error
    return base / "mdgan" / "privacy"


class Ledger:
    """The file of one shard, held by one process at a time.

    Args:
        folder: of the ledgers of this machine.
        name: of the shard, from `fingerprint`.
        block: how many steps are reserved at once.
        in_use: what it means that another process holds it, and the way out.

    Raises:
        BadInput: another process holds it, or it cannot be read or written.
    """

    def __init__(
        self, folder: Path, name: str, block: int = BLOCK, in_use: str = _SAME_SAMPLES
    ) -> None:
        self.path = folder / f"{name}.json"
        self._block = block
        try:
            make_folder(folder)
            self._lock = os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT, _PRIVATE)
        except OSError as error:
            raise BadInput(cannot_write(f"--dp-ledger {folder}", error)) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise BadInput(f"--dp-ledger {self.path}: {in_use}") from error
        try:
            content = read(self.path) or Content(secrets.token_hex(SECRET_BYTES), [])
            self._secret = bytes.fromhex(content.secret)
            self._charges = list(content.charges)
            self._plan = content.plan
            self._taken = self._reserved = content.taken
        except BaseException:
            os.close(self._lock)
            raise

    @property
    def content(self) -> Content:
        """What it holds now."""
        entries = [_Entry(*charge) for charge in self._charges]
        return Content(self._secret.hex(), entries, self._plan)

    def begin(self, plan: Plan, rate: float) -> None:
        """Steps follow, perhaps of another kind; comes before the first.

        Args:
            plan: what they are taken for.
            rate: q.
        """
        self._plan = plan
        last = self._charges[-1] if self._charges else None
        if last is None or (last.noise, last.rate) != (plan.noise, rate):
            self._charges.append(Charge(plan.noise, rate, 0))

    def key(self, use: str) -> bytes:
        """See `Steps`; the step is reserved on the disk before.

        Raises:
            BadInput: that cannot be done.
        """
        if self._taken >= self._reserved:
            try:
                self._write(self._taken + self._block)
            except OSError as error:
                raise BadInput(cannot_write(f"--dp-ledger {self.path}", error)) from error
        return step_key(self._secret, self._taken, use)

    def advance(self) -> None:
        """See `Steps`."""
        self._taken += 1
        self._charges[-1] = self._charges[-1]._replace(steps=self._charges[-1].steps + 1)

    def state(self) -> dict[str, Tensor]:
        """See `Steps`: nothing. What was spent is spent, whatever a run goes back to."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """See `Steps`."""

    def close(self) -> None:
        """The process ends in order: the number of steps is exact."""
        if self._lock < 0:
            return
        with contextlib.suppress(OSError):  # then the whole block counts as spent
            if self._reserved != self._taken:
                self._write(self._taken)
        os.close(self._lock)
        self._lock = -1

    def _write(self, reserved: int) -> None:
        content = self.content
        last = content.entries[-1]
        content.entries[-1] = _Entry(last.noise, last.rate, last.steps + reserved - self._taken)
        with whole_file(self.path, _PRIVATE) as file:
            file.write(msgspec.json.encode(content))
        self._reserved = reserved


def read(path: Path) -> Content | None:
    """What a ledger's file holds; None if there is none.

    Raises:
        BadInput: it is damaged, or cannot be read.
    """
    try:
        content = msgspec.json.decode(path.read_bytes(), type=Content)
        if len(bytes.fromhex(content.secret)) != SECRET_BYTES or content.version != _VERSION:
            raise ValueError("no secret of this version")
        if any(not (e.noise > 0 and 0 < e.rate <= 1 and e.steps >= 0) for e in content.entries):
            raise ValueError("steps that cannot be")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"--dp-ledger {path}: cannot read it ({error.strerror})") from error
    except ValueError as error:
        raise BadInput(
            f"--dp-ledger {path}: damaged ({error}); restore it from a copy, for without it what "
            "these samples have spent is not known"
        ) from error
    return content
