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
    recorded,
)
from mdgan.report.figures import (
    attendance,
    classes,
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
from mdgan.report.numbers.film import film
from mdgan.report.numbers.rounds import rounds_of
from mdgan.report.numbers.scores import histograms
from mdgan.report.numbers.traffic import server_rate, worker_rate

NO_SAMPLES = "no samples are saved yet"
NO_CLASSES = "no scores of classes are recorded (mdgan evaluate adds some)"
NO_ITERATION = "no iteration is recorded yet"
NOT_SLOW = "no {unit} that was traced took unusually long"
NOT_TOLD = "no worker told how many samples of each class it holds"
NO_BYTES = "no bytes are counted yet"
NO_SWAP = "no swap has taken place"

# Laid out by hand as a table: name and title, what is drawn, the words.
# fmt: off
SAMPLES = Section("samples", "Samples", (
    Entry(
        name="samples", title="Samples over time", paper="7.12 to 7.16",
        of=recorded(film), missing=NO_SAMPLES, draw=samples.samples_over_time,
        caption="What the generator makes of the same noise as training goes on.",
    ),
))

COMPARED = Section("compared", "Compared", (
    GroupedEntry(
        name="fid-compared", title="FID, and what it cost", runs=SEVERAL,
        of=scores.costs("fid"), draw=scores.compared("fid"),
        caption="FID against iterations, training time, bytes that a worker sends and receives "
        "(mean over the workers), and bytes that the server does; lower is better, dashed: one "
        "half of the real data against the other.",
    ),
    GroupedEntry(
        name="score-compared", title="Inception score, and what it cost", runs=SEVERAL,
        of=scores.costs("inception_score"), draw=scores.compared("inception_score"),
        caption="The same for the score, higher is better; dashed: real data.",
    ),
    GroupedEntry(
        name="coverage-compared", title="Coverage, and what it cost", runs=SEVERAL,
        of=scores.costs("coverage"), draw=scores.compared("coverage"),
        caption="The same for coverage: the share of real samples that have a generated one among "
        "their neighbours.",
    ),
    GroupedEntry(
        name="samples-compared", title="Samples side by side", runs=SEVERAL,
        of=samples.last_frame, missing=NO_SAMPLES, draw=samples.samples_side_by_side,
        caption="The last grid of every configuration, all from the same noise where the seed is "
        "the same.",
    ),
))

QUALITY = Section("quality", "Quality", (
    GroupedEntry(
        name="fid-iterations", title="FID against iterations", paper="7.8, E.6",
        of=scores.curves("fid"), draw=scores.scores(),
        caption="Fréchet distance between generated and real features, lower is better; dashed: "
        "one half of the real data against the other, the floor.",
    ),
    GroupedEntry(
        name="inception-score", title="Inception score", paper="7.9, E.7",
        of=scores.curves("inception_score"), draw=scores.scores(),
        caption="How sure a classifier is of each sample and how varied they are, higher is "
        "better; dashed: real data.",
    ),
    GroupedEntry(
        name="kid", title="KID against iterations",
        of=scores.curves("kid"), draw=scores.scores(),
        caption="Kernel distance to the real features, unbiased for few samples, lower is better; "
        "the band of a single run is one standard deviation.",
    ),
    Entry(
        name="class-histogram", title="Classes generated",
        of=recorded(histograms), missing=NO_CLASSES, draw=classes.class_histogram,
        caption="How often each class is generated, against how often it occurs in real data.",
    ),
    GroupedEntry(
        name="precision-recall", title="Precision, recall, density, coverage",
        of=scores.curves("precision", "recall", "density", "coverage"),
        draw=scores.scores(columns=2),
        caption="Precision and density: do samples look real? Recall and coverage: is everything "
        "real among the samples?",
    ),
    GroupedEntry(
        name="classes-covered", title="Classes covered",
        of=scores.curves("classes_covered", "class_kl"), missing=NO_CLASSES, draw=scores.scores(),
        caption="How many classes the generator makes, and how far their frequencies are from the "
        "real ones (0 is equal).",
    ),
    Entry(
        name="losses", title="Losses",
        of=losses.loss_series, missing=NO_ITERATION, draw=losses.losses,
        caption="What the generator and the discriminators minimise; neither says how good "
        "samples are.",
    ),
))

ROUNDS = Section("rounds", "Rounds", (
    Entry(
        name="rounds-map", title="Who took part in which round", runs=WITH_ROUNDS,
        of=recorded(rounds_of), draw=rounds.who_took_part,
        caption="Every worker that was asked in a round. Asked in vain: its model did not come in "
        "time; aborted: the model stayed as it was. Paler where a stretch holds several rounds.",
    ),
    Entry(
        name="rounds-weights", title="Weights", runs=WITH_ROUNDS,
        of=recorded(rounds_of), draw=rounds.weights,
        caption="What share of the average each worker's model had in each round; dashed: equal "
        "shares.",
    ),
    GroupedEntry(
        name="rounds-seen", title="Samples per class seen by the server", runs=WITH_ROUNDS,
        of=rounds.classes_seen, missing=NOT_TOLD, draw=rounds.samples_seen,
        caption="Through the workers that took part, a sample as often as its worker did. Lines "
        "are means over the classes, bands reach from the least to the most seen one; diamonds: "
        "every class was seen 500 times. As figure 14 of Guerraoui et al. (2020).",
    ),
    GroupedEntry(
        name="rounds-kl", title="Divergence of what the server has seen", runs=WITH_ROUNDS,
        of=rounds.kl_seen, missing=NOT_TOLD, draw=rounds.divergence,
        caption="KL divergence of the real distribution of classes from what the server has seen "
        "so far; 0 is equal. As figure 10 of Guerraoui et al. (2020).",
    ),
))

TIME = Section("time", "Time", (
    Entry(
        name="duration", title="{Unit} duration", paper="7.1, E.2",
        of=durations.of_run, draw=durations.with_outliers,
        caption="How long every {unit} took, from its first operation to its last; scoring and "
        f"checkpoints do not count. Crosses are outliers: {OUTLIERS_ARE}",
        of_rounds="What an aborted round took counts to the one in its place.",
    ),
    Entry(
        name="duration-without-outliers", title="{Unit} duration without outliers",
        paper="7.2, E.3", of=durations.of_run, draw=durations.without_outliers,
        caption="The same without the {units} that took unusually long.",
    ),
    Entry(
        name="progress", title="Iterations against time", paper="E.4, E.8",
        of=durations.progress, missing=NO_ITERATION, draw=durations.iterations_against_time,
        caption="How many iterations were done after how long.",
    ),
    Entry(
        name="duration-average", title="Average {unit} duration", paper="E.1",
        of=durations.of_run, draw=durations.average,
        caption="Mean without outliers; the thin line reaches from the 10 % to the 90 % quantile.",
    ),
    Entry(
        name="duration-workers", title="{Unit} duration against number of workers", paper="7.5",
        of=durations.of_run, draw=durations.against_workers,
        caption="How the mean duration without outliers grows with the number of workers.",
    ),
))

OPERATIONS = Section("operations", "Operations", (
    Entry(
        name="timeline-ten", title="Timeline of ten {units}", paper="7.10",
        of=timeline.ten, draw=timeline.timelines,
        caption="What every role did in ten typical {units} in a row. Bare background is idle "
        "time, grey is waiting for others, hatched operations use the network.",
        of_rounds="A worker that does not take part in a round is idle.",
    ),
    Entry(
        name="timeline-one", title="Timeline of one {unit}", paper="7.11",
        of=timeline.one, draw=timeline.timelines,
        caption="One typical {unit} out of these ten.",
    ),
    Entry(
        name="timeline-scoring", title="Timeline while a generator is scored",
        of=timeline.scoring, missing="nothing was scored while training went on",
        draw=timeline.timelines_while_scoring,
        caption="The scorer is a process of its own: it takes time from the others only where "
        "processors are few.",
    ),
    Entry(
        name="operations-server", title="Operations of the server", paper="7.6",
        runs=WITH_WORKERS, of=operations.of_generator(), draw=operations.operations,
        caption="Mean time of each operation in {a_unit}, outliers left out; hatched: network.",
    ),
    Entry(
        name="operations-workers", title="Operations of the workers", paper="7.7",
        runs=WITH_WORKERS, of=operations.of_workers(), draw=operations.operations,
        caption="The same on the workers, mean over them; receiving includes waiting for the "
        "server.",
        of_rounds="Only those that took part in a round count.",
    ),
    Entry(
        name="operations-alone", title="Operations of a run without workers", paper="E.5",
        runs=ALONE, of=operations.of_generator(), draw=operations.operations,
        caption="The same in the one process that has all data.",
    ),
    Entry(
        name="operations-server-outliers", title="Operations of the server in outliers",
        paper="8.1", runs=WITH_WORKERS, of=operations.of_generator(in_outliers=True),
        missing=NOT_SLOW, draw=operations.operations,
        caption="What the server did in the {units} that took unusually long.",
    ),
    Entry(
        name="operations-workers-outliers", title="Operations of the workers in outliers",
        paper="8.2", runs=WITH_WORKERS, of=operations.of_workers(in_outliers=True),
        missing=NOT_SLOW + " while workers were recorded", draw=operations.operations,
        caption="What workers did in the {units} that took unusually long.",
    ),
))

NETWORK = Section("network", "Network", (
    Entry(
        name="bytes-server", title="Bytes {a_unit}, server", paper="7.3", runs=WITH_WORKERS,
        of=recorded(server_rate), missing=NO_BYTES, draw=traffic.moved_bytes,
        caption="What the server sends and receives in an average {unit}, by kind of message.",
    ),
    Entry(
        name="bytes-workers", title="Bytes {a_unit}, worker", paper="7.4", runs=WITH_WORKERS,
        of=recorded(worker_rate), missing=NO_BYTES, draw=traffic.moved_bytes,
        caption="What one worker sends and receives, mean over the workers.",
        of_rounds="All rounds count, whether it took part or not.",
    ),
))

SWAPS = Section("swaps", "Workers, data and swaps", (
    Entry(
        name="attendance", title="Who took part", runs=WITH_WORKERS,
        of=attendance.of_run, draw=attendance.who_took_part,
        missing="no worker was lost, late, refused or joined, and no run was resumed",
        caption="When each worker was there. Late: the server went on without its answer; refused: "
        "the answer could not be used; each as high as its share of the iterations.",
        of_rounds="In rounds, a worker that is not asked misses nothing.",
    ),
    Entry(
        name="holdings", title="What each worker holds", runs=WITH_WORKERS,
        of=classes.held, missing=NOT_TOLD, draw=classes.worker_holdings,
        caption="Samples by class and worker; they never leave it.",
    ),
    Entry(
        name="swap-matrix", title="Who gave to whom", runs=TWO_WORKERS,
        of=swaps.of_run, missing=NO_SWAP, draw=swaps.who_gave_to_whom,
        caption="How often each worker's discriminator went to each other worker.",
    ),
    Entry(
        name="discriminator-paths", title="Where discriminators were", runs=TWO_WORKERS,
        of=swaps.of_run, missing=NO_SWAP, draw=swaps.where_discriminators_were,
        caption="One line for each discriminator: the worker it was at after every swap; × where "
        "it was lost with its worker.",
    ),
))
# fmt: on

SECTIONS = (SAMPLES, COMPARED, QUALITY, ROUNDS, TIME, OPERATIONS, NETWORK, SWAPS)
