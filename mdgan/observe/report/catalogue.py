"""All figures of the report, in their order, and what is said under each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mdgan.observe.report.figures import (
    attendance,
    classes,
    durations,
    losses,
    operations,
    samples,
    scores,
    swaps,
    timeline,
    traffic,
)
from mdgan.observe.report.figures.picture import Picture
from mdgan.observe.report.numbers.subject import Subject


@dataclass(frozen=True)
class Entry:
    """One figure.

    Attributes:
        name: its file name, and `fig-<name>` in the page.
        title: a few words.
        caption: what it shows, in one sentence.
        paper: the figures of Darmanger and Gombas (2024) that show the same; empty for none.
        draw: makes the picture, or says in one line why there is none.
        wide: whether it takes the whole width of the page.
    """

    name: str
    title: str
    caption: str
    paper: str
    draw: Callable[[Sequence[Subject]], Picture | str]
    wide: bool = False


@dataclass(frozen=True)
class Section:
    """Figures that answer one question.

    Attributes:
        name: `#<name>` in the page.
        title: in the navigation and above the figures.
        entries: the figures.
    """

    name: str
    title: str
    entries: tuple[Entry, ...]


SECTIONS = (
    Section(
        "samples",
        "Samples",
        (
            Entry(
                "samples",
                "Samples over time",
                "What the generator makes of the same noise as training goes on.",
                "7.12 to 7.16",
                samples.samples_over_time,
                wide=True,
            ),
        ),
    ),
    Section(
        "quality",
        "Quality",
        (
            Entry(
                "fid-iterations",
                "FID against iterations",
                "Fréchet distance between generated and real features, lower is better; dashed: "
                "one half of the real data against the other, the floor.",
                "7.8, E.6",
                scores.fid_against_iterations,
            ),
            Entry(
                "fid-time",
                "FID against time",
                "The same distance against the seconds that training took to get there.",
                "",
                scores.fid_against_time,
            ),
            Entry(
                "inception-score",
                "Inception score",
                "How sure a classifier is of each sample and how varied they are, higher is "
                "better; dashed: real data.",
                "7.9, E.7",
                scores.inception_score,
            ),
            Entry(
                "kid",
                "KID against iterations",
                "Kernel distance to the real features, unbiased for few samples, lower is better; "
                "bands are one standard deviation.",
                "",
                scores.kid_against_iterations,
            ),
            Entry(
                "precision-recall",
                "Precision, recall, density, coverage",
                "Precision and density: do samples look real? Recall and coverage: is everything "
                "real among the samples?",
                "",
                scores.precision_and_recall,
            ),
            Entry(
                "classes-covered",
                "Classes covered",
                "How many classes the generator makes, and how far their frequencies are from "
                "the real ones (0 is equal).",
                "",
                classes.class_coverage,
            ),
            Entry(
                "class-histogram",
                "Classes generated",
                "How often each class is generated, against how often it occurs in real data.",
                "",
                classes.class_histogram,
            ),
            Entry(
                "losses",
                "Losses",
                "What the generator and the discriminators minimise; neither says how good "
                "samples are.",
                "",
                losses.losses,
            ),
        ),
    ),
    Section(
        "time",
        "Time",
        (
            Entry(
                "duration",
                "Iteration duration",
                "How long every iteration took, from its first operation to its last; scoring "
                "and checkpoints do not count.",
                "7.1, E.2",
                durations.iteration_duration,
            ),
            Entry(
                "duration-without-outliers",
                "Iteration duration without outliers",
                "The same without the iterations that took unusually long.",
                "7.2, E.3",
                durations.iteration_duration_without_outliers,
            ),
            Entry(
                "progress",
                "Iterations against time",
                "How many iterations were done after how long.",
                "E.4, E.8",
                durations.iterations_against_time,
            ),
            Entry(
                "duration-average",
                "Average iteration duration",
                "Mean without outliers; the thin line reaches from the 10 % to the 90 % quantile.",
                "E.1",
                durations.average_iteration_duration,
            ),
            Entry(
                "duration-workers",
                "Iteration duration against number of workers",
                "How the mean duration without outliers grows with the number of workers.",
                "7.5",
                durations.duration_against_workers,
            ),
        ),
    ),
    Section(
        "operations",
        "Operations",
        (
            Entry(
                "timeline-ten",
                "Timeline of ten iterations",
                "What every role did in ten typical iterations in a row. Bare background is "
                "idle time, grey is waiting for others, hatched operations use the network.",
                "7.10",
                timeline.timeline_of_ten,
                wide=True,
            ),
            Entry(
                "timeline-one",
                "Timeline of one iteration",
                "One typical iteration out of these ten.",
                "7.11",
                timeline.timeline_of_one,
                wide=True,
            ),
            Entry(
                "timeline-scoring",
                "Timeline while a generator is scored",
                "The scorer is a process of its own: it takes time from the others only where "
                "processors are few.",
                "",
                timeline.timeline_of_scoring,
                wide=True,
            ),
            Entry(
                "operations-server",
                "Operations of the server",
                "Mean time of each operation in an iteration, outliers left out; hatched: network.",
                "7.6",
                operations.server_operations,
            ),
            Entry(
                "operations-workers",
                "Operations of the workers",
                "The same on the workers, mean over them; receiving includes waiting for the "
                "server.",
                "7.7",
                operations.workers_operations,
            ),
            Entry(
                "operations-standalone",
                "Operations of the standalone run",
                "The same in the one process that has all data.",
                "E.5",
                operations.standalone_operations,
            ),
            Entry(
                "operations-server-outliers",
                "Operations of the server in outliers",
                "What the server did in the iterations that took unusually long.",
                "8.1",
                operations.server_operations_in_outliers,
            ),
            Entry(
                "operations-workers-outliers",
                "Operations of the workers in outliers",
                "What workers did in the iterations that took unusually long.",
                "8.2",
                operations.worker_operations_in_outliers,
            ),
        ),
    ),
    Section(
        "network",
        "Network",
        (
            Entry(
                "bytes-server",
                "Bytes an iteration, server",
                "What the server sends and receives in an average iteration, by kind of message.",
                "7.3",
                traffic.server_bytes,
            ),
            Entry(
                "bytes-workers",
                "Bytes an iteration, worker",
                "What one worker sends and receives, mean over the workers.",
                "7.4",
                traffic.worker_bytes,
            ),
        ),
    ),
    Section(
        "swaps",
        "Workers, data and swaps",
        (
            Entry(
                "attendance",
                "Who took part",
                "When each worker was there. Late: the server went on without its answer; refused: "
                "the answer could not be used; each as high as its share of the iterations.",
                "",
                attendance.who_took_part,
                wide=True,
            ),
            Entry(
                "holdings",
                "What each worker holds",
                "Samples by class and worker; they never leave it.",
                "",
                classes.worker_holdings,
            ),
            Entry(
                "swap-matrix",
                "Who gave to whom",
                "How often each worker's discriminator went to each other worker.",
                "",
                swaps.who_swapped_with_whom,
            ),
            Entry(
                "discriminator-paths",
                "Where discriminators were",
                "One line for each discriminator: the worker it was at after every swap; × where "
                "it was lost with its worker.",
                "",
                swaps.where_discriminators_were,
            ),
        ),
    ),
)
