"""All figures of the report, in their order: a new figure is one more entry here.

`HEADINGS` at the end explains headings of tables that do not explain themselves.
"""

from typing import Any

from mdgan.families import registry
from mdgan.records.score_names import SCORE_NAMES
from mdgan.report.figures import (
    audits,
    classes,
    columns,
    costs,
    losses,
    samples,
    scores,
    slots,
    timeline,
    workers,
)
from mdgan.report.figures.picture import Entry, GroupedView, PageSection, View
from mdgan.report.numbers.durations import OUTLIERS_ARE
from mdgan.report.numbers.scores import histograms
from mdgan.report.numbers.subject import Subject

NO_SCORES = "no scores are recorded (mdgan evaluate adds some)"
NO_HOLDINGS = "no worker told how many samples of each class it holds"
NO_TRACE = "no trace of a complete {unit} is there yet"


def _single(name: str, title: str, *, counted: bool = False, **view: Any) -> Entry:
    """A figure with a single view."""
    return Entry(name, title, (View(**view),), counted=counted)


# Laid out by hand as a table: name and title, then the views with their drawing and their words.
# fmt: off
SAMPLES = PageSection("samples", "Samples", (
    Entry("samples", "Samples", (
        View(name="over time", paper="7.12 to 7.16",
            fits=Subject.is_seen, of=samples.samples_over_time, missing="no samples are saved yet",
            caption="Samples that the generator makes from the same noise as training goes on."),
        View(name="nearest real samples", of=samples.nearest_real,
            caption="Generated samples, and under each the held-out real sample whose features are "
            "nearest. The server may read held-out samples, but no shard. A generator that copies "
            "comes much nearer than real samples come to each other."),
    )),
))

QUALITY = PageSection("quality", "Quality", (
    Entry("scores", "Scores", (
        *(
            GroupedView(name=name, paper="7.8, E.6" if against is scores.ITERATIONS else "",
                of=scores.curves("fid", "column_shapes", against=against),
                draw=scores.scores(against),
                missing=NO_SCORES if against is scores.ITERATIONS else "",
                caption="FID: the Fréchet distance between generated and real features, lower is "
                "better; dashed: the FID of as many real samples. For rows of tables: how alike "
                "generated and real columns are distributed, 1 is best.")
            for name, against in scores.COSTS.items()
        ),
        GroupedView(name="by epsilon",
            of=scores.curves("fid", "coverage", "column_shapes", against=scores.EPSILON),
            draw=scores.scores(scores.EPSILON),
            caption="The same, and coverage (the share of real samples that have a generated one "
            "nearby, higher is better), by the ε that was spent up to then."),
        GroupedView(name="all", paper="7.9, E.7", of=scores.curves(*SCORE_NAMES),
            draw=scores.scores(columns=2),
            caption="Lower is better: FID, KID, class KL, intra FID. Higher is better: the "
            "inception score (how sure a classifier is of each sample, and how varied samples "
            "are); precision and density (samples look real); recall and coverage (samples cover "
            "the real data); classes covered; samples of the class asked for. Dashed: real data. "
            "The band of a single run is one standard deviation. For rows of tables: column "
            "shapes and pair trends, 1 is best, and the AUC on real rows of a logistic regression "
            "(LR) and of gradient boosting (GB) that learnt from synthetic rows; the distance to "
            "the closest record should not be below that of real rows."),
    )),
    Entry("columns", "Columns", (
        View(name="one by one", fits=Subject.has_columns,
            of=columns.table_columns, missing=NO_SCORES,
            caption="How often each value of a column occurs in synthetic rows, and in the rows of "
            "all sites by their counts. Numbers are grouped into 24 bars of equal width; of "
            "categories, the 24 most frequent are shown."),
        View(name="correlations", fits=Subject.has_columns,
            of=columns.table_correlations,
            caption="Pearson's correlation of columns of numbers and of columns with two values, "
            "in synthetic and in held-out rows; the table has the pairs that differ most."),
        View(name="rare values", fits=Subject.has_columns,
            of=columns.rare_values,
            caption="Values that less than 1 % of all rows have: the number of generated rows that "
            "should have them by the counts of all sites, and the number that have them."),
    )),
    _single("told-pairs", "What workers told of columns", of=columns.told_pairs,
        caption="How near generated rows are to the noisy shares that workers told, of rows with "
        "each value of a column (diagonal) and each two values of two columns, by class: 1 is "
        "equal, 0 disjoint. Beside it: how near rows would be if only noise made them differ."),
    Entry("classes", "Classes", (
        View(name="how often", fits=Subject.is_seen,
            missing="no scores of classes are recorded (mdgan evaluate adds some)",
            of=lambda subject: histograms(subject.run), draw=classes.class_histogram,
            caption="How often each class is generated, against how often it occurs in real data."),
        View(name="class by class", of=classes.class_by_class,
            caption="Of the samples that the generator should make of a class: the share that the "
            "classifier takes for it, and the FID to held-out samples of it, lower is better."),
        View(name="held by workers", fits=Subject.has_workers,
            of=classes.worker_holdings, missing=NO_HOLDINGS,
            caption="How many samples of each class each worker holds."),
    )),
    Entry("losses", "Losses", (
        View(name="mean", of=losses.loss_series, draw=losses.losses,
            missing="no iteration is recorded yet",
            caption="The losses that the generator and the discriminators minimise; neither says "
            "how good samples are."),
        View(name="by worker", fits=Subject.has_workers,
            of=losses.losses_by_worker,
            caption="The losses of every worker: one whose data differ, or whose discriminator "
            "wins, stands apart."),
    )),
))

ROUNDS = PageSection("rounds", "Rounds", (
    Entry("rounds", "Rounds", (
        GroupedView(name="samples seen", fits=Subject.has_rounds,
            of=workers.classes_seen, missing=NO_HOLDINGS, draw=workers.samples_seen,
            caption="Samples that the server has seen through the workers that took part; a sample "
            "counts in each round of its worker. Lines are means over the classes, bands reach "
            "from the least to the most seen class; diamonds: every class was seen 500 times. See "
            "FeGAN (Guerraoui et al. 2020), figure 14; the table's KL divergence: figure 10."),
        View(name="who took part", fits=Subject.has_rounds,
            of=workers.who_was_asked,
            missing="no round tells who took part, as under differential privacy",
            caption="How often the server asked each worker, and how often the worker took part: "
            "its model arrived in time and the round was not aborted."),
    )),
))

SLOTS = PageSection("slots", "Clients in slots", (
    _single("placement", "Who trained where in a round", of=slots.by_batches,
        caption="The clients that each slot trained in a typical round, one after another: the "
        "stronger the colour, the more batches. Grey: the slot had nothing to do."),
    _single("predictions", "Predicted seconds", of=slots.predictions,
        caption="How long clients took beside the prediction, and the curve a·x + b·log(x) + d of "
        "seconds by batches x that was fitted last to each kind of slot (Pollen, Sani et al. "
        "2024, equation 3), with its residuals."),
    _single("idle", "Idle slots", of=slots.idle_slots,
        caption="The share of each round in which a slot trained no client."),
    _single("concurrency", "How many slots", of=slots.numbers_of_slots,
        caption="Slots that each host used while it searched for the best number, and the "
        "batches that it trained a second."),
))

COST = PageSection("cost", "Time, bytes and memory", (
    Entry("timeline", "Timeline", (
        View(name="ten {unit}s", paper="7.10", of=timeline.timelines(timeline.ten),
            missing=NO_TRACE,
            caption="What each role did in ten typical {unit}s in a row. The fainter grey is idle "
            "time, the stronger is waiting for other roles; hatched operations use the network.",
            of_rounds="A worker that does not take part in a round is idle."),
        View(name="one {unit}", paper="7.11", of=timeline.timelines(timeline.one),
            caption="One typical {unit} out of these ten."),
    ), counted=True),
    Entry("duration", "{Unit} duration", (
        View(name="each", paper="7.1, 7.2, E.1 to E.3",
            of=lambda subject: subject.durations, draw=timeline.each, missing=NO_TRACE,
            caption="How long every {unit} took, from its first operation to its last; scoring and "
            f"checkpoints do not count. Crosses are outliers: {OUTLIERS_ARE}",
            of_rounds="The time of an aborted round counts to the round that replaced it."),
        View(name="operations", paper="7.6, 7.7, E.5",
            of=costs.time_spent(), draw=costs.operations,
            caption="Mean time of each operation in {a_unit}, outliers left out; hatched: network. "
            "Receiving includes waiting for the server.",
            of_rounds="Of workers only those that took part in a round count."),
        View(name="operations in outliers", paper="8.1, 8.2",
            of=costs.time_spent(in_outliers=True), draw=costs.operations,
            caption="What was done in the {unit}s that took unusually long."),
    ), counted=True),
    _single("bytes", "Bytes {a_unit}", paper="7.3, 7.4", fits=Subject.has_workers,
        of=costs.bytes_moved, missing="no bytes are counted yet", draw=costs.moved_bytes,
        caption="What the server, and a worker in the mean, send and receive in an average "
        "{unit}, by kind of message.",
        of_rounds="All rounds count, whether a worker took part or not.", counted=True),
    _single("memory", "Memory by process", of=costs.memory,
        caption="The memory of each process, measured about once a second. Memory that several "
        "processes share counts for each of them."),
    _single("fetching", "Waiting for data", of=costs.fetching,
        caption="How long training waited for a batch of pictures, and how many threads read ahead "
        "into which buffer: both grow while training waits, and shrink afterwards."),
    _single("operators", "What the processor does", of=costs.operators,
        caption="Shares of the time of the profiled {unit}s (--profile) by kind of operator. "
        "Between operators: Python, messages, records. On a GPU, the GPU's time counts. If all "
        "roles share a process, the first row is for all of them. See ParaGAN (Shi et al. 2024), "
        "figures 4 and 10."),
))

WORKERS = PageSection("workers", "Workers and swaps", (
    _single("attendance", "Who took part", fits=Subject.has_workers,
        of=workers.who_took_part,
        caption="When each worker took part. Late: the server went on without its answer; "
        "refused: the server could not use it. A bar is as high as its share of the iterations.",
        of_rounds="A worker that is not asked in a round misses nothing."),
    Entry("by-worker", "Worker by worker", tuple(
        View(name=numbers.title, fits=Subject.has_workers, caption=numbers.caption,
            of=losses.numbers_of(numbers))
        for numbers in registry.shown()
    )),
    _single("swaps", "Swaps", fits=Subject.can_swap,
        of=workers.who_gave_to_whom, missing="no swap has taken place",
        caption="How often each worker's discriminator went to each other worker."),
))

AUDIT = PageSection("audit", "What insiders learn", (
    Entry("audit", "What insiders learn", (
        View(name="who was trained on: discriminators", of=audits.by_discriminators,
            caption="The attacker has a discriminator, as the next worker in a swap does, and "
            "takes samples with high logits for samples of the discriminator's last worker. The "
            "share of that worker's samples that it finds, against the share of held-out samples "
            "that it takes for them. Dashed: guessing."),
        View(name="generator", of=audits.by_generator,
            caption="The attacker has only the generator, and takes the samples nearest to "
            "generated ones for samples that were trained on."),
        View(name="copies", of=audits.copies,
            caption="Above: the generated samples that come nearest to a training sample, compared "
            "with held-out samples. Middle: that training sample. Below: the nearest held-out "
            "sample. These are real samples: think before you pass this page on."),
        View(name="an update", of=audits.of_answers("update"),
            caption="Above: samples of real batches. Below: the nearest of the images that the "
            "attacker rebuilt from a discriminator's gradient on the batch (Zhu et al. 2019). Of "
            "large batches, the eight samples that were rebuilt best."),
        View(name="a feedback", of=audits.of_answers("feedback"),
            caption="The same attack on feedback, by a host that has the discriminator from before "
            "it learnt from the batch."),
        View(name="ε from below", of=audits.from_below,
            caption="Secret coins decided which canaries were among the samples. An attacker that "
            "sees everything that workers released, and knows everything but the coins, guesses "
            "them; its right guesses rule out every smaller ε (Steinke, Nasr and Jagielski 2023; "
            "Mahloujifar et al. 2024). Workers also measured their noise, and what samples add."),
    )),
))
# fmt: on

SECTIONS = (SAMPLES, QUALITY, ROUNDS, SLOTS, COST, WORKERS, AUDIT)

_CURVE = "a client of x batches takes a·x + b·log(x) + d seconds"

HEADINGS = {
    **dict.fromkeys(("a [s]", "b [s]", "d [s]"), _CURVE),
    "score": "FID, KID: less is better; all other scores: more is better",
    "time": "of training, up to the iteration",
    "value": "with ±: the standard deviation over parts of the samples",
    "predicted to be of it": "the share of generated samples that the classifier puts there",
    "of class 0, 1, …": "how many samples of each class the worker holds, in this order",
    "generator": "the generator's loss: the mean over workers",
    "discriminators, mean": "the discriminators' loss: the mean over workers and local steps",
    "answered": "iterations or rounds with an answer of this worker in time",
    "late": "answers that came after the server had gone on without them",
    "refused": "answers that were broken, too large or not finite",
    "lost": "how often the connection to it ended",
    "together": "the sum of the row",
    "at first": "memory of the process when it was first measured",
    "most": "the greatest that was measured",
    "mean wait": "how long training waited on average for a batch of pictures",
    "pictures ahead": "how many pictures are read before they are needed",
    "cores busy": "how many cores the process used on average",
    "between operators": "time of the process in which no operator of torch ran",
    "batches": "how many batches the clients of the slot trained on",
    "predicted": "from the times of earlier rounds",
    "idle": "the share of the round in which the slot did not train",
    "idle, mean": "the share of a round in which the slot did not train",
    "error, median": "of the predicted seconds, as a share of those measured",
    "within 10 %": "clients whose prediction was that close",
    "residual, median": "the distance of measured seconds from the fitted curve",
    "held out": "samples that no worker trains on, and that neighbours are searched in",
    "distance, generated to real": "median distance of features to the nearest real sample",
    "real to real": "the same, from real samples to other real samples",
    "AUC": "0.5: the attack guesses; 1: it finds every sample that was trained on",
    "±": "the standard error of the AUC",
    "nearer to one trained on": "of generated samples; 50 % if nothing is copied",
    "AUC of its samples": "0.5: the answer does not tell which samples were in the batch",
    "AUC of the shard, blind": "the same for an attacker that has not seen the answer",
    "PSNR [dB]": "of samples rebuilt from the answer: the more, the more alike",
    "SSIM": "likeness of rebuilt samples: 1 if they are the same",
    "ε at least": "with a smaller ε, so many right guesses would be too unlikely",
    "ε stated": "the ε that was spent, by the run's accountant",
    "KL [nats] after round 1": "divergence of the classes seen so far from those of all data",
    "most usual": "the value, or the range of values, that most real rows have",
    "differing": "half the sum of all differences of shares: 0 % is equal, 100 % disjoint",
    "weight, mean": "the weight of the worker's model in the server's average",
}
"""Headings of tables, and the explanation that the page shows when a reader points at one."""
