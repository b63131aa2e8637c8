"""A weighted sum hides what each host has put into it, or a host has no part in it."""

import pytest

from mdgan.engine.host_keys import NotMasked
from mdgan.families.federated.averaging import check_weights

OF_EACH = {1: [1, 2], 3: [3], 4: [4], 5: [5], 6: [6], 7: [7]}


def even(**changed: float) -> dict[int, float]:
    return dict.fromkeys(range(1, 8), 1.0) | {int(name[1:]): w for name, w in changed.items()}


def test_weights_that_differ_a_little_will_do() -> None:
    check_weights(3, even(), OF_EACH, 3, uniform=True)
    check_weights(3, even(w3=1.9), OF_EACH, 3, uniform=False)
    check_weights(1, {1: 0.34, 2: 0.33, 3: 0.33}, {1: [1], 2: [2], 3: [3]}, 3, uniform=False)
    check_weights(
        1, dict.fromkeys(range(1, 6), 0.2), {n: [n] for n in range(1, 6)}, 5, uniform=True
    )


@pytest.mark.parametrize(
    ("weights", "least", "why"),
    [
        (even(w3=1.01), 3, None),
        (even(w3=100.0), 3, "rank 3 has 96% of the weight of a sum"),
        (even(w3=5.0), 3, "rank 3 has 56% of the weight of a sum"),
        (even(w3=2.0), 5, "insists on 5 hosts gives less than 25%"),
        # Those with all weight but this host's may drop out.
        (even(w1=0.0, w2=0.0, w4=0.0, w5=0.0, w6=0.0), 3, "rank 3 has 100% of the weight"),
        (dict.fromkeys(range(1, 8), 0.0), 3, "rank 3 has 0% of the weight"),
        (even(w3=float("nan")), 3, "weights that are none"),
        (even(w4=-1.0), 3, "weights that are none"),
        (even(w99=9.0), 3, "to workers that no host of the sum has"),
    ],
)
def test_a_sum_of_one_workers_answer_is_refused(
    weights: dict[int, float], least: int, why: str | None
) -> None:
    if why is None:
        check_weights(3, weights, OF_EACH, least, uniform=False)
        why = "it gives workers different weights"
        with pytest.raises(NotMasked, match=why):
            check_weights(3, weights, OF_EACH, least, uniform=True)
        return
    with pytest.raises(NotMasked, match=why):
        check_weights(3, weights, OF_EACH, least, uniform=False)
