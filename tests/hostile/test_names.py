"""A server that searches all messages of honest hosts for names of files."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from mdgan.messages import Message
from mdgan.transport.memory import MemoryHostTransport, MemoryNetwork
from tests.claims.registry import claim
from tests.hostile.bench import TINY
from tests.processes import run_here

DATASET = """
import torch
from torch import nn
from mdgan.data import ImageFilesPartitioner

SHAPE, Z_DIM, NUM_CLASSES = (3, 8, 8), 4, 2

class Partitioner(ImageFilesPartitioner):
    shape = SHAPE

    def find(self, data_dir):
        paths = sorted(data_dir.glob("*.*"))
        return paths, torch.arange(len(paths)) % 2

class Generator(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 192), nn.Tanh(), nn.Unflatten(1, SHAPE))

class Discriminator(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(192, 1))
"""


@pytest.mark.slow
@claim("counts-under-dp", "No name of a file with samples leaves a machine")
def test_hosts_name_no_file_of_theirs(tmp_path: Path) -> None:
    """Some pictures cannot be read at the start, others no longer as soon as training is on."""
    (tmp_path / "pictures.py").write_text(DATASET)
    ward = tmp_path / "ward"
    ward.mkdir()
    pixels = b"P6 8 8 255\n" + bytes(range(192))
    for number in range(64):
        (ward / f"patient-{number}.ppm").write_bytes(pixels if number % 8 else b"")
    traffic: list[str] = []
    send, join = MemoryHostTransport.send, MemoryNetwork.join

    def overheard(link: MemoryHostTransport, message: Message) -> int:
        if message.kind == "FEEDBACK" and not any(text.startswith("FEEDBACK") for text in traffic):
            for number in range(0, 64, 2):
                (ward / f"patient-{number}.ppm").unlink(missing_ok=True)
        traffic.append(f"{message.kind} {json.dumps(dict(message.fields))} {list(message.tensors)}")
        return send(link, message)

    def joined(network: MemoryNetwork, host: int, hello: Any) -> MemoryHostTransport:
        traffic.append(f"HELLO {json.dumps(dict(hello))}")
        return join(network, host, hello)

    flags = [*TINY, "--dataset", "pictures", "--datasets-dir", ".", "--data-dir", "ward"]
    flags += ["--iterations", "6", "--eval-interval", "3", "--checkpoint-interval", "2"]
    with (
        patch.object(MemoryHostTransport, "send", overheard),
        patch.object(MemoryNetwork, "join", joined),
    ):
        ended = run_here("train", *flags, "--out", "run", cwd=tmp_path)
    assert ended.status == 0, ended
    kinds = {text.split()[0] for text in traffic}
    assert {"HELLO", "READY", "FEEDBACK", "REAL", "CHECKPOINTED", "SPANS"} <= kinds
    assert "patient-8.ppm (it is empty)" in ended.errors
    assert "From now on the worker's next sample stands in" in ended.errors
    for text in traffic:
        for name in ("patient", "ward", str(tmp_path)):
            assert name not in text
