"""All figures of the report, in their order, and what is said under each."""

from mdgan.report.entry import Entry, Section
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
        "compared",
        "Compared",
        (
            Entry(
                "fid-compared",
                "FID, and what it cost",
                "FID against iterations, training time, bytes that a worker sends and receives "
                "(mean over the workers), and bytes that the server does; lower is better, dashed: "
                "one half of the real data against the other.",
                "",
                comparison.fid_compared,
                wide=True,
                grouped=True,
            ),
            Entry(
                "score-compared",
                "Inception score, and what it cost",
                "The same for the score, higher is better; dashed: real data.",
                "",
                comparison.score_compared,
                wide=True,
                grouped=True,
            ),
            Entry(
                "coverage-compared",
                "Coverage, and what it cost",
                "The same for coverage: the share of real samples that have a generated one among "
                "their neighbours.",
                "",
                comparison.coverage_compared,
                wide=True,
                grouped=True,
            ),
            Entry(
                "samples-compared",
                "Samples side by side",
                "The last grid of every configuration, all from the same noise where the seed is "
                "the same.",
                "",
                comparison.samples_side_by_side,
                wide=True,
                grouped=True,
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
                grouped=True,
            ),
            Entry(
                "fid-time",
                "FID against time",
                "The same distance against the seconds that training took to get there.",
                "",
                scores.fid_against_time,
                grouped=True,
            ),
            Entry(
                "inception-score",
                "Inception score",
                "How sure a classifier is of each sample and how varied they are, higher is "
                "better; dashed: real data.",
                "7.9, E.7",
                scores.inception_score,
                grouped=True,
            ),
            Entry(
                "kid",
                "KID against iterations",
                "Kernel distance to the real features, unbiased for few samples, lower is better; "
                "the band of a single run is one standard deviation.",
                "",
                scores.kid_against_iterations,
                grouped=True,
            ),
            Entry(
                "precision-recall",
                "Precision, recall, density, coverage",
                "Precision and density: do samples look real? Recall and coverage: is everything "
                "real among the samples?",
                "",
                scores.precision_and_recall,
                grouped=True,
            ),
            Entry(
                "classes-covered",
                "Classes covered",
                "How many classes the generator makes, and how far their frequencies are from "
                "the real ones (0 is equal).",
                "",
                classes.class_coverage,
                grouped=True,
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
        "rounds",
        "Rounds",
        (
            Entry(
                "rounds-map",
                "Who took part in which round",
                "Every worker that was asked in a round. Asked in vain: its model did not come "
                "in time; aborted: the model stayed as it was. Paler where a stretch holds several "
                "rounds.",
                "",
                rounds.who_took_part_in_rounds,
                wide=True,
            ),
            Entry(
                "rounds-weights",
                "Weights",
                "What share of the average each worker's model had in each round; dashed: equal "
                "shares.",
                "",
                rounds.weights_in_rounds,
            ),
            Entry(
                "rounds-seen",
                "Samples per class seen by the server",
                "Through the workers that took part, a sample as often as its worker did. Lines "
                "are means over the classes, bands reach from the least to the most seen one; "
                "diamonds: every class was seen 500 times. As figure 14 of FeGAN.",
                "",
                rounds.samples_seen,
                grouped=True,
            ),
            Entry(
                "rounds-kl",
                "Divergence of what the server has seen",
                "KL divergence of the real distribution of classes from what the server has seen "
                "so far; 0 is equal. As figure 10 of FeGAN.",
                "",
                rounds.kl_of_seen_data,
                grouped=True,
            ),
        ),
    ),
    Section(
        "time",
        "Time",
        (
            Entry(
                "duration",
                "{Unit} duration",
                "How long every {unit} took, from its first operation to its last; scoring "
                "and checkpoints do not count.",
                "7.1, E.2",
                durations.iteration_duration,
                of_rounds="What an aborted round took counts to the one in its place.",
            ),
            Entry(
                "duration-without-outliers",
                "{Unit} duration without outliers",
                "The same without the {units} that took unusually long.",
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
                "Average {unit} duration",
                "Mean without outliers; the thin line reaches from the 10 % to the 90 % quantile.",
                "E.1",
                durations.average_iteration_duration,
            ),
            Entry(
                "duration-workers",
                "{Unit} duration against number of workers",
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
                "Timeline of ten {units}",
                "What every role did in ten typical {units} in a row. Bare background is "
                "idle time, grey is waiting for others, hatched operations use the network.",
                "7.10",
                timeline.timeline_of_ten,
                wide=True,
                of_rounds="Who does not take part in a round is idle.",
            ),
            Entry(
                "timeline-one",
                "Timeline of one {unit}",
                "One typical {unit} out of these ten.",
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
                "Mean time of each operation in {a_unit}, outliers left out; hatched: network.",
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
                of_rounds="Only those that took part in a round count.",
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
                "What the server did in the {units} that took unusually long.",
                "8.1",
                operations.server_operations_in_outliers,
            ),
            Entry(
                "operations-workers-outliers",
                "Operations of the workers in outliers",
                "What workers did in the {units} that took unusually long.",
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
                "Bytes {a_unit}, server",
                "What the server sends and receives in an average {unit}, by kind of message.",
                "7.3",
                traffic.server_bytes,
            ),
            Entry(
                "bytes-workers",
                "Bytes {a_unit}, worker",
                "What one worker sends and receives, mean over the workers.",
                "7.4",
                traffic.worker_bytes,
                of_rounds="All rounds count, whether it took part or not.",
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
                of_rounds="In rounds, who is not asked misses nothing.",
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
