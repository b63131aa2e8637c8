"""Measures the pieces of an iteration one by one, so that a regression shows where it is.

    pytest benchmarks/components.py -o addopts= [--benchmark-save NAME | --benchmark-compare]

Arithmetic runs on one thread, on CIFAR-10's models with b = 10. Half the difference between
`a_message_there_and_back` and `its_bytes_there_and_back` is what a message itself costs: headers,
checksums, JSON and locks.
"""

import multiprocessing
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch
from mdgan.transport.link import Link, LinkBroken
from mdgan.transport.wire import decode, decode_header, encode
from torch import Tensor

from benchmarks.training import HERE
from mdgan.data.dataset_file import load
from mdgan.data.shard import Shard
from mdgan.engine.answers import AnswerForm, pack_answers, read_answers
from mdgan.engine.server.screening import Screening
from mdgan.families.mdgan.aggregation import aggregate
from mdgan.families.mdgan.algorithm import GeneratorLearner, assign
from mdgan.families.mdgan.build import make_generator_learner, make_worker
from mdgan.families.mdgan.messages import FEEDBACK, batches, read_batches
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.codecs import FP32, Codec
from mdgan.gan.randomness import generator_for
from mdgan.messages import Kind, Message
from mdgan.observe.tracer import Tracer

CPU = torch.device("cpu")
KAPPA, BATCH, SHAPE, NUM_WORKERS = 4, 10, (3, 32, 32), 20
FORM = AnswerForm(FEEDBACK, (BATCH, *SHAPE))
Benchmark = Callable[..., Any]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def learners() -> tuple[Worker, GeneratorLearner]:
    dataset = load("cifar10_noise", str(HERE / "datasets"))
    settings = MDGANSettings.read({"batch_size": BATCH}, dataset.defaults)
    shard = Shard(dataset.open(Path()), torch.arange(1000), generator_for(0, "shard", 1))
    worker = make_worker(1, settings, dataset, shard, CPU)
    worker.learn(images(BATCH))
    return worker, make_generator_learner(settings, dataset, CPU)


def images(*shape: int) -> Tensor:
    return torch.rand(*shape, *SHAPE) * 2 - 1


def feedbacks() -> dict[int, Tensor]:
    return {worker: 1e-3 * images(BATCH) for worker in range(1, NUM_WORKERS + 1)}


def batches_message() -> Message:
    return batches(1, images(KAPPA, BATCH), {1: (0, 1)}, swap_follows=False, last=False)


def test_generate(benchmark: Benchmark, learners: tuple[Worker, GeneratorLearner]) -> None:
    def generate() -> None:
        learners[1].generate(KAPPA)
        learners[1].forget()

    benchmark(generate)


def test_generator_step(benchmark: Benchmark, learners: tuple[Worker, GeneratorLearner]) -> None:
    learner, gradient = learners[1], 1e-3 * images(KAPPA, BATCH)

    def generated() -> None:
        learner.generate(KAPPA)

    def backward_and_step() -> None:
        learner.backward(gradient)
        learner.step()

    benchmark.pedantic(backward_and_step, setup=generated, rounds=10)  # type: ignore[attr-defined] # a fixture without a type


def test_local_step(benchmark: Benchmark, learners: tuple[Worker, GeneratorLearner]) -> None:
    benchmark(learners[0].learn, images(BATCH))


def test_feedback(benchmark: Benchmark, learners: tuple[Worker, GeneratorLearner]) -> None:
    benchmark(learners[0].feedback, images(BATCH))


def test_aggregate_20_workers(benchmark: Benchmark) -> None:
    answers = feedbacks()
    benchmark(aggregate, answers, assign(list(answers), KAPPA), KAPPA)


def test_screen_20_workers(benchmark: Benchmark) -> None:
    answers, screening = feedbacks(), Screening(FORM, 3)
    benchmark(lambda: [screening.refuse(n, answer) for n, answer in answers.items()])


@pytest.mark.parametrize("codec", [Codec("bf16"), Codec("int8"), Codec("topk", 0.05)], ids=str)
def test_codec_there_and_back(benchmark: Benchmark, codec: Codec) -> None:
    given = images(1, BATCH)
    benchmark(lambda: codec.decode(codec.encode(given), FORM.shape))


def test_encode_batches(benchmark: Benchmark) -> None:
    generated = images(KAPPA, BATCH)
    benchmark(lambda: encode(batches(1, generated, {1: (0, 1)}, swap_follows=False, last=False)))


def test_decode_batches(benchmark: Benchmark) -> None:
    header, body = encode(batches_message())
    benchmark(lambda: read_batches(decode(decode_header(header), body), FP32, FORM.shape))


def test_a_host_of_50_workers_answers(benchmark: Benchmark) -> None:
    answers = {worker: 1e-3 * images(BATCH) for worker in range(50)}
    losses = dict.fromkeys(answers, torch.zeros(2))
    judged = {worker: worker % KAPPA for worker in answers}

    def there_and_back() -> None:
        header, body = encode(pack_answers(1, answers, losses, judged, FORM))
        read_answers(decode(decode_header(header), body), FORM)

    benchmark(there_and_back)


def test_state_of_a_discriminator(
    benchmark: Benchmark, learners: tuple[Worker, GeneratorLearner]
) -> None:
    benchmark(learners[0].discriminator.state)


def test_digest_of_a_discriminator(
    benchmark: Benchmark, learners: tuple[Worker, GeneratorLearner]
) -> None:
    benchmark(learners[0].discriminator.digest)


def test_span(benchmark: Benchmark) -> None:
    tracer = Tracer()

    def spans() -> None:
        for _ in range(100):
            with tracer.span("wait"):
                pass

    benchmark(spans)
    tracer.take()


NOTE = Message(Kind.SPANS, 1, {"text": "x" * 200}, {"numbers": torch.zeros(200)})
ACCEPTS: dict[str, int] = {Kind.SPANS: 1 << 16}


def connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
    for end in (one, other):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return one, other


def in_a_process(echo: Callable[[], None], end: socket.socket) -> BaseProcess:
    """Starts a process at the other end, which closes its copy of our `end` first."""

    def be_the_other() -> None:
        end.close()
        torch.set_num_threads(1)
        echo()

    process = multiprocessing.get_context("fork").Process(target=be_the_other, daemon=True)
    process.start()
    return process


def test_a_message_there_and_back(benchmark: Benchmark) -> None:
    one, other = connected()

    def echo() -> None:
        link = Link(other, ACCEPTS, 30.0)
        with suppress(LinkBroken):
            while True:
                link.send(link.receive()[0])

    process = in_a_process(echo, one)
    other.close()
    link = Link(one, ACCEPTS, 30.0)
    benchmark(lambda: (link.send(NOTE), link.receive()))
    link.close()
    process.join()


def test_its_bytes_there_and_back(benchmark: Benchmark) -> None:
    one, other = connected()
    content = b"".join(part.numpy().tobytes() for part in encode(NOTE))

    def echo() -> None:
        while received := other.recv(len(content), socket.MSG_WAITALL):
            other.sendall(received)

    process = in_a_process(echo, one)
    other.close()

    def there_and_back() -> None:
        one.sendall(content)
        one.recv(len(content), socket.MSG_WAITALL)

    benchmark(there_and_back)
    one.close()
    process.join()
