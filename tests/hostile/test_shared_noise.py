"""One certificate has most workers and adds no noise: the noise of the others protects them."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import sqrt
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from mdgan.engine.parts import HostHandler
from mdgan.families.moments import contract
from mdgan.families.moments.host import MomentsHost
from mdgan.launch import checked, processes
from mdgan.launch.ranks import LocalRanks, local_ranks
from mdgan.messages import Message
from mdgan.privacy.budget import ClientsAccount
from mdgan.privacy.noise import with_noise
from mdgan.transport.host_end import HostTransport
from tests.accounts import charges_in
from tests.claims.registry import claim
from tests.hostile.lying_server import certified
from tests.processes import Finished, ended_well, run_here

pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")

SIGMA = 4.0
LIAR, HONEST = tuple(range(1, 8)), ((8,), (9,), (10,))
FLAGS = [
    *("train", "--algorithm", "moments", "--architecture", "md-gan-mlp", "--width", "8"),
    *("--transport", "memory", "--world-size", "11", "--threads", "1", "--iterations", "2"),
    *("--batch-size", "10", "--sample-interval", "0", "--set", "num_features=200"),
    *("--workers-per-host", "1", "--secure-aggregation"),
]
NOISY = ["--dp-noise", str(SIGMA), "--dp-delta", "1e-4", "--dp-ledger", "ledger"]


@contextmanager
def one_carries_seven() -> Iterator[None]:
    """Host 1 has seven of the ten workers, and adds nothing to what they tell."""
    here, handlers = threading.local(), MomentsHost.handlers

    def divided(*asked: Any) -> LocalRanks:
        result = local_ranks(*asked)
        return LocalRanks(result.serves, (LIAR, *HONEST), result.complete)

    def noted(part: MomentsHost) -> Mapping[str, HostHandler]:
        def noting(handle: HostHandler) -> HostHandler:
            def handled(message: Message, transport: HostTransport) -> None:
                here.adds_nothing = 1 in part.learners
                handle(message, transport)

            return handled

        return {kind: noting(handle) for kind, handle in handlers(part).items()}

    def nothing(total: Tensor, *noise: Any) -> Tensor:
        return total if here.adds_nothing else with_noise(total, *noise)

    with (
        patch.object(checked, "local_ranks", divided),
        patch.object(processes, "HostKeys", certified),
        patch.object(MomentsHost, "handlers", noted),
        patch.object(contract, "with_noise", nothing),
    ):
        yield


def sums_in(folder: Path) -> Tensor:
    (file,) = max((folder / "checkpoints").iterdir()).glob("server*")
    return load_file(file)["told.sums"].double()


@pytest.mark.parametrize(
    ("sharers", "left"), [(None, 3 / 4), pytest.param(3, 3 / 3, marks=pytest.mark.slow)]
)
@claim(
    "noise-left",
    "Where c of M certificates work together with the server, the noise that is left has the "
    "variance σ²(M − c)/M",
)
def test_the_noise_of_all_other_certificates_is_left(
    tmp_path: Path, sharers: int | None, left: float
) -> None:
    """By workers, three tenths would be: ε = 6 instead of 3."""
    more = [] if sharers is None else ["--set", f"noise_sharers={sharers}"]
    with one_carries_seven():
        ended_well(run_here(*FLAGS, "--out", "plain", cwd=tmp_path), tmp_path / "plain", 2)
        noisy = run_here(*FLAGS, *NOISY, *more, "--out", "noisy", cwd=tmp_path)
    ended_well(noisy, tmp_path / "noisy", 2)
    noise = sums_in(tmp_path / "noisy") - sums_in(tmp_path / "plain")
    assert float(noise.square().mean()) / SIGMA**2 == pytest.approx(left, rel=0.15)
    assert float(noise.std()) / SIGMA > 0.75


@claim(
    "client-shared",
    "With --secure-aggregation certificates share the noise, and nobody need trust the server "
    "with it",
)
def test_clients_of_other_certificates_leave_their_noise_in_a_round(tmp_path: Path) -> None:
    """Updates are cut to next to nothing: what is left is the noise, divided by ten clients."""
    flags = ["train", "--algorithm", "fl-gan", "--dp-unit", "client", "--transport", "memory"]
    flags += ["--world-size", "11", "--workers-per-host", "1", "--threads", "1", "--batch-size"]
    flags += ["4", "--iterations", "1", "--round-iterations", "1", "--sample-interval", "0"]
    noisy = [*NOISY[:2], "--dp-delta", "0.01", *NOISY[4:], "--dp-clip", "1e-3"]
    add = ClientsAccount.with_part_of_noise

    def nothing(account: ClientsAccount, updates: Mapping[int, Tensor], *more: Any) -> Any:
        if updates.keys() & set(LIAR):
            return {client: update.double() for client, update in updates.items()}
        return add(account, updates, *more)

    with one_carries_seven(), patch.object(ClientsAccount, "with_part_of_noise", nothing):
        still = [*flags, "--dp-noise", "0", "--dp-clip", "1e-9", "--out", "still"]
        ended_well(run_here(*still, cwd=tmp_path), tmp_path / "still", 1)
        result = run_here(*flags, *noisy, "--secure-aggregation", "--out", "noisy", cwd=tmp_path)
    ended_well(result, tmp_path / "noisy", 1)
    before, after = (
        load_file(tmp_path / name / "generator.safetensors") for name in ("still", "noisy")
    )
    weights = [name for name in after if name.endswith("weight")]
    noise = torch.cat([(after[name] - before[name]).flatten() for name in weights])
    assert float(noise.std()) == pytest.approx(SIGMA * 1e-3 / 10 * sqrt(3 / 4), rel=0.05)


def in_vain(folder: Path, *flags: str) -> Finished:
    with one_carries_seven():
        result = run_here(*FLAGS, *NOISY, *flags, "--out", "run", cwd=folder)
    assert result.status != 0
    assert "Traceback" not in result.errors
    assert not any(charge.steps for charge in charges_in(folder / "ledger"))
    return result


def test_more_sharers_than_there_are_certificates_are_refused(tmp_path: Path) -> None:
    result = in_vain(tmp_path, "--set", "noise_sharers=5")
    assert result.status == 2
    assert "noise_sharers=5: all workers have 4 certificate(s)" in result.errors


@claim(
    "sharers-left",
    "has a machine help with no sum of fewer; with K = M + c the stated ε holds against c of them.",
)
def test_a_host_that_insists_on_more_tells_nothing(tmp_path: Path) -> None:
    result = in_vain(tmp_path, "--require", "noise-sharers>=5")
    assert "all but 4 of the 5 hosts that a sum takes" in result.errors


def test_a_host_that_insists_on_as_many_takes_part(tmp_path: Path) -> None:
    with one_carries_seven():
        flags = [*FLAGS, *NOISY, "--require", "noise-sharers>=4,secure-aggregation>=4"]
        ended_well(run_here(*flags, "--out", "run", cwd=tmp_path), tmp_path / "run", 2)
