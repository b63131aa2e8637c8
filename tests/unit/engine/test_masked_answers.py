"""A host masks what it answers, and answers no question that would tell more than a sum."""

from typing import Any

import pytest
import torch
from torch import Tensor

from mdgan.engine.answers import AnswerForm
from mdgan.engine.masked_answers import LOSS_STEPS, MaskedAnswers, NotMasked, read_masked
from mdgan.engine.pairwise_masks import unmasked
from mdgan.gan.exact_sum import MOST_EXACT, STEPS_PER_UNIT, summed, summed_in_steps
from mdgan.messages import Message

FORM = AnswerForm("FEEDBACK", (2, 3), steps=STEPS_PER_UNIT, most=MOST_EXACT)


class Hosts:
    """Hosts 1, 2, 3, … with a worker each."""

    def __init__(self, number: int) -> None:
        self.masks = {host: MaskedAnswers(host, FORM) for host in range(1, number + 1)}
        self.keys = {str(host): masks.begin() for host, masks in self.masks.items()}

    def question(self, number: int = 1, **changed: Any) -> Message:
        sums = {"number": number, "parties": {"0": list(self.masks)}, "keys": self.keys}
        return Message("BATCHES", 5, {"sums": {**sums, **changed}})

    def answer(self, host: int, answer: Tensor, question: Message | None = None) -> Message:
        return self.masks[host].pack(
            question or self.question(),
            {host: answer},
            {host: torch.tensor([0.5, float(host)])},
            {host: 0},
            lambda own: summed_in_steps(own.values()),
        )


def test_the_sum_is_that_of_plain_answers_bit_for_bit() -> None:
    hosts, answers = Hosts(4), {host: torch.randn(2, 3) for host in range(1, 5)}
    sent = {host: hosts.answer(host, answer) for host, answer in answers.items()}
    total = unmasked({host: read_masked(message, FORM)[0] for host, message in sent.items()})
    assert torch.equal(total[:-2].double().view(2, 3) / STEPS_PER_UNIT, summed(answers.values()))
    assert (total[-2:] / LOSS_STEPS).tolist() == [2.0, 10.0]
    for host, message in sent.items():
        assert message.tensors.keys() == {"masked.0"}
        plain = summed_in_steps([answers[host]]).flatten()
        assert not (message.tensors["masked.0"][:-2] == plain).any()


def test_those_that_are_left_send_the_same_with_new_masks() -> None:
    hosts, answers = Hosts(4), {host: torch.randn(2, 3) for host in range(1, 5)}
    first = {host: hosts.answer(host, answer) for host, answer in answers.items()}
    left = hosts.question(2, parties={"0": [1, 2, 4]})
    again = {host: hosts.masks[host].again(left) for host in (1, 2, 4)}
    total = unmasked({host: read_masked(message, FORM)[0] for host, message in again.items()})
    wanted = summed(answers[host] for host in (1, 2, 4))
    assert torch.equal(total[:-2].double().view(2, 3) / STEPS_PER_UNIT, wanted)
    for host, message in again.items():
        assert not (message.tensors["masked.0"] == first[host].tensors["masked.0"]).any()


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"parties": {"0": [1, 2]}}, "a sum of 2 hosts"),
        ({"parties": {"0": [1, 2, 2]}}, "names a host twice"),
        ({"parties": {"0": [1, 2, 9]}}, "no key"),
        ({"parties": {"0": [2, 3, 4]}}, "has not this host's key"),
        ({"keys": {"1": "x", "2": "y", "3": "z", "4": "w"}}, "has not this host's key"),
        ({"keys": {}}, "no key"),
        ({"number": -1}, "does not say whose sums"),
        ({"number": 1 << 48}, "does not say whose sums"),
        ({"parties": [1, 2, 3]}, "does not say whose sums"),
        ({"parties": {"x": [1, 2, 3]}}, "does not say whose sums"),
    ],
)
def test_a_question_that_would_tell_more_than_a_sum_is_not_answered(
    changed: dict[str, Any], why: str
) -> None:
    hosts = Hosts(4)
    with pytest.raises(NotMasked, match=why):
        hosts.answer(1, torch.zeros(2, 3), hosts.question(**changed))


def test_one_key_for_two_hosts_is_refused() -> None:
    hosts = Hosts(4)
    hosts.keys["3"] = hosts.keys["2"]
    with pytest.raises(NotMasked, match="same key of two"):
        hosts.answer(1, torch.zeros(2, 3))


def test_what_is_no_key_is_refused() -> None:
    hosts = Hosts(4)
    hosts.keys["3"] = "not in hexadecimal"
    with pytest.raises(NotMasked, match="a key that is none"):
        hosts.answer(1, torch.zeros(2, 3))


def test_no_sum_is_answered_twice_and_a_new_link_has_a_new_key() -> None:
    hosts = Hosts(4)
    hosts.answer(1, torch.zeros(2, 3))
    with pytest.raises(NotMasked, match="a second time"):
        hosts.answer(1, torch.zeros(2, 3))
    before = hosts.keys["1"]
    assert hosts.masks[1].begin() != before


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 8.0, -1e30])
def test_a_host_abstains_if_its_answer_cannot_be_added_up(value: float) -> None:
    message = Hosts(4).answer(1, torch.full((2, 3), value))
    assert not message.tensors
    with pytest.raises(ValueError, match="NaN or Inf, or a value too large"):
        read_masked(message, FORM)


@pytest.mark.parametrize(
    "tensors",
    [
        {"masked.0": torch.zeros(7, dtype=torch.int64)},
        {"masked.0": torch.zeros(8)},
        {"masked.x": torch.zeros(8, dtype=torch.int64)},
        {"answers.0": torch.zeros(8, dtype=torch.int64)},
        {"masked." + "9" * 5000: torch.zeros(8, dtype=torch.int64)},
    ],
)
def test_the_server_reads_nothing_malformed(tensors: dict[str, Tensor]) -> None:
    with pytest.raises(ValueError, match=r".*"):
        read_masked(Message("FEEDBACK", 5, {"abstains": False}, tensors), FORM)
