"""What MD-GAN records of its workers beside their losses."""

from mdgan.records.declared import WorkerNumbers

GUILTY = 8.0
"""The score from which on a worker is taken for what it looks like, in standard deviations."""

SHOWN = (
    WorkerNumbers(
        key="staleness",
        title="How old answers were",
        label="steps old",
        caption="How many steps the generator took between making a worker's batches and using "
        "its answer (--updates arrival): the means over logged iterations.",
    ),
    WorkerNumbers(
        key="opposing",
        title="Feedback against that of the others",
        label="score",
        caption="How sure it is of each worker that its feedback opposes that of the others, in "
        "standard deviations; dashed: from here on it does not count.",
        alarm=GUILTY,
        alarming="opposing",
    ),
    WorkerNumbers(
        key="riding",
        title="Free riders",
        label="score",
        caption="How sure it is of each worker that it answers without training, in standard "
        "deviations; dashed: from here on it counts as a free rider.",
        column="free rider",
        alarm=GUILTY,
        alarming="free rider",
    ),
)
