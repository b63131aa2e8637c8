"""A host adds only a part of the noise if the server can see only the whole sum."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mdgan.credentials.identity import Identity
from mdgan.data.dataset_file import load
from mdgan.data.shard import Shard
from mdgan.engine.answers import AnswerForm
from mdgan.engine.host_keys import HostKeys, NotMasked
from mdgan.engine.stages.contract import HostPath
from mdgan.engine.stages.mask_host import HostMask
from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.families.contract import HostNeeds
from mdgan.families.moments.build import draw_features
from mdgan.families.moments.host import ASK, MomentsHost
from mdgan.families.moments.message import SUMS
from mdgan.families.moments.settings import FeatureSettings
from mdgan.gan.build import Models
from mdgan.gan.randomness import generator_for
from mdgan.messages import Message
from mdgan.observe.tracer import Tracer
from mdgan.privacy.budget import Spent
from mdgan.privacy.noise import with_noise
from mdgan.privacy.shared_noise import NoiseSharing
from tests.claims.registry import claim
from tests.unit.credentials.test_signing import AUTHORITY, issued
from tests.unit.engine.secure import Hosts

SIGMA = 3.0


class Allowance:
    """Stands for a `Budget` of some steps; its samples may have been in earlier runs."""

    over, units, releases = False, None, None

    canaries, limit = None, 1.0

    def __init__(self, left: int, noise: float = SIGMA) -> None:
        self.iterations_left, self.noise = left, noise

    def key(self, use: str) -> bytes:
        return use.encode().ljust(32)

    def advance(self) -> None:
        self.iterations_left -= 1

    def spent(self, *, exactly: bool = True) -> Spent:
        del exactly
        return Spent(1.0, 1.0)


class Nowhere:
    """A link whose messages are not read."""

    def send(self, message: Message) -> int:
        self.sent = message
        return 0


FORM = AnswerForm("SUM", (10, 11), arithmetic=SUMS)


def host(path: HostPath, folder: Path, budgets: Mapping[int, Allowance]) -> MomentsHost:
    question = {
        **{"algorithm": "moments", "world_size": 5, "secure_aggregation": True},
        **{"dp_noise": SIGMA, "dp_delta": 1e-4},
    }
    settings: Any = registry.read_settings([question])
    features = draw_features(FeatureSettings(num_features=10), (1, 8, 8), 10, 0)
    digits = load("digits", None).open(folder)
    shards = {n: Shard(digits, torch.arange(9 * n), generator_for(0)) for n in budgets}
    given: Any = budgets
    models = Models("none", (1, 8, 8), 1, torch.nn.Identity, torch.nn.Identity)
    needs = HostNeeds(settings, models, shards, torch.device("cpu"), Tracer(0), budgets=given)
    return MomentsHost(needs, path, features)


def noises(
    of: MomentsHost, monkeypatch: pytest.MonkeyPatch, question: Mapping[str, Any]
) -> list[float]:
    """The standard deviation of what each worker adds as it is asked."""
    added: list[float] = []

    def record(total: Tensor, clip: float, noise: float, key: bytes) -> Tensor:
        assert (clip, key) == (1.0, b"moments".ljust(32))
        added.append(noise)
        return with_noise(total, clip, noise, key)

    monkeypatch.setattr("mdgan.families.moments.contract.with_noise", record)
    transport: Any = Nowhere()
    of.handlers()[ASK](Message(ASK, 1, {"features": "", **question}), transport)
    return added


def in_a_sum(
    certificates: Mapping[int, Identity] = {}, least: int = 1
) -> tuple[HostMask, dict[str, Any]]:
    """Host 1, which carries two of four workers, and a question to it and to hosts 3 and 4."""
    sharing = NoiseSharing(4, None, least)
    hosts = Hosts(4, sharing=sharing, carried={1: [1, 2]}, certificates=certificates)
    del hosts.masks[2]
    parties = {"sums": {"number": 1, "parties": {"0": [1, 3, 4]}}, "least_noise": SIGMA}
    mask = HostMask(hosts.masks[1].keys, FORM, sharing=sharing)
    return mask, parties


def test_answers_that_are_not_masked_have_all_of_the_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = {1: Allowance(1), 2: Allowance(1)}
    assert noises(host(HostPath(FORM), tmp_path, two), monkeypatch, {}) == [SIGMA, SIGMA]


@pytest.mark.parametrize(
    ("shared", "sharers"), [(None, 3), ("its own", 3), ("one of all", 1), ("two have one", 2)]
)
@claim(
    "shared-noise",
    "Each of M certificates adds noise of variance σ²/M, all workers of its host together",
)
def test_workers_of_a_host_add_one_part_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: str | None, sharers: int
) -> None:
    role = "worker" if shared == "its own" else None
    credentials = {} if shared is None else {n: issued(AUTHORITY, role) for n in range(1, 5)}
    if shared == "one of all":
        credentials = dict.fromkeys(credentials, credentials[1])
    elif shared == "two have one":
        credentials[4] = credentials[3]
    mask, question = in_a_sum(credentials)
    result = noises(host(mask, tmp_path, {1: Allowance(1), 2: Allowance(1)}), monkeypatch, question)
    assert sum(noise**2 for noise in result) == pytest.approx(SIGMA**2 / sharers)
    assert result[0] == pytest.approx(result[1])


def test_samples_of_earlier_runs_have_the_noise_that_they_are_charged_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others may add no more than their own accounts take: 3 instead of 5."""
    mask, question = in_a_sum()
    of = host(mask, tmp_path, {1: Allowance(1, 5.0), 2: Allowance(1)})
    result = noises(of, monkeypatch, question)
    assert sum(noise**2 for noise in result) + 2 * SIGMA**2 / 3 == pytest.approx(25.0)


@pytest.mark.parametrize("least", [SIGMA + 1e-9, float("nan"), float("inf"), -1.0])
def test_a_host_does_not_count_on_more_noise_than_it_adds_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least: float
) -> None:
    """The others of the sum are told the same number, and each checks it."""
    mask, question = in_a_sum()
    of = host(mask, tmp_path, {1: Allowance(1), 2: Allowance(1)})
    with pytest.raises(NotMasked, match="it says that others add noise of"):
        noises(of, monkeypatch, {**question, "least_noise": least})


@pytest.mark.parametrize("least", [None, "much", 0.0, []])
def test_a_host_that_is_told_nothing_of_others_adds_all_of_the_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least: object
) -> None:
    mask, question = in_a_sum()
    of = host(mask, tmp_path, {1: Allowance(1), 2: Allowance(1)})
    result = noises(of, monkeypatch, {**question, "least_noise": least})
    assert sum(noise**2 for noise in result) == pytest.approx(SIGMA**2)


@claim(
    "sharers-left",
    "has a machine help with no sum of fewer; with K = M + c the stated ε holds against c of them.",
)
def test_a_host_that_wants_more_sharers_takes_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mask, question = in_a_sum(least=4)
    of = host(mask, tmp_path, {1: Allowance(1), 2: Allowance(1)})
    with pytest.raises(NotMasked, match="sum of 3 hosts' answers"):
        noises(of, monkeypatch, question)


def test_a_host_whose_workers_cannot_all_tell_takes_no_part(tmp_path: Path) -> None:
    """The others count on the noise of each."""
    short = host(HostMask(HostKeys([1, 2]), FORM), tmp_path, {1: Allowance(1), 2: Allowance(0)})
    nowhere: Any = None
    with pytest.raises(BadInput, match=r"rank\(s\) 2 cannot tell any more"):
        short.handlers()[ASK](Message(ASK, 1, {"features": ""}), nowhere)
