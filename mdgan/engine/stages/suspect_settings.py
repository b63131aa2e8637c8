"""The settings of the search for attackers and free riders, and the figures that it records."""

from math import inf

from mdgan.errors import BadInput
from mdgan.records.rows import WorkerNumbers
from mdgan.settings.declare import Settings, key_setting, number, setting, switch
from mdgan.spelling import flag

MOST_USUAL = 4.0  # how many times the usual norm an answer may have by default
LEAST_WORKERS = 3
"""With fewer answers the server cannot tell what is usual, and scores no worker for free riding."""
LEAST_TO_NAME = 5
"""With fewer single answers the server names no attacker: where few workers agree little, one that
knows another worker's answers could have that worker named, or its answers left out."""
LEAST_SAMPLES = 4  # with fewer samples in a batch there are too few pairs of them to compare
GUILTY = 8.0
"""The score, in standard deviations, from which on the server names a worker."""


class SuspectSettings(Settings, group="faults"):
    """What the server does with workers whose answers differ from those of the others."""

    shut_out_free_riders: bool = setting(
        False,
        "Shut out workers whose feedback shows that they do not train, or that opposes that of the "
        "others; then no host adds up what its workers answer.",
        switch(),
    )
    longest_answer: float = key_setting(
        MOST_USUAL,
        "How many times as long as usual feedback may be; what is longer is cut, and that of a "
        "worker that opposes the others for long does not count. 0: all counts as it is.",
        number(lambda factor: factor == 0 or 1 <= factor < inf, "must be 1 or more, or 0 for any"),
        group="algorithm",
    )

    def check_enough(self, num_workers: int, batch_size: int) -> None:
        """Refuses to shut out free riders with too few workers or samples to recognize them."""
        if self.shut_out_free_riders and num_workers < LEAST_WORKERS:
            raise BadInput(
                flag("shut_out_free_riders"),
                f"with {num_workers} worker(s) at a time the server cannot tell which "
                "answers are usual",
                f"at least {LEAST_WORKERS} must answer",
            )
        if self.shut_out_free_riders and batch_size < LEAST_SAMPLES:
            why = f"a batch of {batch_size} is too small to see whether answers depend on it"
            way_out = f"{flag('batch_size')} must be at least {LEAST_SAMPLES}"
            raise BadInput(flag("shut_out_free_riders"), why, way_out)


SUSPICIONS = (
    WorkerNumbers(
        key="opposing",
        title="Feedback against that of the others",
        label="standard deviations",
        caption="How sure the server is that a worker's feedback opposes that of the others, in "
        "standard deviations; beyond the dashed line it does not count.",
        alarm=GUILTY,
        alarming="opposing",
    ),
    WorkerNumbers(
        key="riding",
        title="Free riders",
        label="standard deviations",
        caption="How sure the server is that a worker answers without training, in standard "
        "deviations; beyond the dashed line the worker counts as a free rider.",
        column="free rider",
        alarm=GUILTY,
        alarming="free rider",
    ),
)
"""The figures of each worker that a run records, under the keys that `Suspects.score` returns."""
