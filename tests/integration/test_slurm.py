"""Runs on a real Slurm cluster of several nodes, one of which is drained and two of which die."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import (
    QUICK,
    REPOSITORY,
    generator_bytes,
    read_events,
    read_metrics,
    read_status,
    run_here,
)
from tests.slurm_cluster import SlurmCluster, until, why_not

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    made = SlurmCluster(4)
    yield made
    made.stop()


@pytest.fixture
def mdgan(tmp_path: Path) -> Path:
    """A program `mdgan` of this checkout."""
    path = tmp_path / "mdgan"
    path.write_text(f'#!/bin/sh\nPYTHONPATH={REPOSITORY} exec {sys.executable} -m mdgan "$@"\n')
    path.chmod(0o755)
    return path


def test_tasks_of_slurm_give_the_same_generator(
    cluster: SlurmCluster, mdgan: Path, tmp_path: Path
) -> None:
    alone = run_here(
        *("train", "--transport", "memory", "--world-size", "4", *QUICK, "--out", "alone"),
        cwd=tmp_path,
    )
    assert alone.status == 0, alone
    flags = ["train", *QUICK, "--out", "spread"]
    spread = cluster.run(
        *("srun", "--nodes", "3", "--ntasks", "4", str(mdgan), *flags), cwd=tmp_path, timeout=300
    )
    assert spread.returncode == 0, spread
    assert spread.stdout.count("done: 12 of 12 iterations") == 1, spread
    assert generator_bytes(tmp_path / "spread") == generator_bytes(tmp_path / "alone")
    again = cluster.run(
        *("srun", "--ntasks", "4", str(mdgan), "train", *QUICK, "--resume-or-start", "spread"),
        cwd=tmp_path,
        timeout=300,
    )
    assert again.returncode == 0, again
    assert again.stderr.count("spread is finished: 12 iterations") == 4, again
    refused = cluster.run(
        *("srun", "--ntasks", "2", str(mdgan), "train", "--world-size", "9"), cwd=tmp_path
    )
    assert "--world-size 9: Slurm started 2 processes, which makes 2 ranks" in refused.stderr


def test_a_job_outlives_its_nodes(cluster: SlurmCluster, mdgan: Path, tmp_path: Path) -> None:
    job = Job(cluster, mdgan, tmp_path / "run")
    until(lambda: job.goes_on(40), 120, cluster)
    assert cluster.job(job.number) == ("RUNNING", "n[1-3]")

    # A node is to be repaired: the job moves to another.
    cluster.ask("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=repair")
    reached = job.reached()
    cluster.ask("scontrol", "requeue", job.number)
    until(
        lambda: job.goes_on(reached + 10, rf"going on with {job.run} from iteration \d+"),
        180,
        cluster,
    )
    assert cluster.job(job.number) == ("RUNNING", "n[1,3-4]")
    assert "stopped when asked to" in job.log.read_text()

    # The server's node dies: Slurm starts the job again on those that are left.
    cluster.ask("scontrol", "update", "NodeName=n2", "State=RESUME")
    until(lambda: cluster.states()["n2"] == "idle", 60, cluster)
    job.log.write_text("")
    reached = job.reached()
    cluster.kill_node("n1")
    until(
        lambda: job.goes_on(reached, rf"going on with {job.run} from iteration \d+"), 180, cluster
    )
    assert cluster.job(job.number) == ("RUNNING", "n[2-4]")

    cluster.ask("scancel", job.number)
    until(lambda: read_status(job.run)["state"] == "stopped", 60, cluster)
    cluster.start_node("n1")
    until(lambda: set(cluster.states().values()) == {"idle"}, 60, cluster)


def test_with_no_kill_training_goes_on_without_the_node_of_a_worker(
    cluster: SlurmCluster, mdgan: Path, tmp_path: Path
) -> None:
    job = Job(cluster, mdgan, tmp_path / "run", "--no-kill")
    until(lambda: job.goes_on(20), 120, cluster)
    cluster.kill_node("n3")
    until(lambda: bool(read_events(job.run, "lost")), 60, cluster)
    lost = int(read_events(job.run, "lost")[-1]["iteration"])
    until(lambda: job.goes_on(lost + 20, r"lost rank\(s\) 2: .*; 1 worker"), 60, cluster)
    until(lambda: cluster.states()["n3"].startswith("down"), 60, cluster)
    assert cluster.job(job.number) == ("RUNNING", "n[1-2]")
    cluster.ask("scancel", job.number)


class Job:
    """A job of `scripts/slurm.sh` on three nodes that has more to do than a test waits for."""

    def __init__(self, cluster: SlurmCluster, mdgan: Path, run: Path, *flags: str) -> None:
        self.run = run
        self.log = cluster.folder / "job.log"
        self.log.unlink(missing_ok=True)
        submitted = cluster.run(
            *("sbatch", "--parsable", "--nodes", "3", "--output", str(self.log), *flags),
            f"--export=ALL,run={run},mdgan={mdgan}",
            *(str(REPOSITORY / "scripts" / "slurm.sh"), "--batch-size", "8", "--threads", "1"),
            *("--sample-interval", "0", "--eval-interval", "0", "--checkpoint-interval", "20"),
            *("--iterations", "1000000", "--liveness-timeout", "5"),
            cwd=run.parent,
        )
        self.number = submitted.stdout.strip()
        assert self.number.isdecimal(), submitted

    def goes_on(self, from_iteration: int, *says: str) -> bool:
        """Whether training has passed an iteration, and has said all that it should."""
        text = self.log.read_text() if self.log.exists() else ""
        return self.reached() > from_iteration and all(re.search(each, text) for each in says)

    def reached(self) -> int:
        """The last iteration that is recorded."""
        return max((int(row["iteration"]) for row in read_metrics(self.run)), default=0)
