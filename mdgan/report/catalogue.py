"""All figures of the report, in their order: a new figure is one more entry here."""

from mdgan.report.entry import (
    ALONE,
    SEVERAL,
    TWO_WORKERS,
    WITH_ROUNDS,
    WITH_WORKERS,
    Entry,
    GroupedEntry,
    Section,
)
from mdgan.report.figures import (
    attendance,
    classes,
    comparison,
    durations,
    losses,
    operations,
    rounds,
    samples,
    scores,
    swaps,
    timeline,
    traffic,
)
from mdgan.report.numbers.durations import OUTLIERS_ARE

NO_SAMPLES = "no samples are saved yet"
NO_CLASSES = "no scores of classes are recorded (mdgan evaluate adds some)"
NO_ITERATION = "no iteration is recorded yet"
NOT_SLOW = "no {unit} that was traced took unusually long"
NOT_TOLD = "no worker told how many samples of each class it holds"
NO_BYTES = "no bytes are counted yet"
NO_SWAP = "no swap has taken place"

SAMPLES = (
    Entry(
        name="samples",
        title="Samples over time",
        caption="What the generator makes of the same noise as training goes on.",
        paper="7.12 to 7.16",
        of=samples.frames_of,
        missing=NO_SAMPLES,
        draw=samples.samples_over_time,
    ),
)

COMPARED = (
    GroupedEntry(
        name="fid-compared",
        title="FID, and what it cost",
        caption="FID against iterations, training time, bytes that a worker sends and receives "
        "(mean over the workers), and bytes that the server does; lower is better, dashed: "
        "one half of the real data against the other.",
        runs=SEVERAL,
        of=comparison.costs("fid"),
        draw=comparison.compared("fid"),
    ),
    GroupedEntry(
        name="score-compared",
        title="Inception score, and what it cost",
        caption="The same for the score, higher is better; dashed: real data.",
        runs=SEVERAL,
        of=comparison.costs("inception_score"),
        draw=comparison.compared("inception_score"),
    ),
    GroupedEntry(
        name="coverage-compared",
        title="Coverage, and what it cost",
        caption="The same for coverage: the share of real samples that have a generated one "
        "among their neighbours.",
        runs=SEVERAL,
        of=comparison.costs("coverage"),
        draw=comparison.compared("coverage"),
    ),
    GroupedEntry(
        name="samples-compared",
        title="Samples side by side",
        caption="The last grid of every configuration, all from the same noise where the seed "
        "is the same.",
        runs=SEVERAL,
        of=samples.last_frame,
        missing=NO_SAMPLES,
        draw=samples.samples_side_by_side,
    ),
)

QUALITY = (
    GroupedEntry(
        name="fid-iterations",
        title="FID against iterations",
        caption="Fréchet distance between generated and real features, lower is better; "
        "dashed: one half of the real data against the other, the floor.",
        paper="7.8, E.6",
        of=scores.curves("fid"),
        draw=scores.one_metric,
    ),
    GroupedEntry(
        name="inception-score",
        title="Inception score",
        caption="How sure a classifier is of each sample and how varied they are, higher is "
        "better; dashed: real data.",
        paper="7.9, E.7",
        of=scores.curves("inception_score"),
        draw=scores.one_metric,
    ),
    GroupedEntry(
        name="kid",
        title="KID against iterations",
        caption="Kernel distance to the real features, unbiased for few samples, lower is "
        "better; the band of a single run is one standard deviation.",
        of=scores.curves("kid"),
        draw=scores.one_metric,
    ),
    GroupedEntry(
        name="precision-recall",
        title="Precision, recall, density, coverage",
        caption="Precision and density: do samples look real? Recall and coverage: is "
        "everything real among the samples?",
        of=scores.curves("precision", "recall", "density", "coverage"),
        draw=scores.small_multiples(columns=2),
    ),
    GroupedEntry(
        name="classes-covered",
        title="Classes covered",
        caption="How many classes the generator makes, and how far their frequencies are from "
        "the real ones (0 is equal).",
        of=scores.curves("classes_covered", "class_kl"),
        missing=NO_CLASSES,
        draw=scores.small_multiples(columns=1),
    ),
    Entry(
        name="class-histogram",
        title="Classes generated",
        caption="How often each class is generated, against how often it occurs in real data.",
        of=classes.shares,
        missing=NO_CLASSES,
        draw=classes.class_histogram,
    ),
    Entry(
        name="losses",
        title="Losses",
        caption="What the generator and the discriminators minimise; neither says how good "
        "samples are.",
        of=losses.loss_series,
        missing=NO_ITERATION,
        draw=losses.losses,
    ),
)

ROUNDS = (
    Entry(
        name="rounds-map",
        title="Who took part in which round",
        caption="Every worker that was asked in a round. Asked in vain: its model did not come "
        "in time; aborted: the model stayed as it was. Paler where a stretch holds several "
        "rounds.",
        runs=WITH_ROUNDS,
        of=rounds.of_run,
        draw=rounds.who_took_part,
    ),
    Entry(
        name="rounds-weights",
        title="Weights",
        caption="What share of the average each worker's model had in each round; dashed: "
        "equal shares.",
        runs=WITH_ROUNDS,
        of=rounds.of_run,
        draw=rounds.weights,
    ),
    GroupedEntry(
        name="rounds-seen",
        title="Samples per class seen by the server",
        caption="Through the workers that took part, a sample as often as its worker did. "
        "Lines are means over the classes, bands reach from the least to the most seen one; "
        "diamonds: every class was seen 500 times. As figure 14 of Guerraoui et al. (2020).",
        runs=WITH_ROUNDS,
        of=rounds.classes_seen,
        missing=NOT_TOLD,
        draw=rounds.samples_seen,
    ),
    GroupedEntry(
        name="rounds-kl",
        title="Divergence of what the server has seen",
        caption="KL divergence of the real distribution of classes from what the server has "
        "seen so far; 0 is equal. As figure 10 of Guerraoui et al. (2020).",
        runs=WITH_ROUNDS,
        of=rounds.kl_seen,
        missing=NOT_TOLD,
        draw=rounds.divergence,
    ),
)

TIME = (
    Entry(
        name="duration",
        title="{Unit} duration",
        caption="How long every {unit} took, from its first operation to its last; scoring "
        f"and checkpoints do not count. Crosses are outliers: {OUTLIERS_ARE}",
        of_rounds="What an aborted round took counts to the one in its place.",
        paper="7.1, E.2",
        of=durations.with_outliers,
        draw=durations.duration,
    ),
    Entry(
        name="duration-without-outliers",
        title="{Unit} duration without outliers",
        caption="The same without the {units} that took unusually long.",
        paper="7.2, E.3",
        of=durations.without_outliers,
        draw=durations.duration,
    ),
    Entry(
        name="progress",
        title="Iterations against time",
        caption="How many iterations were done after how long.",
        paper="E.4, E.8",
        of=durations.progress,
        missing=NO_ITERATION,
        draw=durations.iterations_against_time,
    ),
    Entry(
        name="duration-average",
        title="Average {unit} duration",
        caption="Mean without outliers; the thin line reaches from the 10 % to the 90 % quantile.",
        paper="E.1",
        of=durations.without_outliers,
        draw=durations.average_duration,
    ),
    Entry(
        name="duration-workers",
        title="{Unit} duration against number of workers",
        caption="How the mean duration without outliers grows with the number of workers.",
        paper="7.5",
        of=durations.mean_duration,
        draw=durations.duration_against_workers,
    ),
)

OPERATIONS = (
    Entry(
        name="timeline-ten",
        title="Timeline of ten {units}",
        caption="What every role did in ten typical {units} in a row. Bare background is "
        "idle time, grey is waiting for others, hatched operations use the network.",
        of_rounds="A worker that does not take part in a round is idle.",
        paper="7.10",
        of=timeline.ten,
        draw=timeline.timelines,
    ),
    Entry(
        name="timeline-one",
        title="Timeline of one {unit}",
        caption="One typical {unit} out of these ten.",
        paper="7.11",
        of=timeline.one,
        draw=timeline.timelines,
    ),
    Entry(
        name="timeline-scoring",
        title="Timeline while a generator is scored",
        caption="The scorer is a process of its own: it takes time from the others only where "
        "processors are few.",
        of=timeline.scoring,
        missing="nothing was scored while training went on",
        draw=timeline.timelines_while_scoring,
    ),
    Entry(
        name="operations-server",
        title="Operations of the server",
        caption="Mean time of each operation in {a_unit}, outliers left out; hatched: network.",
        paper="7.6",
        runs=WITH_WORKERS,
        of=operations.of_generator(operations.ordinary),
        draw=operations.operations,
    ),
    Entry(
        name="operations-workers",
        title="Operations of the workers",
        caption="The same on the workers, mean over them; receiving includes waiting for the "
        "server.",
        of_rounds="Only those that took part in a round count.",
        paper="7.7",
        runs=WITH_WORKERS,
        of=operations.of_workers(operations.ordinary),
        draw=operations.operations,
    ),
    Entry(
        name="operations-alone",
        title="Operations of a run without workers",
        caption="The same in the one process that has all data.",
        paper="E.5",
        runs=ALONE,
        of=operations.of_generator(operations.ordinary),
        draw=operations.operations,
    ),
    Entry(
        name="operations-server-outliers",
        title="Operations of the server in outliers",
        caption="What the server did in the {units} that took unusually long.",
        paper="8.1",
        runs=WITH_WORKERS,
        of=operations.of_generator(operations.outliers),
        missing=NOT_SLOW,
        draw=operations.operations,
    ),
    Entry(
        name="operations-workers-outliers",
        title="Operations of the workers in outliers",
        caption="What workers did in the {units} that took unusually long.",
        paper="8.2",
        runs=WITH_WORKERS,
        of=operations.of_workers(operations.outliers),
        missing=NOT_SLOW,
        draw=operations.operations,
    ),
)

NETWORK = (
    Entry(
        name="bytes-server",
        title="Bytes {a_unit}, server",
        caption="What the server sends and receives in an average {unit}, by kind of message.",
        paper="7.3",
        runs=WITH_WORKERS,
        of=traffic.of_server,
        missing=NO_BYTES,
        draw=traffic.moved_bytes,
    ),
    Entry(
        name="bytes-workers",
        title="Bytes {a_unit}, worker",
        caption="What one worker sends and receives, mean over the workers.",
        of_rounds="All rounds count, whether it took part or not.",
        paper="7.4",
        runs=WITH_WORKERS,
        of=traffic.of_worker,
        missing=NO_BYTES,
        draw=traffic.moved_bytes,
    ),
)

SWAPS = (
    Entry(
        name="attendance",
        title="Who took part",
        caption="When each worker was there. Late: the server went on without its answer; "
        "refused: the answer could not be used; each as high as its share of the iterations.",
        of_rounds="In rounds, a worker that is not asked misses nothing.",
        runs=WITH_WORKERS,
        of=attendance.presence,
        missing="no worker was lost, late, refused or joined, and no run was resumed",
        draw=attendance.who_took_part,
    ),
    Entry(
        name="holdings",
        title="What each worker holds",
        caption="Samples by class and worker; they never leave it.",
        runs=WITH_WORKERS,
        of=classes.held,
        missing=NOT_TOLD,
        draw=classes.worker_holdings,
    ),
    Entry(
        name="swap-matrix",
        title="Who gave to whom",
        caption="How often each worker's discriminator went to each other worker.",
        runs=TWO_WORKERS,
        of=swaps.of_run,
        missing=NO_SWAP,
        draw=swaps.who_gave_to_whom,
    ),
    Entry(
        name="discriminator-paths",
        title="Where discriminators were",
        caption="One line for each discriminator: the worker it was at after every swap; × "
        "where it was lost with its worker.",
        runs=TWO_WORKERS,
        of=swaps.of_run,
        missing=NO_SWAP,
        draw=swaps.where_discriminators_were,
    ),
)

SECTIONS = (
    Section("samples", "Samples", SAMPLES),
    Section("compared", "Compared", COMPARED),
    Section("quality", "Quality", QUALITY),
    Section("rounds", "Rounds", ROUNDS),
    Section("time", "Time", TIME),
    Section("operations", "Operations", OPERATIONS),
    Section("network", "Network", NETWORK),
    Section("swaps", "Workers, data and swaps", SWAPS),
)
