"""A table's counts and its sums, sent once, have one plan; sites share their noise."""

from hashlib import sha256
from math import exp, sqrt
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.stats import norm

from mdgan.errors import BadInput
from mdgan.privacy.budget import Budget
from mdgan.privacy.ledger import Ledger
from mdgan.privacy.shared_noise import variance_of_part
from mdgan.samples.table.schema import Schema, WholeColumn
from tests.accounts import charges_in
from tests.claims.registry import claim
from tests.unit.launch.table_sites import COLUMNS, STUDY, Site, write_site

pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")

DELTA = 1e-5
WIDER = Schema(columns=(WholeColumn(name="age", low=0, high=101), *COLUMNS[1:]))
ONCE: dict[str, Any] = {"algorithm": "moments"}
SHARED: dict[str, Any] = {"secure_aggregation": True, "world_size": 5}


def delta_of(epsilon: float, mu: float) -> float:
    """Balle and Wang 2018, theorem 8: δ of a Gaussian mechanism of sensitivity μσ."""
    ratio = epsilon / mu
    return float(norm.cdf(mu / 2 - ratio) - exp(epsilon) * norm.cdf(-mu / 2 - ratio))


def tell_sums(site: Site) -> Budget:
    """As a worker of `moments` does."""
    (budget,) = site.samples.open_budgets().values()
    budget.key("moments")
    budget.advance()
    budget.close()
    return budget


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
@claim("known-exactly", "For samples that never spent before, ε is known exactly.")
def test_counts_and_sums_spend_epsilon_together(tmp_path: Path, share: float) -> None:
    site = Site(tmp_path, write_site(tmp_path), STUDY, **ONCE, dp_encoding_share=share)
    planned = site.samples.planned_noise()
    site.counts()
    of_counts = site.samples.paid_counts[1].noise
    (charge,) = charges_in(tmp_path / "ledger")
    assert charge.steps == 1
    assert 1 / of_counts**2 <= 1 / charge.noise**2 * (1 + 1e-9), "no more is spent than charged"
    of_sums = (budget := tell_sums(site)).noise
    assert planned is not None
    assert site.samples.schedule(1).noises(planned[1].noise) == (of_counts, of_sums)
    both = 1 / of_counts**2 + 1 / of_sums**2
    assert both == pytest.approx(2 / charge.noise**2)
    assert 1 / of_counts**2 == pytest.approx(share * both)
    assert 0.98 * DELTA < delta_of(3.0, sqrt(both)) <= DELTA
    assert budget.spent().epsilon == pytest.approx(3.0, abs=0.01)


def test_the_same_run_tells_the_same_and_another_schema_spends(tmp_path: Path) -> None:
    path, ledger = write_site(tmp_path), tmp_path / "ledger"
    told = Site(tmp_path, path, STUDY, **ONCE).counts()
    stopped = Site(tmp_path, path, STUDY, **ONCE)  # before the sums
    assert [w for w in stopped.warnings() if "; left: 1 step with noise" in w]
    assert torch.equal(stopped.counts(), told)
    tell_sums(stopped)
    with pytest.raises(BadInput, match="have spent"):
        Site(tmp_path, path, WIDER, **ONCE).counts()
    assert [charge.steps for charge in charges_in(ledger)] == [2]
    more = Site(tmp_path, path, WIDER, **ONCE, dp_epsilon=6.0)
    assert [w for w in more.warnings() if "not counted by this schema" in w]
    more.counts()
    assert 5.9 < tell_sums(more).spent().epsilon <= 6


def test_another_schema_between_counts_and_sums_has_a_plan_of_its_own(tmp_path: Path) -> None:
    path = write_site(tmp_path)
    Site(tmp_path, path, STUDY, **ONCE).counts()
    (other := Site(tmp_path, path, WIDER, **ONCE)).counts()
    assert [charge.steps for charge in charges_in(tmp_path / "ledger")] == [1, 1]
    assert tell_sums(other).spent().epsilon <= 3


def test_without_a_bound_each_pair_of_steps_pays_for_counts_and_sums(tmp_path: Path) -> None:
    """No step is taken a second time at the price of the other one."""
    path, given = write_site(tmp_path), {**ONCE, "dp_epsilon": None, "dp_noise": 5.0}
    site = Site(tmp_path, path, STUDY, **given)
    site.counts()
    for taken in (2, 4):  # further sums, of the same counts, take two steps
        assert tell_sums(site).noise == pytest.approx(5 / sqrt(1.6))
        assert [charge.steps for charge in charges_in(tmp_path / "ledger")] == [taken]
    Site(tmp_path, path, WIDER, **given).counts()
    Site(tmp_path, path, Schema(columns=COLUMNS[::-1]), **given).counts()
    assert [charge.steps for charge in charges_in(tmp_path / "ledger")] == [7]


def test_counts_take_half_at_most_where_sums_follow(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"dp_encoding_share.*counts take 0\.5 at most"):
        Site(tmp_path, write_site(tmp_path), STUDY, **ONCE, dp_encoding_share=0.6).counts()


@pytest.mark.parametrize("algorithm", ["moments", "mdgan"])
@claim("shared-noise", "also to counts of tables.")
def test_parts_of_all_sites_make_the_noise_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    def key(own: Ledger, _use: str) -> bytes:
        return sha256(own.folder.parent.name.encode()).digest()

    monkeypatch.setattr(Ledger, "key", key)
    noise, variance = torch.zeros(()), 0.0
    for number in range(1, 5):
        (folder := tmp_path / str(number)).mkdir()
        site = Site(folder, write_site(folder), STUDY, **SHARED, algorithm=algorithm)
        sigma = site.samples.paid_counts[1].noise
        part = sqrt(variance_of_part(sigma, sigma, 4)) / sigma
        kind = site.dataset.kind
        told = site.samples.count_samples({1: part})[1]
        noise = noise + told - kind.noisy_form(site.samples.shards[1].counts())
        variance = sigma**2 * kind.num_histograms
    assert float(noise.square().mean()) == pytest.approx(variance, rel=0.15)


@claim("told-once", "The identical question is free, unless noise is shared.")
def test_a_part_is_told_once_and_paid_for_until_then(tmp_path: Path) -> None:
    path, given = write_site(tmp_path), {**SHARED, "dp_epsilon": 6.0}
    assert Site(tmp_path, path, STUDY, **given).samples.paid_counts  # it ends before it is asked
    site = Site(tmp_path, path, STUDY, **given)
    site.samples.count_samples({1: 0.5})
    assert len(charges_in(tmp_path / "ledger")) == 1
    with pytest.raises(BadInput, match="which is never told again"):
        site.samples.count_samples({1: 0.5})
    again = Site(tmp_path, path, STUDY, **given)
    assert [w for w in again.warnings() if "parts of shared noise are never told again" in w]
    assert again.samples.paid_counts
    assert sum(charge.steps for charge in charges_in(tmp_path / "ledger")) == 2
