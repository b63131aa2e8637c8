"""The samples that each scheme of `--partition` gives to each worker."""

from collections import Counter
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from mdgan.data.partition import partition
from mdgan.data.settings import parse_partition
from mdgan.errors import BadInput

quick = settings(deadline=None, max_examples=40)
seeds = st.integers(0, 2**63 - 1)
schemes = st.sampled_from(["iid", "sorted"]) | st.one_of(
    st.integers(1, 4).map(lambda k: f"shards:{k}"),
    st.integers(1, 4).map(lambda k: f"classes:{k}"),
    st.floats(0.01, 100).map(lambda alpha: f"dirichlet:{alpha}"),
    st.tuples(st.integers(1, 6), st.integers(1, 40)).map(lambda m: f"fegan:{m[0]},{m[1]}"),
)


class Case(NamedTuple):
    """Labels in random order, for a number of workers."""

    labels: Tensor
    num_workers: int

    def class_sizes(self, part: Tensor | None = None) -> Counter[int]:
        """The number of samples of each class that occurs, in all data or in one part."""
        return Counter((self.labels if part is None else self.labels[part]).tolist())


@st.composite
def cases(draw: st.DrawFn, most_workers: int = 8) -> Case:
    """Any data set with at least as many samples as workers; some class numbers do not occur."""
    labels = draw(st.lists(st.sampled_from([0, 1, 2, 4, 7]), min_size=1, max_size=60))
    return Case(torch.tensor(labels), draw(st.integers(1, min(most_workers, len(labels)))))


@st.composite
def ample_cases(draw: st.DrawFn) -> Case:
    """Every class has at least one sample for each worker."""
    num_workers = draw(st.integers(1, 6))
    enough = st.integers(num_workers, num_workers + 9)
    sizes = draw(st.dictionaries(st.integers(0, 12), enough, min_size=1))
    labels = torch.tensor([label for label, size in sizes.items() for _ in range(size)])
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(draw(seeds)))
    return Case(labels[order], num_workers)


def divide(case: Case, scheme: str, seed: int) -> list[Tensor]:
    return partition(case.labels, parse_partition(scheme), case.num_workers, seed)


def outcome(case: Case, scheme: str, seed: int) -> list[list[int]] | str:
    """What each worker holds, or the refusal."""
    try:
        return [part.tolist() for part in divide(case, scheme, seed)]
    except BadInput as error:
        return str(error)


def assert_exact_cover(case: Case, parts: list[Tensor]) -> None:
    assert torch.cat(parts).sort().values.tolist() == list(range(len(case.labels)))


@quick
@given(cases(), schemes, seeds)
def test_parts_depend_on_labels_workers_and_seed_and_none_is_empty(
    case: Case, scheme: str, seed: int
) -> None:
    labels = case.labels.clone()
    torch_state = torch.get_rng_state()
    numpy_state = np.random.get_state(legacy=False)["state"]["key"].copy()
    first = outcome(case, scheme, seed)
    assert outcome(Case(labels.clone(), case.num_workers), scheme, seed) == first
    assert torch.equal(case.labels, labels)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert np.array_equal(np.random.get_state(legacy=False)["state"]["key"], numpy_state)
    if isinstance(first, str):
        assert len(first.splitlines()) == 1
        assert f"--partition {scheme}" in first
        return
    assert len(first) == case.num_workers
    for part in first:
        assert part
        assert part == sorted(set(part))
        assert 0 <= part[0] <= part[-1] < len(labels)


@quick
@given(cases(), st.sampled_from(["iid", "sorted"]), seeds)
def test_iid_and_sorted_give_equal_sizes(case: Case, scheme: str, seed: int) -> None:
    parts = divide(case, scheme, seed)
    assert_exact_cover(case, parts)
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    if scheme == "sorted":
        for part, following in pairwise(parts):
            assert case.labels[part].max() <= case.labels[following].min()


def test_iid_and_sorted_are_drawn_anew_for_another_seed() -> None:
    case = Case(torch.arange(100) % 4, 5)
    for scheme in ("iid", "sorted"):
        assert outcome(case, scheme, 0) != outcome(case, scheme, 1)
    assert outcome(case, "iid", 0) != [
        list(range(start, start + 20)) for start in range(0, 100, 20)
    ]


@quick
@given(cases(), st.floats(0.05, 50), seeds)
def test_dirichlet_covers_exactly(case: Case, alpha: float, seed: int) -> None:
    held = outcome(case, f"dirichlet:{alpha}", seed)
    assume(not isinstance(held, str))
    assert_exact_cover(case, [torch.tensor(part) for part in held])


def test_dirichlet_is_skewed_by_a_small_alpha_and_even_for_a_large_one() -> None:
    case = Case(torch.arange(4000) % 10, 4)
    largest_share = {}
    for alpha in (0.05, 1000.0):
        parts = divide(case, f"dirichlet:{alpha}", 0)
        counts = torch.stack([torch.bincount(case.labels[part], minlength=10) for part in parts])
        largest_share[alpha] = (counts.max(0).values / counts.sum(0)).mean()
    assert largest_share[0.05] > 0.75
    assert largest_share[1000.0] < 0.3
    for extreme in ("1e-300", "1e-12", "1e300"):
        two = Case(torch.arange(400) % 10, 2)
        assert_exact_cover(two, divide(two, f"dirichlet:{extreme}", 0))


@quick
@given(cases(), st.integers(1, 4), seeds)
def test_shards_cover_exactly_with_few_classes_each(case: Case, k: int, seed: int) -> None:
    num_pieces = case.num_workers * k
    assume(num_pieces <= len(case.labels))
    parts = divide(case, f"shards:{k}", seed)
    assert_exact_cover(case, parts)
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= k  # K pieces, each of equal size ± 1
    # Between C classes lie C − 1 borders; each adds at most one class to the piece it cuts.
    most_extra = len(case.class_sizes()) - 1
    num_classes = [len(case.class_sizes(part)) for part in parts]
    assert max(num_classes) <= k + most_extra
    assert sum(num_classes) <= num_pieces + most_extra


@quick
@given(ample_cases(), st.integers(1, 5), seeds)
def test_classes_gives_exactly_k_classes(case: Case, k: int, seed: int) -> None:
    num_classes = len(case.class_sizes())
    assume(k <= num_classes)
    parts = divide(case, f"classes:{k}", seed)
    held = [set(case.class_sizes(part)) for part in parts]
    assert [len(classes) for classes in held] == [k] * case.num_workers
    together = torch.cat(parts).tolist()
    assert len(set(together)) == len(together)
    if case.num_workers * k >= num_classes:
        assert_exact_cover(case, parts)
    else:
        assert len(set().union(*held)) == case.num_workers * k
    holders = {label: sum(label in classes for classes in held) for label in case.class_sizes()}
    assert max(holders.values()) - min(holders.values()) <= 1
    for label, num_holders in holders.items():
        shares = [case.class_sizes(part)[label] for part in parts if label in case.labels[part]]
        assert len(shares) == num_holders
        assert not shares or max(shares) - min(shares) <= 1


def test_fegan_reaches_both_ends_of_its_ranges() -> None:
    case = Case(torch.arange(800) % 8, 3)
    num_classes: list[set[int]] = [set(), set(), set()]
    num_samples: list[set[int]] = [set(), set(), set()]
    for seed in range(100):
        for worker, part in enumerate(divide(case, "fegan:6,15", seed)):
            r_s = case.class_sizes(part)
            num_classes[worker].add(len(r_s))
            num_samples[worker] |= set(r_s.values())
    # max_class·i/n = 2, 4, 6; min(i², max_samples·i/n) = min(1, 5), min(4, 10), min(9, 15)
    assert num_classes == [set(range(1, most + 1)) for most in (2, 4, 6)]
    assert num_samples == [set(range(1, most + 1)) for most in (1, 4, 9)]


@pytest.mark.parametrize("scheme", ["iid", "sorted", "shards:2", "dirichlet:1", "classes:1"])
def test_more_workers_than_samples(scheme: str) -> None:
    with pytest.raises(BadInput, match="4 workers but only 3 samples"):
        partition(torch.tensor([0, 1, 2]), parse_partition(scheme), 4, 0)


def test_more_classes_than_there_are() -> None:
    with pytest.raises(BadInput, match="classes:4: the data has only 3 classes"):
        partition(torch.tensor([0, 5, 9] * 10), parse_partition("classes:4"), 2, 0)


@pytest.mark.parametrize(
    ("labels", "scheme", "num_workers"),
    [
        ([0, 0, 0, 1], "classes:1", 4),  # two workers share the only sample of class 1
        ([0] * 9, "dirichlet:0.0001", 3),  # one worker gets the only class whole
        ([0, 1, 2], "shards:50", 3),  # 147 of 150 pieces are empty
    ],
)
def test_a_worker_that_would_hold_nothing(labels: list[int], scheme: str, num_workers: int) -> None:
    refusals = [outcome(Case(torch.tensor(labels), num_workers), scheme, seed) for seed in range(9)]
    texts = [refusal for refusal in refusals if isinstance(refusal, str)]
    assert texts
    for text in texts:
        assert f"--partition {scheme}: worker" in text
        assert f"of {num_workers} would hold no sample" in text
