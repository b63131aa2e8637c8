import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mdgan import messages
from mdgan.messages import Kind
from tests.marks import examples

quick = settings(deadline=None, max_examples=examples(24))


def test_a_stop_says_why() -> None:
    message = messages.stop(40, "the user asked")
    assert (message.kind, message.iteration) == (Kind.STOP, 40)
    assert message.fields == {"reason": "the user asked", "shut_out": False, "said": ""}
    assert messages.stop(40, "a liar", shut_out=True).fields["shut_out"]


def test_a_host_says_which_of_its_workers_can_go_on() -> None:
    message = messages.ready(7, (3, 5))
    assert (message.kind, message.iteration) == (Kind.READY, 7)
    assert message.fields == {"holds": [3, 5], "told": {}}
    assert messages.ready(7, (3,), {"speed": 2}).fields == {"holds": [3], "told": {"speed": 2}}


def test_a_copy_is_asked_for_a_host() -> None:
    message = messages.copy(7, 3, 9)
    assert (message.kind, message.iteration) == (Kind.COPY, 7)
    assert message.fields == {"worker": 3, "taker": 9}


def test_leaving_is_a_word() -> None:
    message = messages.leave(7)
    assert (message.kind, message.iteration, dict(message.fields)) == (Kind.LEAVE, 7, {})


def test_a_checkpoint_is_ordered_and_reported() -> None:
    order = messages.checkpoint(20, [10], to_server=False)
    assert (order.kind, order.iteration) == (Kind.CHECKPOINT, 20)
    assert order.fields == {"kept": [10], "to_server": False}
    record = {"name": "worker-0003.safetensors", "sha256": "0" * 64, "num_bytes": 9}
    report = messages.checkpointed(20, {3: record}, "disk full")
    assert (report.kind, report.iteration) == (Kind.CHECKPOINTED, 20)
    assert report.fields == {"files": {"3": record}, "reason": "disk full"}


states = st.dictionaries(
    st.integers(1, 99),
    st.dictionaries(
        st.text(min_size=1, max_size=5), st.builds(torch.zeros, st.just(2)), min_size=1, max_size=3
    ),
)


@quick
@given(states, st.sampled_from(["copy", "checkpoint", "leave"]))
def test_states_come_back_by_worker(
    given_states: dict[int, dict[str, torch.Tensor]], purpose: str
) -> None:
    state = messages.state(3, given_states, purpose, taker=7)
    assert state.fields == {"purpose": purpose, "taker": 7}
    adopt = messages.adopt(3, given_states)
    for message in (state, adopt):
        result = messages.by_worker(message)
        assert result.keys() == given_states.keys()
        for worker, tensors in given_states.items():
            assert result[worker].keys() == tensors.keys()
            assert all(result[worker][name] is tensor for name, tensor in tensors.items())


@pytest.mark.parametrize("name", ["weight", "x/weight", "/weight", ""])
def test_a_state_of_no_worker_is_refused(name: str) -> None:
    message = messages.Message(Kind.STATE, 3, {}, {name: torch.zeros(1)})
    with pytest.raises(ValueError, match="invalid literal"):
        messages.by_worker(message)


def test_the_state_of_one_worker_is_not_that_of_another() -> None:
    message = messages.adopt(3, {1: {"w": torch.zeros(1)}, 11: {"w": torch.ones(1)}})
    assert messages.by_worker(message)[1]["w"].item() == 0
    assert messages.by_worker(message)[11]["w"].item() == 1


def test_the_names_of_the_kinds_are_part_of_the_wire_format() -> None:
    assert {kind.value for kind in Kind} == {
        *("HELLO", "WELCOME", "LAIDOUT"),
        *("READY", "COPY", "STATE", "ADOPT", "LEAVE", "STOP", "SPANS", "SPENT"),
        *("KEYS", "SURVIVORS", "UNMASK"),
        *("ASKCOUNTS", "COUNTS", "LEARNT", "ATTEST"),
        *("CHECKPOINT", "CHECKPOINTED", "EXTRACTOR", "REAL", "GENERATOR", "SCORES"),
    }
