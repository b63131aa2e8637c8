"""The audit contradicts workers with a broken mechanism, and does not contradict honest ones."""

import re

import pytest

from benchmarks.audit_power import DELTA, audited, digits
from benchmarks.broken_mechanisms import MECHANISMS
from mdgan.data.shard import Shard
from mdgan.records.audit import Bound
from tests.claims.registry import claim

WORKERS, CANARIES, STEPS = 2, 60, 12


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Shard]:
    pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")
    return digits(tmp_path_factory.mktemp("digits"), WORKERS)


def found(algorithm: str, mechanism: str, epsilon: float, shards: dict[int, Shard]) -> Bound:
    broken = MECHANISMS[algorithm][mechanism]
    return audited(algorithm, broken, epsilon, CANARIES, STEPS, shards)


@pytest.mark.parametrize(
    ("algorithm", "mechanism", "epsilon", "says"),
    [
        ("mdgan", "noise: half", 8.0, r"noise: 0\.(4[5-9]|5\d?) of what is stated \(p < 1e-9\)"),
        ("mdgan", "clip: 3 C", 8.0, r"one adds (2\.9\d?|3(\.0\d)?) times its bound"),
        ("mdgan", "clip: the batch as a whole", 3.0, "samples are not cut as they should be"),
        ("mdgan", "rate: 1.4 times", 1.0, r"batches of 1\.[2-6]\d? times as many samples as "),
        ("moments", "account: half the noise", 3.0, "its noise and its steps have ε = "),
        ("moments", "noise: equal at workers", 3.0, "workers 1 and 2 have the same noise"),
        ("moments", "sums times 3", 1.0, r"a sample adds (2\.9\d?|3(\.0\d)?) C"),
    ],
)
@claim("bound", "and tests whether noise and batches are as stated.")
def test_a_broken_mechanism_is_contradicted_whatever_epsilon_is_stated(
    shards: dict[int, Shard], algorithm: str, mechanism: str, epsilon: float, says: str
) -> None:
    bound = found(algorithm, mechanism, epsilon, shards)
    assert bound.contradicts
    assert re.search(says, str(bound)), bound
    assert bound.at_least > 1e6, "so that a policy refuses it, whatever epsilon it allows"


@pytest.mark.parametrize("algorithm", ["mdgan", "moments"])
@claim(
    "epsilon",
    "What the worker computes from its samples and tells is at most e^ε times as likely or "
    "unlikely as if any one of its units had given nothing, but for a probability δ.",
)
def test_a_mechanism_that_does_as_it_says_is_not(shards: dict[int, Shard], algorithm: str) -> None:
    bound = found(algorithm, "honest", 3.0, shards)
    assert not bound.flaws, bound
    assert not bound.contradicts, bound
    assert bound.noise == pytest.approx(1.0, abs=0.05)
    assert bound.longest == pytest.approx(1.0, abs=0.3)
    assert bound.epsilon <= (bound.ceiling or 0)
    assert bound.delta == DELTA


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 3.0, 8.0])
@pytest.mark.parametrize(
    ("algorithm", "mechanism"),
    [(algorithm, name) for algorithm, named in MECHANISMS.items() for name in named],
)
def test_each_broken_mechanism_is_contradicted(
    shards: dict[int, Shard], algorithm: str, mechanism: str, epsilon: float
) -> None:
    contradicted = sum(
        audited(algorithm, MECHANISMS[algorithm][mechanism], epsilon, 100, 60, shards).contradicts
        for _ in range(2)
    )
    assert contradicted == (0 if mechanism == "honest" else 2)
