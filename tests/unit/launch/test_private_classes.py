"""Counts of classes with noise: what they are charged, how large the noise is, what they add up to.

`families/federated` draws and weighs clients by them; `HeldSamples` makes them.
"""

import tempfile
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mdgan.data.dataset_file import load
from mdgan.data.shard import Shard
from mdgan.engine.hello import make_hello
from mdgan.engine.host.held_samples import HeldSamples, classes_of
from mdgan.errors import BadInput
from mdgan.families.federated.settings import FederatedSettings
from mdgan.gan.randomness import generator_for
from mdgan.launch.budget_checks import check_budgets
from mdgan.privacy import counts
from mdgan.privacy.contents import Contents
from mdgan.privacy.planning import StepSchedule
from tests.accounts import charges_in, spend_all
from tests.claims.registry import claim
from tests.marks import examples

accountants: Any = pytest.importorskip("opacus.accountants", reason="pip install 'mdgan[privacy]'")
gdp: Any = pytest.importorskip("opacus.accountants.analysis.gdp")

DIGITS = load("digits", None)
DELTA = 1e-4
quick = settings(deadline=None, max_examples=examples(4))


class Site:
    """What a host of one worker does before it trains; it holds these digits, with these labels."""

    def __init__(
        self, folder: Path, held: Tensor, labels: Tensor | None = None, **changes: Any
    ) -> None:
        source = DIGITS.partitioner(Path())
        if labels is not None:
            source.labels = labels
        values = {"dp_epsilon": 3.0, "dp_delta": DELTA, "dp_ledger": str(folder / "ledger")}
        values |= {"algorithm": "fegan", "iterations": 20, "batch_size": 10, "world_size": 2}
        self.settings = FederatedSettings.read({"weighting": "kl", **values, **changes})
        self.shard = Shard(source, held, generator_for(0))
        contents = {1: Contents.of(self.shard)}
        self.samples = HeldSamples(self.settings, {1: self.shard}, contents, DIGITS)

    def classes(self) -> list[int]:
        return self.samples.noisy_classes()[1]

    def noise(self, num_classes: int) -> Tensor:
        """What is added to the counts of each class."""
        counted = classes_of(self.shard, num_classes)
        schedule = StepSchedule.of_samples(1, len(self.shard), self.settings)
        own, held = self.settings, self.samples.contents[1]
        paid = counts.paid_counts(counted, schedule=schedule, settings=own, held=held)
        return paid.tell() - counted.counts

    def spend_all(self) -> float:
        """ε once all steps of training are taken."""
        (budget,) = self.samples.open_budgets().values()
        return spend_all(budget)


SOME = torch.arange(300)


@claim("no-classes", "balanced and kl go by noisy counts")
def test_counts_are_charged_before_training_and_both_keep_to_epsilon(tmp_path: Path) -> None:
    site = Site(tmp_path, SOME)
    site.classes()
    (before,) = charges_in(tmp_path / "ledger")
    assert (before.rate, before.steps) == (1.0, 1)
    # By the exact theorem for one Gaussian mechanism, whose sum one sample changes by 1.
    assert 0.97 * 0.6 < gdp.eps_from_mu(mu=1 / before.noise, delta=DELTA) <= 0.6
    assert 2.9 < site.spend_all() <= 3
    first, steps = charges_in(tmp_path / "ledger")
    assert first == before
    assert steps.rate == pytest.approx(10 / 300)
    assert steps.steps == 20
    both = accountants.RDPAccountant()
    both.history = [(c.noise, c.rate, c.steps) for c in (first, steps)]
    assert both.get_epsilon(DELTA) <= 3
    alone = accountants.RDPAccountant()
    alone.history = both.history[1:]
    assert alone.get_epsilon(DELTA) < both.get_epsilon(DELTA), "counts have spent some of it"


@claim("told-once", "The identical question is free")
@claim("told-once", "spends, and a line says so before.")
def test_the_same_counts_are_free_and_those_of_other_labels_are_not(tmp_path: Path) -> None:
    told = Site(tmp_path, SOME).classes()
    again = Site(tmp_path, SOME, iterations=7, weighting="uniform", sampling="balanced")
    assert again.classes() == told
    assert len(charges_in(tmp_path / "ledger")) == 1
    others = torch.arange(1438) % 3
    other = Site(tmp_path, SOME, others)
    warnings = check_budgets(other.samples, serves=False)
    (warning,) = [line for line in warnings if "these labels" in line]
    assert "spends anew" in warning
    assert other.classes() != told
    assert len(charges_in(tmp_path / "ledger")) == 2
    warnings = check_budgets(other.samples, serves=False)
    assert not [line for line in warnings if "these labels" in line]


def test_what_is_left_pays_for_no_third_question(tmp_path: Path) -> None:
    Site(tmp_path, SOME).classes()
    Site(tmp_path, SOME).spend_all()
    with pytest.raises(BadInput, match="classes that they were not counted by yet would spend"):
        Site(tmp_path, SOME, torch.arange(1438) % 3).classes()


@claim("dry-run", "It says how much noise there would be")
def test_the_noise_that_is_planned_is_that_after_counts(tmp_path: Path) -> None:
    site = Site(tmp_path, SOME)
    planned = site.samples.planned_noise()
    assert planned is not None
    assert not (tmp_path / "ledger").exists()
    site.classes()
    (budget,) = site.samples.open_budgets().values()
    budget.close()
    assert planned[1].noise == budget.noise
    without = Site(tmp_path, torch.arange(300, 600), weighting="uniform", sampling="random")
    alone = without.samples.planned_noise()
    assert alone is not None
    assert alone[1].noise < budget.noise


@claim("told-once", "Where nothing is left it is refused before anything is told.")
@pytest.mark.parametrize(
    "changes", [{"dp_encoding_share": 0.99}, {"dp_encoding_share": 0.9}, {"dp_noise": 1.0}], ids=str
)
def test_counts_that_leave_nothing_for_training_spend_nothing(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    site = Site(tmp_path, SOME, **{"dp_epsilon": 4.3, **changes})
    with pytest.raises(BadInput, match=r"too small for counts .* and training after them"):
        check_budgets(site.samples, serves=False)
    assert not (tmp_path / "ledger").exists()
    with pytest.raises(BadInput, match=r"too small for counts .* and training after them"):
        site.classes()
    assert not charges_in(tmp_path / "ledger")


@claim("told-once", "spends, and a line says so before.")
def test_a_run_that_goes_on_says_that_it_counts_anew(tmp_path: Path) -> None:
    Site(tmp_path, SOME).classes()
    for lines, changes in enumerate[dict[str, Any]]([{}, {"dp_epsilon": 4.0}]):
        site = Site(tmp_path, SOME, **changes)
        warnings = check_budgets(site.samples, serves=False, goes_on=True)
        assert len([line for line in warnings if "with this noise yet" in line]) == lines


def test_what_is_left_after_new_counts_is_said(tmp_path: Path) -> None:
    Site(tmp_path, SOME).classes()
    Site(tmp_path, SOME).spend_all()
    site = Site(tmp_path, SOME, torch.arange(1438) % 3, dp_epsilon=4.0)
    warnings = check_budgets(site.samples, serves=False)
    (warning,) = [line for line in warnings if "; left: " in line]
    site.classes()
    (budget,) = site.samples.open_budgets().values()
    budget.close()
    assert f"have spent 3 before; left: 20 steps with noise {budget.noise:.3g}" in warning


@quick
@given(st.floats(0.5, 20), st.floats(0.05, 0.2), st.sampled_from([1, 7, 300]))
def test_the_noise_is_as_large_as_its_share_of_epsilon_asks(
    epsilon: float, share: float, number: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        changes: dict[str, Any] = {
            "dp_epsilon": epsilon,
            "dp_encoding_share": share,
            "iterations": 500,
        }
        site = Site(Path(folder), torch.arange(number), **changes, batch_size=1)
        stated = counts.noise_of(site.settings)
        noise = site.noise(1000).double()
        (charged,) = charges_in(Path(folder) / "ledger")
    assert charged.noise == stated
    assert gdp.eps_from_mu(mu=1 / stated, delta=DELTA) <= epsilon * share
    # Counts are rounded to whole numbers afterwards, which adds a variance of 1/12.
    assert float(noise.std()) == pytest.approx(sqrt(stated**2 + 1 / 12), rel=0.12)
    assert abs(float(noise.mean())) < 6 * stated / sqrt(1000)


@quick
@given(st.lists(st.integers(0, 9), min_size=2, max_size=40), st.data())
def test_without_a_sample_one_count_is_lower_by_one(held: list[int], data: st.DataObject) -> None:
    """What one unit of the account changes of the counts, which the noise has to hide."""
    labels = torch.tensor(held + [0] * (1438 - len(held)))
    left_out = data.draw(st.integers(0, len(held) - 1))
    those = torch.arange(len(held))
    with tempfile.TemporaryDirectory() as folder:
        whole = classes_of(Site(Path(folder), those, labels).shard, 10)
        less = classes_of(Site(Path(folder), those[those != left_out], labels).shard, 10)
    change = whole.counts - less.counts
    assert float(change.double().norm()) == 1 == int(change[held[left_out]])
    assert len(whole.counts) == len(less.counts) == 10  # and not up to the highest class here
    assert whole.num_histograms == 1


@quick
@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.floats(0.1, 50))
def test_they_add_up_to_the_number_that_is_told_anyway(held: list[int], noise: float) -> None:
    labels = torch.tensor(held + [0] * (1438 - len(held)))
    with tempfile.TemporaryDirectory() as folder:
        changes: dict[str, Any] = {"dp_epsilon": None, "dp_noise": noise, "batch_size": 1}
        those = torch.arange(len(held))
        result = Site(Path(folder), those, labels, **changes).classes()
        declared = Site(Path(folder), those, labels, **changes, dp_public_samples=70).classes()
    assert len(result) == len(declared) == 10
    assert min(*result, *declared) >= 0
    assert (sum(result), sum(declared)) == (len(held), 70)


def test_a_large_number_that_is_declared_costs_nothing(tmp_path: Path) -> None:
    many = 2**31 - 1
    changes: dict[str, Any] = {"dp_epsilon": None, "dp_noise": 4.0, "dp_public_samples": many}
    assert sum(Site(tmp_path, SOME, **changes).classes()) == many


def test_with_hardly_any_noise_they_are_the_counts(tmp_path: Path) -> None:
    site = Site(tmp_path, SOME, dp_epsilon=None, dp_noise=0.001)
    assert site.classes() == site.shard.class_counts()


@claim("unit", "A unit is a sample, with all that equal it: copies of a picture, equal rows.")
def test_equal_samples_count_once(tmp_path: Path) -> None:
    twice = torch.tensor([5, 5, 5, 9])
    site = Site(tmp_path, twice, torch.arange(1438) % 10, dp_epsilon=None, dp_noise=0.001)
    assert site.classes() == [0, 0, 0, 0, 0, 1, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("changes", "counted", "told"),
    [
        ({"sampling": "balanced"}, True, True),
        ({"sampling": "random"}, True, True),
        ({"sampling": "random", "secure_aggregation": True}, True, False),
        ({"sampling": "balanced", "secure_aggregation": True}, True, True),
        ({"sampling": "random", "weighting": "uniform"}, False, False),
        ({"dp_disclose": "classes"}, False, True),
        ({"dp_disclose": "classes", "sampling": "random", "secure_aggregation": True}, 0, False),
    ],
    ids=str,
)
def test_who_counts_with_noise_and_who_tells_the_server(
    tmp_path: Path, changes: dict[str, Any], counted: bool, told: bool
) -> None:
    given = Site(tmp_path, SOME, world_size=6, participation=1.0, **changes).settings
    assert given.hides_classes == bool(counted)
    own_hello = make_hello(1, {1: [3, 4]}, {}, tells_classes=given.tells_classes)
    assert own_hello["class_counts"] == {"1": [3, 4] if told else []}
    assert own_hello["num_samples"] == {"1": 7}


def test_it_is_refused_where_k_is_not_known_or_nothing_can_be_added_up(tmp_path: Path) -> None:
    site = Site(tmp_path, SOME)
    unknown, single = (replace(DIGITS, num_classes=number) for number in (None, 1))
    with pytest.raises(BadInput, match="does not say how many classes there are, two or more"):
        check_budgets(replace(site.samples, dataset=unknown), serves=False)
    with pytest.raises(BadInput, match="two or more; add NUM_CLASSES"):
        check_budgets(replace(site.samples, dataset=single), serves=False)
    by_prv = site.settings.but(dp_accountant="prv")
    with pytest.raises(BadInput, match="dp_accountant=prv: cannot add up what counts and train"):
        check_budgets(replace(site.samples, settings=by_prv), serves=False)
    assert not (tmp_path / "ledger").exists()
