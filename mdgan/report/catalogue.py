"""All figures of the report, in their order: a new figure is one more entry here."""

from mdgan.records.rows import Round
from mdgan.report.entry import Entry, GroupedView, Section, View, recorded
from mdgan.report.figures import (
    attendance,
    audits,
    bounds,
    classes,
    concurrency,
    costs,
    durations,
    fetching,
    free_riders,
    losses,
    operators,
    predictions,
    rounds,
    samples,
    scores,
    slots,
    staleness,
    swaps,
    timeline,
)
from mdgan.report.numbers import placements
from mdgan.report.numbers.durations import OUTLIERS_ARE
from mdgan.report.numbers.scores import classwise, histograms
from mdgan.report.numbers.subject import Subject

NO_SAMPLES = "no samples are saved yet"
NO_CLASSES = "no scores of classes are recorded (mdgan evaluate adds some)"
NOT_TOLD = "no worker told how many samples of each class it holds"
NO_SWAP = "no swap has taken place"


# Laid out by hand as a table: name and title, then the views: what is drawn, the words.
# fmt: off
SAMPLES = Section("samples", "Samples", (
    Entry("samples", "Samples", (
        View(
            name="over time", paper="7.12 to 7.16",
            of=recorded(samples.film), missing=NO_SAMPLES, draw=samples.samples_over_time,
            caption="What the generator makes of the same noise as training goes on.",
        ),
    )),
    Entry("neighbours", "Nearest real samples", (
        View(
            of=recorded(samples.neighbours), missing="", draw=samples.nearest_real,
            caption="Generated samples, and under each the held-out real sample whose features are "
            "nearest. Held-out samples are those that the server itself may read; no worker's "
            "shard is looked at. A generator that copies comes much nearer than real samples do.",
        ),
    )),
))

QUALITY = Section("quality", "Quality", (
    Entry("fid", "FID", (
        *(
            GroupedView(
                name=name, paper="7.8, E.6" if against is scores.ITERATIONS else "",
                of=scores.curves("fid", against=against), draw=scores.scores(against),
                missing=GroupedView.missing if against is scores.ITERATIONS else "",
                caption="Fréchet distance between generated and real features, lower is better; "
                "dashed: one half of the real data against the other, the floor.",
            )
            for name, against in scores.COSTS.items()
        ),
        GroupedView(
            name="KID", of=scores.curves("kid"), missing="", draw=scores.scores(),
            caption="Kernel distance to the real features, unbiased for few samples, lower is "
            "better; the band of a single run is one standard deviation.",
        ),
    )),
    Entry("inception-score", "Inception score", (
        GroupedView(
            paper="7.9, E.7", of=scores.curves("inception_score"), draw=scores.scores(),
            caption="How sure a classifier is of each sample and how varied they are, higher is "
            "better; dashed: real data.",
        ),
    )),
    Entry("precision-recall", "Precision, recall, density, coverage", (
        GroupedView(
            of=scores.curves("precision", "recall", "density", "coverage"),
            draw=scores.scores(columns=2),
            caption="Precision and density: do samples look real? Recall and coverage: is "
            "everything real among the samples?",
        ),
    )),
    Entry("classes", "Classes generated", (
        View(
            name="how often", of=recorded(histograms), missing=NO_CLASSES,
            draw=classes.class_histogram,
            caption="How often each class is generated, against how often it occurs in real data.",
        ),
        GroupedView(
            name="how many", of=scores.curves("classes_covered", "class_kl"), missing="",
            draw=scores.scores(),
            caption="How many classes the generator makes, and how far their frequencies are from "
            "the real ones (0 is equal).",
        ),
    )),
    Entry("by-class", "Class by class", (
        View(
            name="right class", of=lambda subject: classwise(subject.run, "right"), missing="",
            draw=classes.of_each_class("right", "%", 100),
            caption="How many of the samples that were asked for of a class are predicted to be of "
            "it.",
        ),
        View(
            name="FID", of=lambda subject: classwise(subject.run, "fid"), missing="",
            draw=classes.of_each_class("FID", ""),
            caption="FID between the samples of a class and the held-out real ones of it, lower is "
            "better.",
        ),
        GroupedView(
            name="over time", of=scores.curves("label_accuracy", "intra_fid"), missing="",
            draw=scores.scores(),
            caption="The share of samples that are of the class asked for, and the mean of the "
            "FIDs of classes.",
        ),
    )),
    Entry("losses", "Losses", (
        View(
            name="mean", of=losses.loss_series, draw=losses.losses,
            missing="no iteration is recorded yet",
            caption="What the generator and the discriminators minimise; neither says how good "
            "samples are.",
        ),
        View(
            name="by worker", fits=Subject.has_workers,
            of=losses.by_worker, missing="", draw=losses.losses_by_worker,
            caption="The same of every worker: one whose data differ, or whose discriminator wins, "
            "stands apart.",
        ),
    )),
))

ROUNDS = Section("rounds", "Rounds", (
    Entry("rounds", "Who took part in which round", (
        View(
            name="who", fits=Subject.has_rounds,
            of=lambda subject: subject.run.of(Round), draw=rounds.who_took_part,
            caption="Every worker that was asked in a round. Asked in vain: its model did not come "
            "in time; aborted: the model stayed as it was. Paler where a stretch holds several "
            "rounds.",
        ),
    )),
    Entry("rounds-seen", "What the server has seen", (
        GroupedView(
            name="samples by class", fits=Subject.has_rounds,
            of=rounds.classes_seen, missing=NOT_TOLD, draw=rounds.samples_seen,
            caption="Through the workers that took part, a sample as often as its worker did. "
            "Lines are means over the classes, bands reach from the least to the most seen one; "
            "diamonds: every class was seen 500 times. As figure 14 of Guerraoui et al. (2020).",
        ),
        GroupedView(
            name="divergence", fits=Subject.has_rounds,
            of=rounds.kl_seen, missing=NOT_TOLD, draw=rounds.divergence,
            caption="KL divergence of the real distribution of classes from what the server has "
            "seen so far; 0 is equal. As figure 10 of Guerraoui et al. (2020).",
        ),
    )),
))

SLOTS = Section("slots", "Clients in slots", (
    Entry("placement", "Who trained where in a round", (
        View(
            name="batches", of=recorded(placements.typical_round), missing="",
            draw=slots.by_batches,
            caption="The clients that each slot trained in a typical round, one after another: the "
            "stronger the colour, the more batches. Grey: the slot had nothing to do.",
        ),
        View(
            name="predictions", of=recorded(placements.with_predictions), missing="",
            draw=slots.by_prediction,
            caption="The same, by how long each client took beside what was predicted. Diamonds: "
            "when each slot was expected to be done.",
        ),
    )),
    Entry("idle", "Idle slots", (
        View(
            of=recorded(placements.idle_shares), missing="", draw=slots.idle_slots,
            caption="The share of each round in which a slot trained no client. Above: the mean "
            "over all slots.",
        ),
    )),
    Entry("predictions", "Predicted seconds", (
        View(
            of=recorded(placements.predicted_by_kind), missing="",
            draw=predictions.against_measured,
            caption="How long clients took against what was predicted; dashed: as predicted.",
        ),
    )),
    Entry("curves", "Seconds by batches", (
        View(
            of=recorded(placements.fits), missing="", draw=predictions.curves,
            caption="How long clients took by their batches, with the curve of each kind of slot "
            "as fitted last; below: what the curve leaves. As equation 3 of Sani et al. (2024).",
        ),
    )),
    Entry("concurrency", "How many slots", (
        View(
            name="over rounds", of=recorded(placements.climbs), missing="",
            draw=concurrency.over_rounds,
            caption="Slots that each host used while it searched for the best number, and the "
            "batches that it trained a second.",
        ),
        View(
            name="by slots", of=recorded(placements.climbs), missing="",
            draw=concurrency.by_slots,
            caption="Batches a second by the number of slots: medians, and bands from the least to "
            "the greatest of all rounds. The ring is around the number used last.",
        ),
    )),
))

COST = Section("cost", "Time, bytes and memory", (
    Entry("timeline", "Timeline", (
        View(
            name="ten {unit}s", paper="7.10", of=timeline.ten, draw=timeline.timelines,
            caption="What every role did in ten typical {unit}s in a row. The palest grey is "
            "idle time, the darker one waiting for others; hatched operations use the network.",
            of_rounds="A worker that does not take part in a round is idle.",
        ),
        View(
            name="one {unit}", paper="7.11", of=timeline.one, draw=timeline.timelines,
            caption="One typical {unit} out of these ten.",
        ),
    ), counted=True),
    Entry("duration", "{Unit} duration", (
        View(
            name="each", paper="7.1, 7.2, E.1 to E.3",
            of=lambda subject: subject.durations, draw=durations.each,
            caption="How long every {unit} took, from its first operation to its last; scoring and "
            f"checkpoints do not count. Crosses are outliers: {OUTLIERS_ARE}",
            of_rounds="What an aborted round took counts to the one in its place.",
        ),
        View(
            name="by workers", paper="7.5",
            of=lambda subject: subject.durations, draw=durations.against_workers,
            caption="How the mean duration without outliers grows with the number of workers.",
        ),
    ), counted=True),
    Entry("fetching", "Waiting for data", (
        View(
            of=fetching.by_process, missing="", draw=fetching.waits,
            caption="How long training waited for a batch of pictures, and what read them ahead: "
            "threads and buffer grow while it waits, and shrink afterwards.",
        ),
    )),
    Entry("memory", "Memory by process", (
        View(
            of=costs.memory, missing="", draw=costs.memory_by_process,
            caption="The most that each process held in memory while it was looked at, about once "
            "a second. What several processes share counts for each of them.",
        ),
    )),
    Entry("operations", "Operations", (
        View(
            name="most {unit}s", paper="7.6, 7.7, E.5",
            of=costs.time_spent(), draw=costs.operations,
            caption="Mean time of each operation in {a_unit}, outliers left out; hatched: network. "
            "Receiving includes waiting for the server.",
            of_rounds="Of workers only those that took part in a round count.",
        ),
        View(
            name="outliers", paper="8.1, 8.2", missing="",
            of=costs.time_spent(in_outliers=True), draw=costs.operations,
            caption="What was done in the {unit}s that took unusually long.",
        ),
    ), counted=True),
    Entry("operators", "What the processor does", (
        View(
            of=operators.by_role, missing="", draw=operators.profiled,
            caption="Shares of the time of the profiled {unit}s (--profile) by kind of operator. "
            "Between operators: Python, messages, records. On a GPU its own time counts. Where all "
            "roles share a process, the first bar is of all of them. As figures 4 and 10 of Shi et "
            "al. (2024).",
        ),
    )),
    Entry("bytes", "Bytes {a_unit}", (
        View(
            paper="7.3, 7.4", fits=Subject.has_workers,
            of=costs.bytes_moved, missing="no bytes are counted yet", draw=costs.moved_bytes,
            caption="What the server, and a worker in the mean, send and receive in an average "
            "{unit}, by kind of message.",
            of_rounds="All rounds count, whether a worker took part or not.",
        ),
    ), counted=True),
))

WORKERS = Section("workers", "Workers, data and swaps", (
    Entry("attendance", "Who took part", (
        View(
            fits=Subject.has_workers,
            of=attendance.of_run, missing="", draw=attendance.who_took_part,
            caption="When each worker was there. Late: the server went on without its answer; "
            "refused: the answer could not be used; each as high as its share of the iterations.",
            of_rounds="In rounds, a worker that is not asked misses nothing.",
        ),
    )),
    Entry("staleness", "How old answers were", (
        View(
            fits=Subject.has_workers,
            of=staleness.by_worker, missing="", draw=staleness.ages,
            caption="How many steps the generator took between making a worker's batches and using "
            "its answer (--updates arrival): the means over logged iterations.",
        ),
    )),
    Entry("free-riders", "Free riders", (
        View(
            fits=Subject.has_workers,
            of=free_riders.by_worker, missing="", draw=free_riders.scored,
            caption="How sure it is of each worker that it answers without training, in standard "
            "deviations; dashed: from here on it counts as a free rider.",
        ),
    )),
    Entry("holdings", "What each worker holds", (
        View(
            fits=Subject.has_workers,
            of=classes.held, missing=NOT_TOLD, draw=classes.worker_holdings,
            caption="Samples by class and worker; they never leave it.",
        ),
    )),
    Entry("swaps", "Swaps", (
        View(
            name="who gave to whom", fits=Subject.can_swap,
            of=swaps.of_run, missing=NO_SWAP, draw=swaps.who_gave_to_whom,
            caption="How often each worker's discriminator went to each other worker.",
        ),
    )),
))

AUDIT = Section("audit", "What insiders learn", (
    Entry("membership", "Who was trained on", (
        View(
            name="discriminators", of=audits.of_discriminators, missing="",
            draw=audits.roc_of_discriminators,
            caption="The attacker has a discriminator, as the next worker in a swap does, and "
            "takes samples with high logits for those of its last worker. The share of these that "
            "it finds, against the share of held-out samples that it takes for some. Dashed: "
            "guessing.",
        ),
        View(
            name="generator", of=audits.of_generator, missing="", draw=audits.roc_of_generator,
            caption="The attacker has the generator alone, and takes the samples that lie nearest "
            "to generated ones for those that were trained on.",
        ),
    )),
    Entry("bound", "ε from below", (
        View(
            of=bounds.of_run, missing="", draw=bounds.from_below,
            caption="Secret coins included canaries among the samples, or not. An attacker that "
            "sees all that workers released, and knows all but the coins, guesses them; so many "
            "right guesses rule out every smaller ε (Steinke, Nasr and Jagielski 2023).",
        ),
    )),
    Entry("copies", "Does the generator copy?", (
        View(
            of=audits.of_copies, missing="", draw=audits.copies,
            caption="Above, the generated samples that come nearest to one that was trained on, "
            "beside held-out ones; then that one; below, the nearest held-out one. These are real "
            "samples: think before you pass this page on.",
        ),
    )),
    Entry("answers", "What a single answer tells", (
        View(
            name="update", of=audits.of_answers("update"), missing="", draw=audits.answers,
            caption="Above, samples of real batches; below, what comes nearest among the images "
            "that explain the gradient of a discriminator on the batch (Zhu et al. 2019). Of large "
            "batches, the eight samples that came out best.",
        ),
        View(
            name="feedback", of=audits.of_answers("feedback"), missing="", draw=audits.answers,
            caption="The same from feedback, by a host that knows the discriminator as it was "
            "before it learnt from the batch.",
        ),
    )),
))
# fmt: on

SECTIONS = (SAMPLES, QUALITY, ROUNDS, SLOTS, COST, WORKERS, AUDIT)
