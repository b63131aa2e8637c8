import os
import signal
import socket
import threading
import time
from functools import partial

import psutil
import pytest
import torch
from mdgan.transport.link import Link, LinkBroken, Pulses
from mdgan.transport.wire import WireError

from mdgan import messages
from mdgan.errors import Interrupted
from mdgan.messages import Kind, Message
from mdgan.transport import wire
from mdgan.transport.until import Until
from tests.processes import wait_until
from tests.unit.transport.networks import ACCEPTS, KINDS, LONG, in_threads, note, value_of
from tests.unit.transport.sockets import announce, connected, in_child, linked, raw

LARGE = 4 << 20
"""Elements of a tensor that no connection's buffers hold."""
PATIENCE = 2.0
"""Seconds of silence for which no process is kept waiting by others, however busy the machine."""


def read_all(connection: socket.socket, num_bytes: int) -> bytes:
    """So many bytes, or fewer if the other end says that there are no more."""
    connection.settimeout(LONG)
    content = b""
    while len(content) < num_bytes and (piece := connection.recv(num_bytes - len(content))):
        content += piece
    return content


def test_the_bytes_sent_are_those_of_the_frame_format() -> None:
    with linked() as (link, other):
        sent = note(3, 2.5, text="x")
        assert link.send(sent) == len(raw(sent))
        assert read_all(other, len(raw(sent))) == raw(sent)


def test_messages_are_received_whole_however_they_are_cut() -> None:
    content = raw(note(1, 1.0)) + raw(messages.pulse()) + raw(note(2, 2.0))
    with linked() as (link, other):

        def trickle() -> None:
            for start in range(0, len(content), 7):
                other.sendall(content[start : start + 7])

        in_threads(trickle, partial(receive_two, link))


def receive_two(link: Link) -> None:
    for value in (1.0, 2.0):  # the pulse between them is not shown
        message, num_bytes = link.receive()
        assert value_of(message) == value
        assert num_bytes == len(raw(message))


def test_many_threads_may_send() -> None:
    with linked() as (link, other):
        peer = Link(other, ACCEPTS, LONG)
        found: list[int] = []

        def send(first: int) -> None:
            for number in range(first, first + 20):
                link.send(note(number, float(number), size=20_000))

        def receive() -> None:
            for _ in range(80):
                message, _ = peer.receive()
                assert value_of(message) == message.iteration
                found.append(message.iteration)

        in_threads(*(partial(send, first) for first in (0, 20, 40, 60)), receive)
        peer.close()
    assert sorted(found) == list(range(80))
    for first in (0, 20, 40, 60):
        of_thread = [number for number in found if first <= number < first + 20]
        assert of_thread == sorted(of_thread)


def test_a_receiver_that_stands_still_does_not_stop_the_sender() -> None:
    with linked() as (link, other):
        for number in range(2):
            link.send(note(number, float(number), size=LARGE))
        assert not link.flush(0.05)
        peer = Link(other, dict.fromkeys(KINDS, 1 << 30), LONG)
        for number in range(2):
            assert value_of(peer.receive()[0]) == number
        assert link.flush(LONG)
        peer.close()


def test_a_sender_ends_with_its_link_though_the_receiver_stands_still() -> None:
    def has_writer() -> bool:
        return any(thread.name == "link-writer" for thread in threading.enumerate())

    wait_until(lambda: not has_writer(), "those of other tests have ended")
    with linked() as (link, _):
        link.send(note(1, 1.0, size=LARGE))
        assert has_writer()
    wait_until(lambda: not has_writer(), "its writer has ended")


def test_closing_wakes_the_receiver() -> None:
    with linked() as (link, _):
        caught: list[Exception] = []

        def receive() -> None:
            with pytest.raises(LinkBroken) as broken:
                link.receive()
            caught.append(broken.value)

        thread = threading.Thread(target=receive)
        thread.start()
        link.close()
        thread.join(LONG)
        assert len(caught) == 1
        with pytest.raises(LinkBroken):
            link.receive()
        with pytest.raises(LinkBroken):
            link.send(note(1))
        link.close()


def test_end_sends_the_rest_and_receiving_goes_on() -> None:
    with linked() as (link, other):
        link.send(note(1))
        assert link.end(LONG)
        assert read_all(other, 1 << 16) == raw(note(1))  # and then the end
        other.sendall(raw(note(2)))
        assert link.receive()[0].iteration == 2
        with pytest.raises(LinkBroken):
            link.send(note(3))
        assert link.is_open


@pytest.mark.parametrize("length", [0, 1, wire.HEADER_BYTES, wire.HEADER_BYTES + 1, -1])
def test_a_peer_that_closes_in_the_middle_is_gone(length: int) -> None:
    with linked() as (link, other):
        other.sendall(raw(note(1))[:length])
        other.close()
        with pytest.raises(LinkBroken, match="its connection closed"):
            link.receive()


def test_a_peer_that_is_killed_is_noticed_by_its_closed_connection() -> None:
    ours, theirs = connected()
    with in_child(partial(time.sleep, 60)) as child:
        theirs.close()
        link = Link(ours, ACCEPTS, 1e6)
        link.send(note(1, size=LARGE))
        threading.Timer(0.2, os.kill, (child, signal.SIGKILL)).start()
        with pytest.raises(LinkBroken, match="its connection closed"):
            link.receive()
        link.close()


def pulse_for_ever(connection: socket.socket) -> None:
    pulses = Pulses(PATIENCE)
    pulses.add(Link(connection, ACCEPTS, PATIENCE), None)
    time.sleep(1000)


def test_a_stopped_peer_is_noticed_when_the_time_is_up_and_not_before() -> None:
    ours, theirs = connected()
    with in_child(partial(pulse_for_ever, theirs)) as child:
        theirs.close()
        link = Link(ours, ACCEPTS, PATIENCE)
        caught: list[str] = []

        def receive() -> None:
            with pytest.raises(LinkBroken) as broken:
                link.receive()
            caught.append(str(broken.value))

        thread = threading.Thread(target=receive)
        thread.start()
        thread.join(1.5 * PATIENCE)  # its pulses keep it alive
        assert caught == []
        os.kill(child, signal.SIGSTOP)
        thread.join(LONG)
        assert caught == [f"silent for {PATIENCE:g} s"]
        link.close()


def test_a_slow_message_is_no_silence() -> None:
    content = raw(note(1, 1.0))
    with linked(liveness_seconds=PATIENCE) as (link, other):

        def trickle() -> None:
            for byte in content[:12]:
                other.sendall(bytes([byte]))
                time.sleep(PATIENCE / 8)
            other.sendall(content[12:])

        found: list[float] = []
        in_threads(trickle, lambda: found.append(value_of(link.receive()[0])))
    assert found == [1.0]


def test_a_wait_may_be_limited_or_interrupted() -> None:
    interrupted = threading.Event()
    with linked() as (link, other):
        other.sendall(raw(note(1))[:-1])
        with pytest.raises(LinkBroken, match="did not answer in time"):
            link.receive(Until(0.1))
    with linked() as (link, _):
        threading.Timer(0.1, interrupted.set).start()
        with pytest.raises(Interrupted):
            link.receive(Until(LONG, interrupted))


def resident_bytes() -> int:
    return int(psutil.Process().memory_info().rss)


@pytest.mark.parametrize(
    ("kind", "size", "says"),
    [
        ("FEEDBACK", 1 << 33, "a FEEDBACK message of 8589934592 bytes; at most 1000"),
        ("FEEDBACK", 1001, "of 1001 bytes; at most 1000"),
        (Kind.EXTRACTOR, 100, "an EXTRACTOR message, which is not expected|a EXTRACTOR message"),
        (Kind.PULSE, 1 << 20, "a PULSE message of 1048576 bytes"),
        ("\u00fa", 100, "no kind of message: b'"),
    ],
)
def test_what_is_too_large_or_not_expected_takes_no_memory(kind: str, size: int, says: str) -> None:
    with linked(accepts={"FEEDBACK": 1000}) as (link, other):
        other.sendall(announce(kind, size))
        before = resident_bytes()
        with pytest.raises(WireError, match=says):
            link.receive()
        assert resident_bytes() - before < 16 << 20


def test_an_announced_message_takes_memory_only_as_it_comes() -> None:
    with linked(accepts={Kind.EXTRACTOR: 1 << 30}) as (link, other):
        other.sendall(announce(Kind.EXTRACTOR, 1 << 30) + bytes(1000))
        other.close()
        before = resident_bytes()
        with pytest.raises(LinkBroken):
            link.receive()
        assert resident_bytes() - before < 16 << 20


def test_other_kinds_may_be_expected_later() -> None:
    with linked(accepts={}) as (link, other):
        other.sendall(raw(note(1)) * 2)
        link.expect({"DISCRIMINATORS": 1000})
        link.receive()
        link.expect({})
        with pytest.raises(WireError, match="is not expected"):
            link.receive()


def test_tensors_are_received_into_their_own_place() -> None:
    with linked() as (link, other):
        other.sendall(raw(Message("SWAP", 1, {}, {"a": torch.ones(4), "b": torch.ones(4)})))
        tensors = link.receive()[0].tensors
        storages = {tensor.untyped_storage().data_ptr() for tensor in tensors.values()}
        assert len(storages) == 1  # views of one body


def test_a_pulse_goes_only_where_nothing_else_went_lately() -> None:
    with linked() as (link, other):
        link.send(note(1))
        link.pulse(1000)
        link.pulse(0.0)
        sent = raw(note(1)) + raw(messages.pulse())
        link.end(LONG)
        assert read_all(other, 1 << 16) == sent


@pytest.mark.parametrize(
    ("seconds", "peers_seconds", "least_seconds"),
    [
        (0.4, None, 0.05),
        (60, 0.4, 0.05),  # a peer that is less patient gets more pulses
        (1.0, -1, 0.02),  # and never a flood of them
        (1.0, 0.0, 0.02),
        (1.0, "soon", 0.125),
        (1.0, float("nan"), 0.125),
        (1.0, [], 0.125),
        (1.0, 1e300, 0.125),
    ],
)
def test_pulses_leave_again_and_again_but_not_too_often(
    seconds: float, peers_seconds: object, least_seconds: float
) -> None:
    pulses, num_bytes = Pulses(seconds), len(raw(messages.pulse()))
    with linked() as (link, other):
        begin = time.monotonic()
        pulses.add(link, peers_seconds)
        assert read_all(other, 3 * num_bytes) == 3 * raw(messages.pulse())
        pulses.stop()
        other.setblocking(False)
        try:
            more = len(other.recv(1 << 20)) // num_bytes
        except BlockingIOError:
            more = 0
        assert 3 + more <= (time.monotonic() - begin) / least_seconds + 1
