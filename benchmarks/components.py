"""Measures the pieces of an iteration one by one, to show which piece has become slower.

    pytest benchmarks/components.py -o addopts= [--benchmark-save NAME | --benchmark-compare]

Arithmetic runs on one thread, on CIFAR-10's models with b = 10. Half the difference between
`a_message_there_and_back` and `its_bytes_there_and_back` is what a message itself costs: gRPC, TLS,
JSON and threads.
"""

import multiprocessing
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.training import HERE
from mdgan.credentials.files import write_shared
from mdgan.credentials.identity import Identity, read_credentials
from mdgan.credentials.revocations import Revocations
from mdgan.data.dataset_file import load
from mdgan.data.shard import Shard
from mdgan.engine.answers import AnswerForm
from mdgan.engine.server.hosts import Strikes
from mdgan.engine.stages.contract import pack_answers, read_answers
from mdgan.engine.stages.screen import Screening
from mdgan.families.mdgan.algorithm import GeneratorLearner, assign, mean_feedback
from mdgan.families.mdgan.build import make_generator_learner, make_worker
from mdgan.families.mdgan.messages import FEEDBACK, batches, read_batches
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.codecs import FP32, Codec
from mdgan.gan.labels import Samples
from mdgan.gan.randomness import generator_for
from mdgan.messages import Kind, Message
from mdgan.observe.tracer import Tracer
from mdgan.timeouts import Timeouts
from mdgan.transport.base import Joined
from mdgan.transport.frames import Most, decode, encode
from mdgan.transport.host_end import HostTransport
from mdgan.transport.until import Until

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
    worker = make_worker(1, settings, dataset.models, shard, CPU)
    worker.learn(Samples(images(BATCH)))
    return worker, make_generator_learner(settings, dataset.models, CPU)


def images(*shape: int) -> Tensor:
    return torch.rand(*shape, *SHAPE) * 2 - 1


def feedbacks() -> dict[int, Tensor]:
    return {worker: 1e-3 * images(BATCH) for worker in range(1, NUM_WORKERS + 1)}


def batches_message() -> Message:
    return batches(1, Samples(images(KAPPA, BATCH)), {1: (0, 1)}, swap_follows=False, last=False)


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
    benchmark(mean_feedback, answers, assign(list(answers), KAPPA), KAPPA)


def test_screen_20_workers(benchmark: Benchmark) -> None:
    answers, screening = feedbacks(), Screening(FORM, Strikes(3))
    benchmark(lambda: [screening.refuse(n, answer) for n, answer in answers.items()])


@pytest.mark.parametrize("codec", [Codec("bf16"), Codec("int8"), Codec("topk", 0.05)], ids=str)
def test_codec_there_and_back(benchmark: Benchmark, codec: Codec) -> None:
    tensor = images(1, BATCH)
    benchmark(lambda: codec.decode(codec.encode(tensor), FORM.shape))


def test_encode_batches(benchmark: Benchmark) -> None:
    generated = images(KAPPA, BATCH)
    benchmark(
        lambda: encode(batches(1, Samples(generated), {1: (0, 1)}, swap_follows=False, last=False))
    )


def test_decode_batches(benchmark: Benchmark) -> None:
    frame = encode(batches_message())
    benchmark(lambda: read_batches(decode(frame), FP32, FORM.shape))


def test_a_host_of_50_workers_answers(benchmark: Benchmark) -> None:
    answers = {worker: 1e-3 * images(BATCH) for worker in range(50)}
    losses = dict.fromkeys(answers, torch.zeros(2))
    judged = {worker: worker % KAPPA for worker in answers}

    def there_and_back() -> None:
        frame = encode(pack_answers(1, answers, losses, judged, FORM))
        read_answers(decode(frame), FORM)

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
ECHO = """
import sys
from benchmarks.components import join
host = join(*sys.argv[1:])
while (event := host.receive(60.0)) is not None and hasattr(event, "message"):
    host.send(event.message)
"""


def join(place: str, credentials: str) -> HostTransport:
    """Joins the server at a place as host 1; `credentials` is a file, or empty."""
    from mdgan.transport.grpc_host import GrpcHostTransport

    identity = read_credentials(Path(credentials)) if credentials else None
    accepts: dict[str, Most] = {Kind.SPANS: Most(1 << 20, 1 << 20)}
    hello, until = {"host": 1}, Until(60.0)
    return GrpcHostTransport(place, access(identity), hello, accepts, {}, Timeouts(), None, until)


def access(identity: Identity | None) -> Any:
    """What a process with these credentials lets others do."""
    from mdgan.transport.guard import Access

    return Access(identity, Revocations(None, b""), 1, lambda _: 1 << 16)


@pytest.mark.parametrize("is_tls", [False, True], ids=["socket", "tls"])
def test_a_message_there_and_back(benchmark: Benchmark, tmp_path: Path, is_tls: bool) -> None:
    from mdgan.transport.grpc_server import GrpcServerTransport

    credentials, place = "", f"unix:{tmp_path}/server"
    if is_tls:
        credentials, place = str(tmp_path / "run.cred"), "127.0.0.1:0"
        write_shared(Path(credentials), timedelta(days=1))
    server = GrpcServerTransport(
        [place],
        access(read_credentials(Path(credentials)) if is_tls else None),
        lambda _: {},
        lambda _: {str(Kind.SPANS): Most(1 << 20, 1 << 20)},
        lambda _: {},
        Timeouts(),
    )
    # Its own process, as gRPC does not survive a fork.
    echo = subprocess.Popen([sys.executable, "-c", ECHO, server.places[0], credentials])
    assert isinstance(server.receive(60.0), Joined)
    benchmark(lambda: (server.send(1, NOTE), server.receive(60.0)))
    server.close()
    echo.wait()


def test_its_bytes_there_and_back(benchmark: Benchmark) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
    for end in (one, other):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    content = encode(NOTE).body

    def echo() -> None:
        one.close()
        while received := other.recv(len(content), socket.MSG_WAITALL):
            other.sendall(received)

    process = multiprocessing.get_context("fork").Process(target=echo, daemon=True)
    process.start()
    other.close()

    def there_and_back() -> None:
        one.sendall(content)
        one.recv(len(content), socket.MSG_WAITALL)

    benchmark(there_and_back)
    one.close()
    process.join()
