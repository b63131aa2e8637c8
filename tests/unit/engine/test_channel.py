import threading
from collections.abc import Iterator
from multiprocessing import Pipe

import pytest
import torch

from mdgan import messages
from mdgan.engine.channel import Channel, ChannelClosed
from mdgan.messages import Kind, Message
from mdgan.transport.until import Inbox
from tests.unit.transport.networks import LONG


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    first, second = Pipe()
    yield Channel(first), Channel(second)
    for connection in (first, second):
        connection.close()


def test_messages_arrive_whole_and_in_order(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    for i in range(3):
        here.send(Message(Kind.GENERATOR, i, {"seconds": 0.5}, {"w": torch.arange(5) + i}))
    for i in range(3):
        message = there.receive(LONG)
        assert message is not None
        assert (message.kind, message.iteration, message.fields) == (
            *(Kind.GENERATOR, i, {"seconds": 0.5}),
        )
        assert message.tensors["w"].tolist() == [i, i + 1, i + 2, i + 3, i + 4]
    assert there.receive(0) is None


def test_the_other_end_is_closed(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    here.send(messages.stop(1, "last words"))
    here.close()
    message = there.receive(LONG)
    assert message is not None
    assert message.fields["reason"] == "last words"
    with pytest.raises(ChannelClosed):
        there.receive(LONG)
    with pytest.raises(ChannelClosed):
        there.send(messages.stop(1, ""))
    with pytest.raises(ChannelClosed):
        here.receive(LONG)


def test_a_sender_does_not_wait_for_a_busy_reader(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    inbox: Inbox[Message] = Inbox()
    ended = threading.Event()
    there.read_all(inbox.put, ended.set)
    large = {"w": torch.zeros(1 << 18)}  # far more than a pipe holds
    for i in range(8):
        here.send(Message(Kind.GENERATOR, i, {}, large))
    taken = [inbox.take(60.0) for _ in range(8)]
    assert [message and message.iteration for message in taken] == [*range(8)]
    assert inbox.take(0.1) is None
    assert not ended.is_set()
    here.close()
    assert ended.wait(10)
