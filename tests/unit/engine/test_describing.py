"""What a host sends of its data to a server that asks for all of it."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mdgan.data.partitioner import InMemoryPartitioner, NoSamples
from mdgan.data.shard import Shard
from mdgan.engine.host.describing import Describer
from mdgan.engine.host.protocol import OutOfTurn
from mdgan.errors import BadInput
from mdgan.gan.randomness import generator_for
from mdgan.messages import Kind, Message
from mdgan.metrics import classifier
from mdgan.metrics.chosen import pack
from mdgan.metrics.extractor import CPU, Extractor
from mdgan.metrics.network_files import from_file
from mdgan.metrics.real_statistics import RealStatistics
from tests.claims.registry import claim
from tests.unit.metrics.small import SHAPE, Stripes

MANY = 300
OWN = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(16, 5))
"""


class Private(Stripes):
    num_samples = MANY


def shard(num_samples: int, source: InMemoryPartitioner | None = None) -> Shard:
    return Shard(source or Private(), torch.arange(num_samples), generator_for(0))


def identity(num_classes: int = 3, scale: float = 1.0) -> Extractor:
    """A classifier of the architecture that mdgan defines, whose first 16 features are pixels."""
    made = classifier.Classifier(SHAPE, num_classes)
    state = {name: torch.zeros_like(tensor) for name, tensor in made.state_dict().items()}
    state["features.1.weight"][0, 0, 1, 1] = 1.0
    state["features.2.weight"][0] = 1.0
    state["features.2.bias"][0] = 2.0  # so that the ReLU changes nothing
    state["features.2.running_var"][0] = 1 - 1e-5
    state["features.5.weight"][range(16), range(16)] = scale
    state["features.6.running_mean"][:16] = 2.0 * scale
    state["features.6.running_var"][:] = 1 - 1e-5
    return classifier.assemble("stripes", SHAPE, num_classes, 1.0, state)


def told(describer: Describer, extractor: Extractor) -> Message:
    describer.begin(Message(Kind.EXTRACTOR, 0, *pack(extractor)))
    while (answer := describer.step(7)) is None:
        pass
    assert not describer.busy
    return answer


@claim(
    "few-samples",
    "So a host on another machine gives no sums unless it has more than twice as many "
    "samples as the classifier has features, and classes.",
)
def test_pixels_of_single_samples_do_not_come_back() -> None:
    changes = {1: shard(1)}
    known = told(Describer(changes, None, CPU, server_is_here=True), identity())
    pixels = Private().images(torch.arange(1)).flatten().double()
    result = RealStatistics.from_tensors(known.tensors).moments.total[:16]
    assert float((result - pixels).abs().max()) < 1e-5, "the network should give pixels back"

    answer = told(Describer(changes, None, CPU), identity())
    assert (answer.iteration, answer.tensors) == (7, {})
    assert "it has 1 sample(s), and sums over fewer than 130" in answer.fields["reason"]


@pytest.mark.parametrize(
    ("num_samples", "num_classes", "tells"),
    [(100, 3, False), (MANY, 3, True), (MANY, 200, False), (0, 3, True)],
)
@claim(
    "few-samples",
    "So a host on another machine gives no sums unless it has more than twice as many "
    "samples as the classifier has features, and classes.",
)
def test_sums_hide_samples_among_more_than_there_are_features_and_classes(
    num_samples: int, num_classes: int, tells: bool
) -> None:
    empty = Shard(NoSamples(), torch.empty(0, dtype=torch.int64), generator_for(0))
    changes = {1: shard(num_samples) if num_samples else empty}
    answer = told(Describer(changes, None, CPU), identity(num_classes))
    assert bool(answer.tensors) == tells, answer.fields
    assert bool(answer.fields["reason"]) != tells


@pytest.mark.parametrize(
    "lie",
    [{"shape": [1, 9, 9]}, {"shape": [1 << 30, 4, 4], "kind": "random"}, {"classes": 1 << 40}, {}],
)
def test_a_network_of_another_size_takes_no_memory(lie: dict[str, Any]) -> None:
    """Made as they say, these would be of gigabytes; a network that fits is the last one."""
    describer = Describer({1: shard(MANY)}, None, CPU, shape=SHAPE)
    fields, tensors = pack(identity())
    describer.begin(Message(Kind.EXTRACTOR, 0, {**fields, **lie}, tensors))
    with (
        pytest.raises(OutOfTurn, match="its EXTRACTOR message makes no sense")
        if ("shape" in lie)
        else nullcontext()
    ):
        while (answer := describer.step(7)) is None:
            pass
        assert bool(answer.tensors) == (not lie)


def test_a_host_describes_its_data_by_few_networks() -> None:
    describer = Describer({1: shard(MANY)}, None, CPU)
    for scale in (1.0, 2.0, 1.0):
        assert told(describer, identity(scale=scale)).tensors
    refused = told(describer, identity(scale=3.0))
    assert not refused.tensors
    assert refused.fields["reason"] == "it has described its data by 2 other networks already"
    assert told(describer, identity(scale=2.0)).tensors


@claim("few-samples", "a host uses that network alone, whatever the server sends")
@claim("no-pickle", "No dataset file or extractor comes from another machine")
def test_a_host_uses_only_the_network_that_its_user_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The server learns neither more than that, nor the name of a file here."""
    folder = tmp_path / "ward"
    folder.mkdir()
    (folder / "mine.py").write_text(OWN)
    named = Path(f"{folder}/mine.py:Net")
    agreed, own = from_file(named, SHAPE), {1: shard(MANY)}
    assert told(Describer(own, named, CPU), agreed).tensors
    for other in (identity(), replace(agreed, sha256="0" * 64), replace(agreed, kind="inception")):
        caplog.clear()
        answer = told(Describer(own, named, CPU), other)
        assert (answer.tensors, answer.fields) == ({}, {"reason": "its own log says why"})
        assert str(folder) in caplog.text
    answer = told(Describer(own, None, CPU), agreed)
    assert not answer.tensors
    assert "does not travel; copy its file to this machine" in caplog.text


@claim("counts-under-dp", "No name of a file with samples leaves a machine")
def test_the_server_learns_no_name_of_a_picture(caplog: pytest.LogCaptureFixture) -> None:
    class Lost(Private):
        def images(self, indices: Tensor) -> Tensor:
            raise BadInput("scans/ward/p0.png: cannot read this picture")

    answer = told(Describer({1: shard(MANY, Lost())}, None, CPU), identity())
    assert (answer.tensors, answer.fields) == ({}, {"reason": "its own log says why"})
    assert "nothing of the data here: scans/ward/p0.png: cannot read" in caplog.text


@claim("few-samples", "and needs 64 samples")
def test_few_samples_are_not_told_by_a_network_that_the_user_named(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    named = Path(f"{tmp_path}/mine.py:Net")
    assert told(Describer({1: shard(100)}, named, CPU), from_file(named, SHAPE)).tensors
    assert not told(Describer({1: shard(40)}, named, CPU), from_file(named, SHAPE)).tensors
