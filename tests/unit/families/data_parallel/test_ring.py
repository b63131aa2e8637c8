"""Gradients that are added up in a ring train as they do in a star, whatever happens to it."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mdgan.engine.host.loop import Host
from mdgan.errors import Interrupted
from mdgan.families.data_parallel import ring_host
from mdgan.families.data_parallel.replica import GENERATOR, Replica
from mdgan.families.data_parallel.ring_host import RingMember
from mdgan.families.data_parallel.settings import STAR
from mdgan.transport.collective import Collective
from tests.unit.families.data_parallel.replicas import ReplicaStage, all_values, make_replica

Spoil = Callable[[Tensor], Tensor]


class RingStage(ReplicaStage):
    """A stage with real hosts, which may add up in a ring."""

    def host_of(self, *ranks: int, spoils: Mapping[int, Spoil] | None = None) -> Host:
        """A real host; the n-th gradient that its first worker finds may be spoilt."""
        replicas = {rank: make_replica(rank) for rank in ranks}
        if spoils:
            _spoil(replicas[ranks[0]], spoils)
        return self.host(replicas)


def _spoil(replica: Replica, spoils: Mapping[int, Spoil]) -> None:
    honest, count = replica.gradients, 0

    def gradients(*given: Any) -> tuple[Tensor, Tensor]:
        nonlocal count
        count += 1
        vector, losses = honest(*given)
        return spoils[count](vector) if count in spoils else vector, losses

    replica.gradients = gradients  # type: ignore[method-assign, assignment] # of this one alone


def trained(
    folder: Path,
    how: str,
    *groups: Sequence[int],
    spoils: Mapping[int, Spoil] | None = None,
    **settings: Any,
) -> RingStage:
    """A run that has ended well, on hosts that carry these workers."""
    num_workers = sum(map(len, groups))
    given = {"iterations": 4, "all_reduce": how, **settings}
    stage = RingStage(folder / how, num_workers=num_workers, **given)
    try:
        for group in groups:
            stage.host_of(*group, spoils=spoils if 1 in group else None)
        stage.begin()
        stage.finished()
    finally:
        stage.close()
    return stage


def models(stage: RingStage) -> Tensor:
    return all_values(stage.reference.models)


def sums_asked(stage: RingStage) -> int:
    """How many times hosts were asked to add up."""
    return stage.network.server.traffic.sent["SUM"] // max(1, len(stage.hosts))


@pytest.mark.parametrize(
    "settings", [{"local_steps": 2}, {"updates": "async", "image_buffer": 2}], ids=str
)
def test_a_ring_has_the_bits_of_the_star(tmp_path: Path, settings: dict[str, Any]) -> None:
    star = trained(tmp_path, STAR, (1, 2, 3), **settings)
    ring = trained(tmp_path, "ring", (1,), (2, 3), **settings)
    assert sums_asked(ring) > 0
    assert "GGRADIENT" not in ring.network.server.traffic.received
    assert torch.equal(models(ring), models(star))
    assert [row["generator_loss"] for row in ring.metrics()] == [
        row["generator_loss"] for row in star.metrics()
    ]


@pytest.mark.slow
def test_fast_sums_are_near(tmp_path: Path) -> None:
    star = trained(tmp_path, STAR, (1,), (2,))
    fast = trained(tmp_path, "fast-bf16", (1,), (2,))
    assert not torch.equal(models(fast), models(star))
    assert torch.allclose(models(fast), models(star), atol=1e-2)


@pytest.mark.parametrize("factor", [float("nan"), pytest.param(1e6, marks=pytest.mark.slow)])
def test_what_cannot_be_added_up_becomes_what_it_does_in_a_star(
    tmp_path: Path, factor: float
) -> None:
    spoils: dict[int, Spoil] = {3: lambda vector: vector * factor}
    star = trained(tmp_path, STAR, (1,), (2,), (3,), spoils=spoils)
    ring = trained(tmp_path, "ring", (1,), (2,), (3,), spoils=spoils)
    assert torch.equal(models(ring), models(star))
    refused = [(event["worker"], event["strikes"]) for event in star.events("refused")]
    assert [(event["worker"], event["strikes"]) for event in ring.events("refused")] == refused
    assert refused == [(1, 1)]


def test_a_sum_beyond_whole_steps_goes_through_the_server(tmp_path: Path) -> None:
    """Two workers cannot vote on what is absurd."""
    spoils: dict[int, Spoil] = {3: lambda vector: vector * 1e6}
    star = trained(tmp_path, STAR, (1,), (2,), spoils=spoils)
    ring = trained(tmp_path, "ring", (1,), (2,), spoils=spoils)
    received = ring.network.server.traffic.received
    assert received["DGRADIENT"] > 0
    assert "GGRADIENT" not in received, "only that one went through the server"
    assert torch.equal(models(ring), models(star))


class _Breaks(Collective):
    """Breaks when it is to add up for the third time."""

    count = 0

    def add_up(self, *tensors: Tensor) -> bool:
        _Breaks.count += 1
        if _Breaks.count == 3:
            self.close()
        return super().add_up(*tensors)


def test_a_ring_that_breaks_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    star = trained(tmp_path, STAR, (1,), (2,))
    monkeypatch.setattr(ring_host, "Collective", _Breaks)
    ring = trained(tmp_path, "ring", (1,), (2,))
    traffic = ring.network.server.traffic
    assert traffic.received["GGRADIENT"] > 0
    assert "DGRADIENT" not in traffic.received, "only one sum was lost"
    assert _Breaks.count > 8, "it was built again"
    assert torch.equal(models(ring), models(star))


class _Misses(Collective):
    """Tells one host that a sum has not come, after all members have it."""

    count = 0

    def add_up(self, *tensors: Tensor) -> bool:
        came = super().add_up(*tensors)
        _Misses.count += 1
        return came and _Misses.count != 3


def test_a_host_that_alone_misses_a_sum_gets_the_replica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    star = trained(tmp_path, STAR, (1,), (2,))
    monkeypatch.setattr(ring_host, "Collective", _Misses)
    ring = trained(tmp_path, "ring", (1,), (2,))
    received = ring.network.server.traffic.received
    assert received["BEHIND"] > 0
    assert not {"DGRADIENT", "GGRADIENT"} & received.keys(), "all others have stepped"
    assert torch.equal(models(ring), models(star))


@pytest.mark.slow
def test_hosts_that_cannot_connect_train_in_a_star(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    star = trained(tmp_path, STAR, (1,), (2,))
    monkeypatch.setattr(Collective, "connect", lambda *_: False)
    ring = trained(tmp_path, "ring", (1,), (2,))
    assert sums_asked(ring) == 0
    assert torch.equal(models(ring), models(star))


def test_a_replica_that_differs_is_named_and_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = RingMember._step
    spoilt: list[int] = []

    def step(member: RingMember, iteration: int, weights: Mapping[int, float]) -> bool:
        stepped = honest(member, iteration, weights)
        if 2 in member._local and not spoilt:
            spoilt.append(iteration)
            with torch.no_grad():
                next(member._replica.models[GENERATOR].parameters()).view(-1)[0] += 1e-6
        return stepped

    monkeypatch.setattr(RingMember, "_step", step)
    ring = trained(tmp_path, "ring", (1,), (2,), iterations=6, checkpoints=2)
    (event,) = ring.events("replica")
    assert (event["workers"], event["iteration"]) == ([2], 2)


@pytest.mark.slow
def test_hosts_come_and_go(tmp_path: Path) -> None:
    """A newcomer gets the replica with its moments; a ring of one worker is none."""
    stage = RingStage(
        tmp_path / "run", iterations=10, all_reduce="ring", checkpoints=1, return_seconds=0.0
    )

    def waits_for(event: str) -> Spoil:
        def spoil(vector: Tensor) -> Tensor:
            stage.wait_for_event(event)
            return vector

        return spoil

    try:
        stage.host_of(1, spoils={5: waits_for("left"), 11: waits_for("joined")})
        leaving = stage.host_of(2)
        stage.begin()
        stage.wait_for_event("holdings")
        leaving.interrupt()
        stage.wait_for_event("left")
        stage.host_of(3, 4)
        assert isinstance(stage.hosts.pop(2).over(), Interrupted)
        stage.finished()
    finally:
        stage.close()
    assert not stage.events("replica"), "all have stepped alike"
    assert stage.status()["state"] == "finished"
