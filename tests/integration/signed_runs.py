"""Makes runs of a server and hosts with certificates, and bundles that an attacker has changed."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from mdgan.credentials.identity import read_credentials
from mdgan.release.evidence import EVIDENCE_FILE, RunEvidence
from mdgan.release.signing import MANIFEST_FILE, SIGNATURE_FILE, document, seal
from mdgan.release.verify import Check, Trust, verify_bundle
from tests.processes import MDGAN, ended_well, finish, read_status, run_here, start, wait_until

ITERATIONS = 40
TRAIN = [*MDGAN, "train", "--iterations", str(ITERATIONS), "--batch-size", "10"]
TRAIN += ["--threads", "1"]


def issue(folder: Path, *arguments: str) -> None:
    assert run_here("credentials", *arguments, cwd=folder).status == 0


def trained_apart(
    folder: Path,
    *flags: str,
    hosts: int = 2,
    iterations: int = ITERATIONS,
    server: Sequence[str] = MDGAN,
) -> None:
    """A server and some hosts, each with its own certificate.

    Args:
        server: what runs instead of `mdgan` at the server.
    """
    issue(folder, "init", "ca")
    issue(folder, "issue", "ca", "server", "--role", "server")
    for rank in range(1, hosts + 1):
        issue(folder, "issue", "ca", f"site{rank}", "--ranks", str(rank))
    train = [*TRAIN, "--world-size", str(hosts + 1), "--eval-interval", str(iterations), *flags]
    server_flags = ["--ranks", "0", "--listen", "127.0.0.1:0", "--credentials", "ca/server.cred"]
    serving = start([*server, *train[len(MDGAN) :], *server_flags, "--out", "run"], folder)
    wait_until((folder / "run" / "run.json").exists, "the server is there")
    port = str(read_status(folder / "run")["listens"]).rpartition(":")[2]
    started = []
    for rank in range(1, hosts + 1):
        where = ["--ranks", str(rank), "--credentials", f"ca/site{rank}.cred"]
        where += ["--master-port", port, "--out", f"host{rank}"]
        started.append(start([*train, *where], folder))
    ended_well(finish(serving, 120), folder / "run", iterations)
    assert [finish(host).status for host in started] == [0] * hosts


def checked(place: Path, bundle: Path | None = None, **trust: object) -> list[Check]:
    return verify_bundle(
        bundle or place / "bundle",
        Trust(place / "ca" / "ca.pem", **trust),  # type: ignore[arg-type] # by name
    )


def wrong(checks: list[Check]) -> str:
    return "\n".join(each.line for each in checks if not each.holds)


def same(evidence: RunEvidence) -> RunEvidence:
    return evidence


def resealed(
    place: Path,
    to: Path,
    change: Callable[[RunEvidence], RunEvidence] = same,
    **files: bytes | None,
) -> Path:
    """A bundle whose server says something else, and signs that.

    Args:
        files: their new contents, by name with `_` for the dot; None for a file that goes.
    """
    shutil.copytree(place / "bundle", to)
    for name, content in files.items():
        path = to / name.replace("_", ".")
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
    evidence = msgspec.json.decode((to / EVIDENCE_FILE).read_bytes(), type=RunEvidence)
    (to / EVIDENCE_FILE).write_bytes(document(change(evidence)))
    credentials = read_credentials(place / "ca" / "server.cred")
    names = {path.name for path in to.iterdir()} - {MANIFEST_FILE, SIGNATURE_FILE}
    for name, data in seal({n: (to / n).read_bytes() for n in names}, credentials).items():
        (to / name).write_bytes(data)
    return to


def replaced(**changes: object) -> Callable[[RunEvidence], RunEvidence]:
    return lambda evidence: msgspec.structs.replace(evidence, **changes)
