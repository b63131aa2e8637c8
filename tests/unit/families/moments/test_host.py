"""A host adds only a part of the noise where the server can see nothing but a whole sum."""

from pathlib import Path
from typing import Any

import pytest
import torch

from mdgan.data.dataset_file import load
from mdgan.data.shard import Shard
from mdgan.engine.answers import AnswerForm
from mdgan.engine.host_keys import HostKeys
from mdgan.engine.stages.contract import HostPath
from mdgan.engine.stages.mask_host import HostMask
from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.families.contract import HostNeeds
from mdgan.families.moments.features import SUMS, SampleFeatures
from mdgan.families.moments.host import ASK, MomentsHost
from mdgan.families.moments.settings import FeatureSettings
from mdgan.gan.build import Models
from mdgan.gan.randomness import generator_for
from mdgan.messages import Message
from mdgan.observe.tracer import Tracer

SIGMA = 3.0


class Allowance:
    """Stands for a `Budget` of some steps."""

    noise = SIGMA

    def __init__(self, left: int) -> None:
        self.iterations_left = left


def host(path: HostPath, folder: Path, left: dict[int, int]) -> MomentsHost:
    asked = {
        **{"algorithm": "moments", "world_size": 5, "secure_aggregation": True},
        **{"dp_noise": SIGMA, "dp_delta": 1e-4},
    }
    settings: Any = registry.read_settings([asked])
    features = SampleFeatures.drawn(FeatureSettings(num_features=10), (1, 8, 8), 10, 0)
    digits = load("digits", None).open(folder)
    shards = {n: Shard(digits, torch.arange(9 * n), generator_for(0)) for n in left}
    budgets: Any = {n: Allowance(steps) for n, steps in left.items()}
    models = Models("none", (1, 8, 8), 1, torch.nn.Identity, torch.nn.Identity)
    needs = HostNeeds(settings, models, shards, torch.device("cpu"), Tracer(0), budgets=budgets)
    return MomentsHost(needs, path, features)


FORM = AnswerForm("SUM", (10, 11), arithmetic=SUMS)


def noises(of: MomentsHost) -> list[float]:
    return [teller.noise for teller in of.learners.values()]


def test_answers_that_are_not_masked_have_all_of_the_noise(tmp_path: Path) -> None:
    assert noises(host(HostPath(FORM), tmp_path, {1: 1, 2: 1})) == [SIGMA, SIGMA]
    masked = HostMask(HostKeys([1, 2]), FORM)
    assert noises(host(masked, tmp_path, {1: 1, 2: 1})) == [SIGMA / 2, SIGMA / 2]  # √4


def test_a_host_whose_workers_cannot_all_tell_takes_no_part(tmp_path: Path) -> None:
    """The others count on the noise of each."""
    short = host(HostMask(HostKeys([1, 2]), FORM), tmp_path, {1: 1, 2: 0})
    nowhere: Any = None
    with pytest.raises(BadInput, match=r"rank\(s\) 2 cannot tell any more"):
        short.handlers()[ASK](Message(ASK, 1, {"features": ""}), nowhere)
