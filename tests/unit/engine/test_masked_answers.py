"""A host masks its answers, and refuses help that would reveal more than a sum."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mdgan.engine.host_keys import NotMasked
from mdgan.engine.stages.mask import LOSS_STEPS, MaskedSum, read_masked, read_tensors
from mdgan.engine.stages.mask_server import total_of
from mdgan.gan.exact_sum import FEEDBACK, STEPS_PER_UNIT
from mdgan.messages import Kind, Message
from mdgan.privacy.masks import PRIME, threshold
from tests.claims.registry import claim
from tests.marks import examples
from tests.unit.engine.secure import FORM, RUN, Hosts

ZEROS = torch.zeros(2, 3)


def all_answer(number: int, besides: tuple[int, ...] = (), least: int = 3) -> Hosts:
    hosts = Hosts(number, least)
    for host in hosts.parties:
        if host not in besides:
            hosts.answer(host, torch.full((2, 3), float(host)))
    return hosts


def is_sum_of(total: Tensor | None, hosts: list[int]) -> bool:
    return total is not None and bool((total[:-2] == sum(hosts) * int(STEPS_PER_UNIT)).all())


def test_the_sum_is_that_of_plain_answers_bit_for_bit() -> None:
    hosts, answers = Hosts(4), {host: torch.randn(2, 3) for host in range(1, 5)}
    for host, answer in answers.items():
        message = hosts.answer(host, answer)
        assert message.tensors.keys() == {"masked.0", "shares.0"}
        plain = FEEDBACK.in_steps({1: answer}, {}).flatten()
        assert not (message.tensors["masked.0"][:-2] == plain).any()
    total = hosts.total([1, 2, 3, 4])
    assert total is not None
    assert torch.equal(
        total[:-2].double().view(2, 3) / STEPS_PER_UNIT, FEEDBACK.add_up(answers, {})
    )
    assert (total[-2:] / LOSS_STEPS).tolist() == [2.0, 10.0]


@settings(max_examples=examples(12), deadline=None)
@given(st.data())
@claim("opens-sums-alone", "A sum is of t = ⌊2n/3⌋ + 1 of its n hosts or more, at least three")
def test_whoever_drops_out_and_when_the_sum_is_that_of_the_survivors(data: st.DataObject) -> None:
    """Or there is none, where fewer than t are left."""
    number = data.draw(st.integers(3, 7))
    hosts = Hosts(number)

    def left_of(some: list[int]) -> list[int]:
        gone = data.draw(st.sets(st.sampled_from(hosts.parties)))
        return [host for host in some if host not in gone]

    survivors = left_of(hosts.parties)
    values = {h: data.draw(st.integers(-(2**62), 2**62)) for h in survivors}
    for host in survivors:
        message = hosts.answer(host, ZEROS)
        # The answer itself is below 8 units; modulo 2^64 any number cancels alike.
        masked = message.tensors["masked.0"] + values[host]
        hosts.sent[host] = MaskedSum(masked, message.tensors["shares.0"])
    needed = threshold(number)
    if len(survivors) < needed:
        for host in survivors:
            with pytest.raises(NotMasked, match=f"unmask a sum of {len(survivors)} of {number}"):
                hosts.confirm(host, survivors)
        return
    confirming = left_of(survivors)
    revealing = left_of(confirming)
    total = hosts.total(survivors, confirming, revealing)
    assert (total is not None) == (len(revealing) >= needed)
    if total is not None:
        wrapped = (sum(values.values()) + 2**63) % 2**64 - 2**63
        assert (total[:-2] == wrapped).all()


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"parties": {"0": [1, 2]}}, "a sum of 2 hosts"),
        ({"parties": {"0": [1, 2, 2]}}, "names a host twice"),
        ({"parties": {"0": [1, 2, 9]}}, "no key of host 9"),
        ({"parties": {"0": [2, 3, 4]}}, "this host's part of a sum of others"),
        ({"number": -1}, "does not say whose sums"),
        ({"number": 1 << 48}, "does not say whose sums"),
        ({"parties": [1, 2, 3]}, "does not say whose sums"),
        ({"parties": {"x": [1, 2, 3]}}, "does not say whose sums"),
    ],
)
@claim("what-is-answered", "a host answers only a question that names at least three hosts")
def test_a_question_that_would_tell_more_than_a_sum_is_not_answered(
    changed: dict[str, Any], why: str
) -> None:
    hosts = Hosts(4)
    with pytest.raises(NotMasked, match=why):
        hosts.answer(1, ZEROS, hosts.question(**changed))


def test_no_question_is_answered_twice_and_a_new_link_has_a_new_key() -> None:
    hosts = Hosts(4)
    hosts.answer(1, ZEROS)
    with pytest.raises(NotMasked, match="a second time"):
        hosts.answer(1, ZEROS)
    before = hosts.keys[1]["key"]
    assert hosts.masks[1].begin(RUN)["key"] != before


@claim("no-same-answer-twice", "Clients that would answer exactly the same refuse")
def test_an_answer_that_would_be_the_same_is_not_given_for_a_second_sum() -> None:
    """The server leaves a host out the second time; the difference would be what it answers."""
    hosts = Hosts(5, repeats=True)
    for number in (1, 2):  # there was no sum of the first
        for host in hosts.parties:
            hosts.answer(host, ZEROS, hosts.question(number))
    for host in hosts.parties:
        hosts.reveal(host, hosts.parties, number=2)
    with pytest.raises(NotMasked, match="asks for iteration 5 again, of which it may have a sum"):
        hosts.answer(1, ZEROS, hosts.question(3, parties={"0": [1, 2, 3, 4]}))
    for run in (RUN, b"another generation"):  # nor does a new link change anything
        hosts.masks[1].begin(run)
        with pytest.raises(NotMasked, match="asks for iteration 5 again"):
            hosts.answer(1, ZEROS, hosts.question(3))


@claim("no-same-answer-twice", "Clients that would answer exactly the same refuse")
def test_who_tells_one_sum_is_in_no_second_one_of_a_later_iteration() -> None:
    """It would answer the same: without one host the second time, the difference is its answer."""
    hosts = Hosts(5, tells_once=True)
    for host in hosts.parties:
        hosts.answer(host, ZEROS)
    for host in hosts.parties:
        hosts.reveal(host, hosts.parties)
    later = hosts.question(2, parties={"0": [1, 2, 3, 4]}, iteration=6)
    with pytest.raises(NotMasked, match="asks for iteration 6 again, of which it may have a sum"):
        hosts.answer(1, ZEROS, later)


@claim("what-is-answered", "at least three hosts, or N with --require 'secure-aggregation>=N'")
@claim("spoiler-found", "never of fewer than three hosts, or than each of their hosts insists on")
def test_a_host_that_insists_on_five_takes_part_in_no_sum_of_four() -> None:
    with pytest.raises(NotMasked, match=r"sum of 4 hosts' answers, and .* of 5 or more"):
        all_answer(4, least=5)
    hosts = all_answer(6, least=6)
    with pytest.raises(NotMasked, match="of 5 of 6 hosts, and this host helps with 6 or more"):
        hosts.confirm(1, [1, 2, 3, 4, 5])
    assert is_sum_of(all_answer(6, least=6).total([1, 2, 3, 4, 5, 6]), [1, 2, 3, 4, 5, 6])


def test_a_false_drop_out_gives_the_sum_of_the_others_alone() -> None:
    """The server has host 4's answer, and says that it has dropped out."""
    hosts = all_answer(6)
    others, everyone = [1, 2, 3, 5, 6], hosts.parties
    codes = {host: hosts.confirm(host, others) for host in others}
    shares = {host: hosts.reveal(host, others, codes) for host in others}
    answered = {host: hosts.sent[host].total for host in everyone}
    true = total_of(everyone, {h: answered[h] for h in others}, shares)
    assert is_sum_of(true, others)
    for host in others:  # no further question about that sum is answered
        with pytest.raises(NotMasked, match="or a 2nd time"):
            hosts.reveal(host, everyone)
    # Host 4 alone believes that all have survived: there is one share of what hides its answer.
    of_all = {4: hosts.reveal(4, everyone)}
    assert total_of(everyone, answered, of_all) is None


Ask = Callable[[Hosts], Any]


def two_lists(hosts: Hosts) -> None:
    hosts.confirm(1, [1, 2, 3, 4, 5, 6])
    hosts.confirm(1, [1, 2, 3, 4, 5, 7])


def another_list_after_confirming(hosts: Hosts) -> None:
    hosts.confirm(1, [1, 2, 3, 4, 5, 6])
    hosts.reveal(1, hosts.parties)


def missing_shares(hosts: Hosts) -> None:
    order = hosts.order(Kind.UNMASK, 1, hosts.parties)
    hosts.masks[1].reveal(Message(order.kind, 5, order.fields))


def an_earlier_question(hosts: Hosts) -> None:
    hosts.answer(1, ZEROS, hosts.question(2))
    hosts.reveal(1, hosts.parties)


@pytest.mark.parametrize(
    ("ask", "why"),
    [
        (two_lists, "two lists of survivors of one sum"),
        (another_list_after_confirming, "two lists of survivors of one sum"),
        (missing_shares, "passes on no shares of the survivors"),
        (an_earlier_question, "unmask question 1, and not the last one"),
        (lambda hosts: hosts.confirm(1, [1, 2, 3, 4]), "of 4 of 7 hosts"),
        (lambda hosts: hosts.confirm(1, [2, 3, 4, 5, 6]), "a sum without it"),
        (lambda hosts: hosts.confirm(1, [1, 2, 2, 3, 4, 5]), "were not asked, or one twice"),
        (lambda hosts: hosts.confirm(1, [5, 4, 3, 2, 1]), "were not asked, or one twice"),
    ],
)
@claim("what-is-answered", "a host answers only a question that names at least three hosts")
def test_what_is_inconsistent_is_refused(ask: Ask, why: str) -> None:
    with pytest.raises(NotMasked, match=why):
        ask(all_answer(7))


def different_lists_to_different_hosts(hosts: Hosts) -> Any:
    """Each of two lists has four hosts that confirm it."""
    codes = {h: hosts.confirm(h, [1, 2, 3, 4, 5, 6]) for h in (1, 2, 3, 4)}
    codes |= {h: hosts.confirm(h, [1, 2, 3, 4, 5, 7]) for h in (5, 7)}
    return hosts.reveal(1, [1, 2, 3, 4, 5, 6], codes)


def codes_for_other_hosts(hosts: Hosts) -> Any:
    survivors = [1, 2, 3, 4, 5, 6]
    codes = {h: hosts.confirm(h, survivors) for h in survivors}
    swapped = {h: {1: codes[h][2 if h != 2 else 3]} for h in survivors if h != 1}
    return hosts.reveal(1, survivors, swapped)


def a_drop_out_that_no_host_confirms(hosts: Hosts) -> Any:
    return hosts.reveal(1, [1, 2, 3, 4, 5, 6], {})


@pytest.mark.parametrize(
    ("ask", "confirm"),
    [
        (different_lists_to_different_hosts, 4),
        (codes_for_other_hosts, 1),
        (a_drop_out_that_no_host_confirms, 0),
    ],
)
def test_what_too_few_hosts_confirm_is_not_unmasked_and_no_host_ends(
    ask: Ask, confirm: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Hosts may have crashed since; the next question is answered, this one's sum is over."""
    hosts = all_answer(7)
    assert ask(hosts) is None
    assert f"{confirm} of 5 hosts that it takes confirm that to this one" in caplog.text
    with pytest.raises(NotMasked, match="or a 2nd time"):
        hosts.reveal(1, hosts.parties)
    for host in hosts.parties:
        hosts.answer(host, ZEROS, hosts.question(2))
    assert hosts.reveal(1, hosts.parties, number=2) is not None


@pytest.mark.parametrize(
    ("parties", "about"), [([5, 4, 3, 2, 1], b""), ([1, 2, 3, 4, 5], b"another batch")]
)
@claim("what-is-answered", "Hosts that were asked different things cannot unmask each other.")
def test_hosts_that_were_asked_something_else_do_not_unmask_each_other(
    parties: list[int], about: bytes
) -> None:
    hosts = all_answer(5, besides=(2,))
    hosts.answer(2, ZEROS, hosts.question(parties={"0": parties}), about=about)
    for host in (1, 3, 4, 5):
        revealed = hosts.reveal(host, hosts.parties)
        assert [bool((row < PRIME).all()) for row in revealed] == [n != 2 for n in hosts.parties]


def test_shares_of_an_earlier_sum_are_of_no_use_in_another() -> None:
    hosts = all_answer(4)
    earlier = dict(hosts.sent)
    for host in hosts.parties:
        hosts.answer(host, ZEROS, hosts.question(2))
    hosts.sent = earlier
    revealed = hosts.reveal(1, hosts.parties, number=2)
    assert (revealed[1:] >= PRIME).all()


def test_a_host_whose_shares_were_altered_may_cost_the_sum_and_no_other_host() -> None:
    for number, is_there in ((4, True), (3, False)):
        hosts = all_answer(number)
        hosts.sent[2].shares[0, 40] ^= 1
        total = hosts.total(hosts.parties)
        assert (total is not None) == is_there
        assert not is_there or is_sum_of(total, hosts.parties)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 8.0, -1e30])
def test_a_host_abstains_if_its_answer_cannot_be_added_up(value: float) -> None:
    hosts = Hosts(4)
    message = hosts.answer(1, torch.full((2, 3), value))
    assert not message.tensors
    with pytest.raises(ValueError, match="NaN or Inf, or a value too large"):
        read_masked(message, FORM, {0: hosts.parties})


GOOD = {
    "masked.0": torch.zeros(8, dtype=torch.int64),
    "shares.0": torch.zeros(2, 3 * 32 + 28, dtype=torch.uint8),
}


@pytest.mark.parametrize(
    "changed",
    [
        {"masked.0": torch.zeros(7, dtype=torch.int64)},
        {"masked.0": torch.zeros(8)},
        {"shares.0": torch.zeros(2, 3, dtype=torch.uint8)},
        {"masked.x": torch.zeros(8, dtype=torch.int64)},
        {"answers.0": torch.zeros(8, dtype=torch.int64)},
        {"masked." + "9" * 5000: torch.zeros(8, dtype=torch.int64)},
    ],
)
def test_the_server_reads_nothing_malformed(changed: dict[str, Tensor]) -> None:
    read_masked(Message("FEEDBACK", 5, {"abstains": False}, GOOD), FORM, {0: [1, 2, 3]})
    with pytest.raises(ValueError, match=r".*"):
        read_masked(
            Message("FEEDBACK", 5, {"abstains": False}, GOOD | changed), FORM, {0: [1, 2, 3]}
        )


@pytest.mark.parametrize(
    "wrong", [torch.zeros(2, 32), torch.zeros(3, 32, dtype=torch.uint8), torch.zeros(0)]
)
def test_the_server_reads_no_codes_or_shares_of_another_shape_or_type(wrong: Tensor) -> None:
    message = Message("FEEDBACK", 5, {}, {"codes.0": wrong})
    with pytest.raises(ValueError, match=r"not torch\.uint8 \[2, 32\]"):
        read_tensors(message, "codes", {0: (2, 32)}, torch.uint8)
    assert not read_tensors(message, "codes", {1: (2, 32)}, torch.uint8)
