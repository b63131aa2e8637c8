"""A server and its hosts in one process, some of them played by hand."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mdgan.data.congestion import Range
from mdgan.data.fetching import Fetcher
from mdgan.data.partitioner import Partitioner
from mdgan.data.shard import Shard
from mdgan.engine.host.checkpoints import HostCheckpoints
from mdgan.engine.host.describing import Describer
from mdgan.engine.host.loop import Host
from mdgan.engine.parts import HostPart, ServerPart
from mdgan.engine.server.build import build_server
from mdgan.engine.server.checkpoints import ServerCheckpoints, whereabouts
from mdgan.engine.server.membership import Membership
from mdgan.engine.server.scoring import Scoring
from mdgan.engine.settings import RunSettings
from mdgan.families.mdgan.arrival_server import ArrivalServer
from mdgan.families.mdgan.host import MDGANHost
from mdgan.families.mdgan.messages import COPIED, feedback_form
from mdgan.families.mdgan.server import MDGANServer
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.families.mdgan.worker import Judgement, OneByOne, Worker
from mdgan.gan.discriminator import Discriminator
from mdgan.gan.discriminator_learner import Rules
from mdgan.gan.labels import Samples
from mdgan.gan.losses import DISCRIMINATOR_LOSSES, GENERATOR_LOSSES
from mdgan.gan.model_state import part_of
from mdgan.gan.randomness import RandomState, generator_for
from mdgan.observe.run_observer import RunObserver
from mdgan.observe.tracer import Tracer
from mdgan.records.run_directory import RunDirectory
from mdgan.storage.checkpoints import Checkpoints
from mdgan.storage.fence import Fence
from mdgan.storage.manifest import SERVER as SERVER_FILES
from mdgan.storage.manifest import Manifest
from mdgan.storage.state_file import read_state
from mdgan.timeouts import Timeouts
from mdgan.transport.memory import MemoryNetwork
from tests import processes
from tests.unit.engine.played import IDENTITY, LONG, SHARD_SIZE, Played, hello, weights
from tests.unit.gan import small


class Noise(Partitioner):
    """A data set that needs no download."""

    def __init__(self, seed: int, num_samples: int = SHARD_SIZE) -> None:
        self.labels = torch.zeros(num_samples, dtype=torch.int64)
        self._images = small.images(seed, num_samples)

    def images(self, indices: Tensor) -> Tensor:
        return self._images[indices]


def make_shard(rank: int) -> Shard:
    return Shard(Noise(rank), torch.arange(SHARD_SIZE), generator_for(rank, "shard"))


def make_worker(rank: int, *, local_steps: int = 1, model_seed: int = 0) -> Worker:
    """All start with the same θ, as in a real run."""
    model = small.make_model(model_seed)
    return Worker(
        Discriminator(model, small.adam(model)),
        make_shard(rank),
        RandomState(rank + 2000, small.CPU),
        Rules(
            small.BATCH_SIZE,
            local_steps,
            DISCRIMINATOR_LOSSES["bce"],
            GENERATOR_LOSSES["non-saturating"],
        ),
    )


def discriminator(model_seed: int = 0) -> dict[str, Tensor]:
    """The state of a discriminator, as it travels."""
    return part_of(make_worker(1, model_seed=model_seed).state(), "discriminator.")


def copied(model_seed: int = 0) -> dict[str, Tensor]:
    """What others get of a worker's state, as it travels: weights and buffers."""
    state = make_worker(1, model_seed=model_seed).state()
    return {name: tensor for name, tensor in state.items() if name.startswith(COPIED)}


def same_state(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    """Equal names, and equal bits under each."""
    equal_names = first.keys() == second.keys()
    return equal_names and all(small.same_bits(first[name], second[name]) for name in first)


class Actor(threading.Thread):
    """A thread whose exception is kept."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self.error: BaseException | None = None
        self._work = work

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self.error = error

    def over(self) -> BaseException | None:
        """Waits for the end; returns what was raised."""
        self.join(LONG)
        assert not self.is_alive(), "still running"
        return self.error


class Stage:
    """A server, the network, and the hosts that join.

    Args:
        folder: for the run.
        num_workers: N.
        iterations: I.
        goes_on: the folder of a run whose newest checkpoint this one goes on from.
        settings: other settings of the run.
    """

    def __init__(
        self,
        folder: Path,
        *,
        num_workers: int = 2,
        iterations: int = 3,
        deadline: tuple[float, float] = (0.0, 0.0),
        quorum: float = 0.5,
        strikes: int = 3,
        checkpoints: int = 0,
        keep: int = 2,
        to_server: bool = False,
        patience: float = LONG,
        connect: float = LONG,
        liveness: float = LONG,
        answer: float = LONG,
        return_seconds: float = LONG,
        goes_on: bool = False,
        replaces_another: bool = False,
        scoring: Scoring | None = None,
        **settings: Any,
    ) -> None:
        self.folder = folder
        self.run = RunDirectory(folder) if goes_on else RunDirectory.claim(folder)
        self.checkpoints = Checkpoints(self.run.checkpoints, keep)
        self.fence = Fence.claim(folder)
        self.timeouts = Timeouts(
            connect=connect,
            link=answer / 4,
            swap=answer / 2,
            answer=answer,
            farewell=min(0.3, answer / 8),
            liveness=liveness,
            patience=patience,
        )
        self.settings = self.make_settings(
            {
                "world_size": num_workers + 1,
                "iterations": iterations,
                "batch_size": small.BATCH_SIZE,
                "quorum": quorum,
                "strikes": strikes,
                "checkpoint_interval": checkpoints,
                "checkpoint_to_server": to_server,
                "deadline": f"{deadline[1]}x"
                if deadline[1]
                else str(deadline[0])
                if deadline[0]
                else None,
                **settings,
            }
        )
        part = self.bring()
        self.form = part.form
        manifest = self.checkpoints.newest()[0] if goes_on else None
        self.members = Membership(
            range(1, num_workers + 1) if not replaces_another or not manifest else manifest.workers,
            IDENTITY,
            {"generation": self.fence.generation, "run": "run", "wants_states": to_server},
            return_seconds,
            0 if manifest is None else manifest.iteration,
        )
        self.observer = RunObserver(
            self.run,
            part.generator,
            z_dim=small.Z_DIM,
            seed=0,
            iterations=iterations,
            sample_interval=0,
            log_interval=1,
            status={},
            launched=time.monotonic(),
            seconds=0.0 if manifest is None else manifest.seconds,
        )
        self.saving = ServerCheckpoints(
            self.checkpoints,
            self.settings,
            {"iterations": iterations},
            self.fence,
            self.members,
            self.observer,
            manifest,
        )
        self.network = MemoryNetwork(self.timeouts, self.members.admit)
        self.server = build_server(
            part,
            self.settings,
            self.network.server,
            self.members,
            self.saving,
            scoring or Scoring(None, self.settings),
            self.observer,
            self.timeouts,
        )
        if manifest is not None:
            self.members.checkpoint = whereabouts(manifest)
            stored = manifest.files[SERVER_FILES]
            self.server.load_state(
                read_state(self.checkpoints.folder_of(manifest.iteration), stored)
            )
            self.server.go_on(manifest, (), replaces_another=replaces_another)
        self.actor = Actor(self.server.run)
        self.hosts: dict[int, Actor] = {}
        self._own: list[Host] = []

    # What the algorithm is; another family's stage replaces these.

    def make_settings(self, given: Mapping[str, Any]) -> RunSettings:
        """The settings of the run."""
        return MDGANSettings.read({"swap_interval": 0, **given})

    def bring(self) -> ServerPart:
        """What the algorithm adds to the server."""
        assert isinstance(self.settings, MDGANSettings)
        by_arrival, stale = self.settings.by_arrival, self.settings.stale
        policy = self.settings.training.policy("generator") if by_arrival else None
        self.learner = small.make_learner(stale=1 if by_arrival else stale, policy=policy)
        kind = ArrivalServer if by_arrival else MDGANServer
        return kind(self.learner, self.settings, feedback_form(self.settings, small.SHAPE))

    def bring_host(self, workers: Mapping[int, Any], tracer: Tracer) -> HostPart:
        """What the algorithm adds to a host."""
        group = OneByOne(workers, tracer.of_worker)
        return MDGANHost(workers, group, small.CPU, self.form, tracer)

    def said_of(self, workers: Sequence[int]) -> dict[str, Any]:
        """What a host of some workers says of itself."""
        return hello(*workers)

    # Who takes part.

    def begin(self, *hosts: Played) -> None:
        """Starts the server, and lets played hosts arrive."""
        self.actor.start()
        for host in hosts:
            host.ready()

    def begin_with(self, *groups: tuple[int, ...]) -> list[Played]:
        """Starts the server with played hosts that carry these workers."""
        hosts = [self.play(*workers) for workers in groups]
        self.begin(*hosts)
        return hosts

    def play(self, *workers: int, **said: Any) -> Played:
        """A host played by the test."""
        return Played(self.network, *workers, **said)

    def host(
        self,
        workers: Mapping[int, Any] | Sequence[int],
        *,
        patience: float = LONG,
        checkpoints: Path | None = None,
    ) -> Host:
        """A real host in a thread of its own."""
        if not isinstance(workers, Mapping):
            steps = self.settings.training.local_steps
            workers = {rank: make_worker(rank, local_steps=steps) for rank in workers}
        number = next(iter(workers))
        folder = checkpoints or self.run.checkpoints
        limits, tracer = replace(self.timeouts, patience=patience), Tracer()
        made = Host(
            self.bring_host(workers, tracer),
            self.said_of(list(workers)),
            lambda said, _seconds: self.network.join(number, said),
            limits,
            Describer({rank: make_shard(rank) for rank in workers}, None, small.CPU),
            HostCheckpoints(lambda _run: folder, tracer),
            tracer,
            Fetcher(Range(1, 1), Range(0, 0)),
        )
        self.hosts[number] = Actor(made.run)
        self._own.append(made)
        self.hosts[number].start()
        return made

    def cut(self, number: int) -> None:
        """Breaks a host's link, and both ends see it."""
        cut = self.network.hosts[number]
        cut.lose_server("the cable is cut")
        self.network.server.lose(cut.guest, "the cable is cut")

    # What became of it.

    def over(self) -> BaseException | None:
        """Waits for the server's end; returns what it raised."""
        return self.actor.over()

    def finished(self, *hosts: Played) -> None:
        """Waits until the server and all hosts have ended well; played hosts serve till then."""
        serving, deadline = list(hosts), time.monotonic() + LONG
        while serving:
            assert time.monotonic() < deadline, f"no STOP for {[host.told() for host in serving]}"
            for host in [host for host in serving if host.serve(0.01)]:
                host.die()
                serving.remove(host)
        error = self.over()
        assert error is None, repr(error)
        for actor in self.hosts.values():
            error = actor.over()
            assert error is None, repr(error)

    def has_learnt(self, expected: Tensor) -> bool:
        """Whether the generator is this one, bit for bit."""
        return small.same_bits(weights(self.learner.model), expected)

    def events(self, name: str) -> list[dict[str, Any]]:
        return processes.read_events(self.folder, name)

    def metrics(self) -> list[dict[str, Any]]:
        return processes.read_metrics(self.folder)

    def status(self) -> dict[str, Any]:
        return processes.read_status(self.folder)

    def wait_for_event(self, name: str, count: int = 1) -> dict[str, Any]:
        """Waits until something is recorded."""
        processes.wait_until(lambda: len(self.events(name)) >= count, f"event {name}", LONG)
        return self.events(name)[count - 1]

    def wait_for_checkpoint(self, iteration: int) -> Manifest:
        """Waits until a checkpoint counts."""

        def is_known() -> bool:
            newest = self.saving.newest()
            return newest is not None and newest["iteration"] >= iteration

        processes.wait_until(is_known, f"checkpoint {iteration}", LONG)
        manifest = self.checkpoints.newest()[0]
        assert manifest is not None
        return manifest

    def disk_keeps_up(self, worker: Worker) -> None:
        """A worker answers only when the checkpoint that was due before is there."""
        feedback = worker.feedback

        def answer_later(judged: Samples) -> Judgement:
            done = self.members.iteration - 1
            if self.saving.due(done - 1, done):
                # A run that goes on has this checkpoint already, and may be writing it again.
                processes.wait_until(self.saving.complete, f"files of {done}", LONG)
                self.wait_for_checkpoint(done)
            return feedback(judged)

        worker.feedback = answer_later  # type: ignore[method-assign] # of this one alone

    def close(self) -> None:
        """Ends whatever still runs, so that a test that failed disturbs no other."""
        for _ in range(2):  # the first time it would finish its iteration
            self.network.server.interrupt()
        for host in self._own:
            host.interrupt()
        if self.actor.is_alive():
            self.actor.join(2)
        self.network.server.close()
        for actor in self.hosts.values():
            actor.join(2)
