"""The settings of DP-MERF, and its entry in the registry."""

from math import inf
from typing import ClassVar

from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.families.contract import Algorithm
from mdgan.privacy.secure_settings import SecureSumSettings
from mdgan.privacy.settings import PrivacySettings
from mdgan.privacy.shared_noise import SharedNoiseSettings
from mdgan.settings import declare
from mdgan.spelling import flag

NAME = "moments"


class FeatureSettings(declare.Settings, group="algorithm"):
    """Which sums workers send."""

    features: str = declare.key_setting(
        "auto",
        "What workers add up of their samples: of rows how often two columns have which values "
        "together, by class (pairs); or random Fourier features (random). auto: pairs for tables.",
        declare.one_of("auto", "pairs", "random"),
    )
    num_features: int = declare.key_setting(
        2000,
        "Random Fourier features whose sums workers tell, of each class.",
        declare.whole(1),
        symbol="D",
    )
    kernel_width: float = declare.key_setting(
        0.5,
        "How far apart two samples may be and still count as alike: the width of the Gaussian "
        "kernel, in units of the root of how many values a sample has.",
        declare.number(lambda width: 0 < width < inf, "must be above 0"),
        metavar="WIDTH",
    )
    feature_side: int = declare.key_setting(
        8,
        "Features see pictures, volumes and series by means of neighbours, at most so many a side.",
        declare.whole(1),
    )
    feature_network: str | None = declare.own_key_setting(
        None,
        "A network whose features workers tell instead, which has seen no sample of a worker: a "
        "TorchScript file or FILE.py:MODULE, as for --extractor. It runs with your rights.",
        declare.text(),
        metavar="FILE",
        default_text="random Fourier features",
    )


class MomentsSettings(RunSettings):
    """The settings of DP-MERF, beside those that every algorithm has."""

    tells_once: ClassVar[bool] = True

    features = declare.section(FeatureSettings)
    privacy = declare.section(PrivacySettings)
    noise = declare.section(SharedNoiseSettings)
    secure = declare.section(SecureSumSettings)

    algorithm: str = declare.setting(NAME, "What trains.", declare.text(), is_usual=True)

    def check(self) -> None:
        """Refuses settings that have no use where each worker sends one sum."""
        super().check()
        if self.privacy.dp_clip is not None:
            why = f"with {flag('algorithm', NAME)} all that a sample adds has length 1"
            raise BadInput(flag("dp_clip", f"{self.privacy.dp_clip:g}"), why, "leave it out")
        if self.privacy.audit_canaries and self.shares_noise:
            why = f"with {flag('secure_aggregation', True)} a worker adds only a part of the noise"
            way_out = "leave one of them out"
            raise BadInput(flag("audit_canaries", self.privacy.audit_canaries), why, way_out)

    @property
    def shares_noise(self) -> bool:
        return self.secure.secure_aggregation and self.privacy.keeps_ledger


MOMENTS = Algorithm(
    NAME,
    "every worker tells one sum of its samples' features, with noise if it must, and goes home",
    MomentsSettings,
    "mdgan.families.moments.build:BUILDER",
    {"iterations": 1500, "batch_size": 500, "generator_optimizer": "lr=0.002,schedule=cosine"},
    lets_batches_repeat=False,
    server_phases=("step",),
    host_phases=("receive", "embed", "send"),
)
"""Harder, Adamczewski and Park 2021."""
