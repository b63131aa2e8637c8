"""A server and its hosts in one process, some of them played by hand; the toy family trains."""

import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mdgan.data.fetching import Fetcher, Range
from mdgan.engine.host.checkpoints import HostCheckpoints
from mdgan.engine.host.describing import Describer
from mdgan.engine.host.encoding import HostEncoding
from mdgan.engine.host.loop import Host
from mdgan.engine.host.telling import HostReports
from mdgan.engine.parts import HostPart, ServerPart, Trainer
from mdgan.engine.server.admission import Admission
from mdgan.engine.server.checkpoints import ServerCheckpoints
from mdgan.engine.server.encoding import ServerEncoding
from mdgan.engine.server.loop import Server
from mdgan.engine.server.peers import Peers
from mdgan.engine.server.running_engine import RunningEngine
from mdgan.engine.server.scoring import ScorerLink
from mdgan.engine.settings import RunSettings
from mdgan.observe.run_observer import Launched, Rhythm, RunObserver
from mdgan.observe.snapshots import Sampled
from mdgan.observe.tracer import Tracer
from mdgan.privacy.spending import Spending
from mdgan.records.run_directory import RunDirectory
from mdgan.samples.kinds import PICTURES
from mdgan.storage.checkpoints import Checkpoints
from mdgan.storage.fence import Fence
from mdgan.storage.manifest import SERVER as SERVER_FILES
from mdgan.storage.manifest import Manifest
from mdgan.storage.state_file import read_state
from mdgan.timeouts import Timeouts
from mdgan.transport.memory import MemoryNetwork
from tests import processes, toy_family
from tests.unit.engine.learners import BATCH_SIZE, make_shard, make_worker
from tests.unit.engine.played import COPIED, IDENTITY, LONG, Played, hello, make_generator, weights

CPU = torch.device("cpu")


def as_after(made: "Stage", iteration: int, folder: Path) -> Path:
    """The folder of a run as it was when it had made a checkpoint and died."""
    shutil.copytree(made.folder, folder)
    for later in made.checkpoints.committed():
        if later > iteration:
            shutil.rmtree(folder / "checkpoints" / f"{later:07d}")
    return folder


class CopyingToy(toy_family.ToyServer):
    """The toy, whose newcomers need a copy of another worker's model."""

    copied = COPIED


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


def make_host(
    part: HostPart,
    hello: Mapping[str, Any],
    connect: Callable[..., Any],
    timeouts: Timeouts,
    folder: Path,
    tracer: Tracer,
    *,
    keep: int = 2,
    to_server: bool = False,
) -> Host:
    """A host whose workers hold noise."""
    shards = {int(rank): make_shard(int(rank)) for rank in part.learners}
    return Host(
        part,
        hello,
        connect,
        timeouts,
        Describer(shards, None, CPU),
        HostCheckpoints(lambda _run: folder, tracer, keep, to_server=to_server),
        HostReports(tracer, Fetcher(Range(1, 1), Range(0, 0)), Spending({})),
        HostEncoding(PICTURES, lambda _: {}),
    )


class Stage:
    """A server, the network, and the hosts that join.

    Args:
        folder: for the run.
        num_workers: N.
        iterations: I.
        deadline: seconds, or a factor; 0 for neither.
        checkpoints: iterations between two.
        goes_on: whether the run goes on from its newest checkpoint.
        settings: other settings of the run.
    """

    def __init__(
        self,
        folder: Path,
        *,
        num_workers: int = 2,
        iterations: int = 3,
        deadline: tuple[float, float] = (0.0, 0.0),
        checkpoints: int = 0,
        keep: int = 2,
        to_server: bool = False,
        patience: float = LONG,
        connect: float = LONG,
        liveness: float = LONG,
        answer: float = LONG,
        swap_seconds: float | None = None,
        return_seconds: float = LONG,
        goes_on: bool = False,
        replaces_another: bool = False,
        scorer: ScorerLink | None = None,
        **settings: Any,
    ) -> None:
        self.folder = folder
        self.run = RunDirectory(folder) if goes_on else RunDirectory.claim(folder)
        self.checkpoints = Checkpoints(self.run.checkpoints, keep)
        self.fence = Fence.claim(folder)
        self.timeouts = Timeouts(
            connect=connect,
            link=(answer / 2 if swap_seconds is None else swap_seconds) / 2,
            swap=answer / 2 if swap_seconds is None else swap_seconds,
            answer=answer,
            farewell=min(0.3, answer / 8, (swap_seconds or answer) / 8),
            liveness=liveness,
            patience=patience,
        )
        seconds, factor = deadline
        self.settings = self.make_settings(
            {
                "world_size": num_workers + 1,
                "iterations": iterations,
                "batch_size": BATCH_SIZE,
                "checkpoint_interval": checkpoints,
                "checkpoint_to_server": to_server,
                "deadline": f"{factor}x" if factor else str(seconds) if seconds else None,
                **settings,
            }
        )
        part = self.bring()
        self.form = part.form
        manifest = self.checkpoints.newest()[0] if goes_on else None
        self.admission = Admission(
            range(1, num_workers + 1) if not replaces_another or not manifest else manifest.workers,
            IDENTITY,
            {"generation": self.fence.generation, "run": "run", "wants_states": to_server},
            return_seconds,
            0 if manifest is None else manifest.iteration,
            checkpoint=None if manifest is None else manifest.whereabouts(),
        )
        self.observer = RunObserver(
            self.run,
            Sampled(part.generator, 6, 0),
            Rhythm(iterations, sample_interval=0, log_interval=1),
            Launched({}, time.monotonic(), {}, 0.0 if manifest is None else manifest.seconds),
        )
        self.network = MemoryNetwork(self.timeouts, self.admission.admit)
        self.peers = Peers(self.admission, self.network.server, self.observer, self.settings)
        config = {"iterations": iterations}
        self.saving = ServerCheckpoints(
            self.checkpoints, self.settings, config, self.fence, self.peers, manifest
        )
        trainer = Trainer(part)
        self.engine = RunningEngine(
            *(trainer, self.settings, self.peers, self.saving),
            *(scorer or ScorerLink(), self.timeouts, ServerEncoding(PICTURES, self.run)),
        )
        self.server = Server(self.engine)
        if manifest is not None:
            stored = manifest.files[SERVER_FILES]
            trainer.load_state(read_state(self.checkpoints.folder_of(manifest.iteration), stored))
            self.server.go_on(manifest, (), replaces_another=replaces_another)
        self.actor = Actor(self.server.run)
        self.hosts: dict[int, Actor] = {}
        self._own: list[Host] = []

    # What the algorithm is; another family's stage replaces these.

    def make_settings(self, values: Mapping[str, Any]) -> RunSettings:
        """The settings of the run."""
        return toy_family.ToySettings.read(values)

    def bring(self) -> ServerPart:
        """What the algorithm adds to the server."""
        self.generator = make_generator()
        return CopyingToy(self.generator, CPU)

    def bring_host(self, workers: Mapping[int, Any], tracer: Tracer) -> HostPart:
        """What the algorithm adds to a host."""
        return toy_family.ToyHost(workers, 2, tracer)

    def bring_worker(self, rank: int) -> Any:
        """What a host keeps for one of its workers."""
        return make_worker(rank)

    def said_of(self, workers: Sequence[int]) -> dict[str, Any]:
        """What a host of some workers says of itself."""
        return hello(*workers)

    def play(self, *workers: int, **fields: Any) -> Any:
        """A host played by the test."""
        return Played(self.network, *workers, **fields)

    # The hosts that take part.

    def begin(self, *hosts: Played) -> None:
        """Starts the server, and lets played hosts arrive."""
        self.actor.start()
        for host in hosts:
            host.ready()

    def begin_with(self, *groups: tuple[int, ...]) -> list[Any]:
        """Starts the server with played hosts that carry these workers."""
        hosts = [self.play(*workers) for workers in groups]
        self.begin(*hosts)
        return hosts

    def host(
        self,
        workers: Mapping[int, Any] | Sequence[int],
        *,
        patience: float = LONG,
        checkpoints: Path | None = None,
    ) -> Host:
        """Starts a real host in its own thread."""
        if not isinstance(workers, Mapping):
            workers = {rank: self.bring_worker(rank) for rank in workers}
        number = next(iter(workers))
        tracer = Tracer()
        made = make_host(
            self.bring_host(workers, tracer),
            self.said_of(list(workers)),
            lambda hello, _seconds: self.network.join(number, hello),
            replace(self.timeouts, patience=patience),
            checkpoints or self.run.checkpoints,
            tracer,
            to_server=self.settings.checkpoints.checkpoint_to_server,
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
            assert time.monotonic() < deadline, (
                f"no STOP for {[host.message_kinds() for host in serving]}"
            )
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
        return torch.equal(weights(self.generator), expected)

    def events(self, name: str) -> list[dict[str, Any]]:
        return processes.read_events(self.folder, name)

    def metrics(self) -> list[dict[str, Any]]:
        return processes.read_metrics(self.folder)

    def status(self) -> dict[str, Any]:
        return processes.read_status(self.folder)

    def attendance(self) -> dict[str, Any]:
        """How often each worker answered, was late, refused and lost."""
        workers: dict[str, Any] = self.events("attendance")[0]["workers"]
        return workers

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

    def await_due_checkpoint(self) -> None:
        """What a host does before it answers, if a test compares checkpoints: none is left out."""
        done = self.peers.iteration - 1
        if self.saving.due(done - 1, done):
            # A run that goes on has this checkpoint already, and may be writing it again.
            processes.wait_until(self.saving.complete, f"files of {done}", LONG)
            self.wait_for_checkpoint(done)

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


def begun(
    stage: Callable[..., Stage], *groups: tuple[int, ...], **how: Any
) -> tuple[Stage, list[Any]]:
    """A stage whose server trains, and the played hosts that carry these workers."""
    made = stage(**how)
    return made, made.begin_with(*groups)
