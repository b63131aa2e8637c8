"""What training took: iterations, seconds, bytes and samples."""

from collections.abc import Sequence

import numpy as np

from mdgan.records.recorded_run import Traffic
from mdgan.records.roles import SERVER
from mdgan.records.values import number_in
from mdgan.report.numbers.rounds import rounds_of, samples_trained
from mdgan.report.numbers.scores import Score
from mdgan.report.numbers.subject import Subject
from mdgan.report.numbers.traffic import starts_of


def iterations_until(_subject: Subject, score: Score) -> float:
    """Iterations until a score."""
    return float(score.iteration)


def seconds_until(_subject: Subject, score: Score) -> float | None:
    """Seconds of training until a score."""
    return score.seconds


def server_bytes_until(subject: Subject, score: Score) -> float | None:
    """Bytes that the server had sent and received when the scored generator was made."""
    return server_bytes(subject, score.iteration)


def worker_bytes_until(subject: Subject, score: Score) -> float | None:
    """Bytes that a worker had sent and received by then, mean over the workers."""
    return worker_bytes(subject, score.iteration)


def server_bytes(subject: Subject, iteration: float) -> float | None:
    """Bytes that the server had sent and received after an iteration; None if not recorded."""
    trace = subject.run.traces.get(SERVER)
    return bytes_until(trace.traffic, iteration) if trace else None


def worker_bytes(subject: Subject, iteration: float) -> float | None:
    """Bytes that a worker had sent and received after an iteration, mean over the workers.

    What one worker sends to another counts for both.
    """
    counted = [bytes_until(host.traffic, iteration) for host in subject.run.hosts]
    known = [size for size in counted if size is not None]
    # A worker that was never asked may have recorded nothing; the settings count it all the same.
    workers = max(subject.num_workers, len(subject.workers))
    return sum(known) / workers if known and workers else None


def bytes_until(traffic: Sequence[Traffic], iteration: float) -> float | None:
    """Bytes sent and received until an iteration, interpolated between two counts.

    Args:
        traffic: counts since the start, in time order. Where a count is below the one before, the
            role has started again; its counts are added to those of the starts before.
        iteration: the last one that counts.

    Returns:
        The bytes; all of them for an iteration after the last count; None without a count.
    """
    if not traffic:
        return None
    iterations, moved = [0], [0]
    for start in starts_of(traffic):
        before = moved[-1]
        iterations += [count.iteration for count in start]
        moved += [before + count.total for count in start]
    return float(np.interp(iteration, iterations, moved))


def samples_processed(subject: Subject) -> float | None:
    """Real samples that discriminators were trained on and whose result went into the model.

    In rounds that were not aborted these are the batches of all local iterations of the workers
    that took part, elsewhere b · L for every answer of a worker, or where one role does everything
    b · L an iteration. A sample counts as often as it was used.
    """
    config = subject.run.config
    steps = number_in(config, "local_steps") or 1.0
    if rounds := rounds_of(subject.run):
        return steps * samples_trained(rounds)
    batch = number_in(config, "batch_size")
    if batch is None or not subject.done:
        return None
    answers = sum(worker.counts["answered"] for worker in subject.attendance)
    return steps * batch * (answers or max(1, subject.num_workers) * subject.done)
