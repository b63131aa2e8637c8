"""The settings of scores: how often, of how many samples, and in which features."""

from typing import Protocol

from mdgan.data.settings import DataSettings
from mdgan.privacy.settings import PrivacySettings
from mdgan.settings.declare import Settings, own_key_setting, own_setting, text, whole
from mdgan.settings.excludes import table

INCEPTION_URL = (
    "https://github.com/toshas/torch-fidelity/releases/download/v0.2.0/"
    "weights-inception-2015-12-05-6726825d.pth"
)


class ScoreSettings(Settings, group="output"):
    """How often generators are scored, and in the features of which network."""

    eval_interval: int = own_setting(
        500,
        "Iterations between two scores (FID and others), which another process computes; 0 for "
        "none. Shorter runs are not scored.",
        whole(0, otherwise="must be 0 or more"),
        is_usual=True,
    )
    eval_samples: int = own_key_setting(
        10_000, "Samples to generate for each score; of volumes at most 1,000.", whole(2)
    )
    extractor: str = own_setting(
        "classifier",
        "Network whose features are scored: classifier (small, of the data set, trained when it is "
        "first needed; where workers' samples are private on half of the held-out ones; without "
        "classes a network of random weights), inception, or your own file: TorchScript, or "
        "FILE.py:MODULE. "
        "Either file is a program that runs with your rights: name none that you do not trust.",
        text(),
        metavar="NAME|FILE",
    )
    inception_weights: str | None = own_setting(
        None, "Weights for --extractor inception; nothing is downloaded.", text(), metavar="FILE"
    )
    held_out: str | None = own_setting(
        None,
        "Real samples that the server may hold, for scores.",
        text(),
        metavar="DIR",
        default_text="the data set's own test samples, where it has some",
        is_usual=True,
        group="tables",
    )

    excludes = table(
        """
        extractor!=inception | inception_weights |
            needs {extractor=inception} beside it, not {when}
        !inception_weights   | extractor=inception |
            needs {inception_weights=FILE}; nothing is downloaded, it is at
        """
        + f"    {INCEPTION_URL}"
    )


class Scored(Protocol):
    """Settings of a run that scores depend on."""

    data: DataSettings
    scores: ScoreSettings
    privacy: PrivacySettings
