"""What follows from a worker's classes under differential privacy: its noisy counts, and no more.

Labels are changed, and the noisy counts are held fast: then nothing that leaves may change.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from mdgan.engine.stages.contract import Leaving
from mdgan.families.federated import host
from mdgan.families.federated.messages import ROUND
from mdgan.launch import processes
from mdgan.messages import Kind, Message
from mdgan.privacy import counts
from tests.claims.registry import claim
from tests.claims.test_what_travels import Overhears
from tests.hostile.lying_server import LyingNetwork
from tests.known_noise import make_noise_known
from tests.processes import REPOSITORY, ended_well, run_here

pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")

LABELLED = """

class _Labelled(Partitioner):
    def read(self, data_dir):
        images, labels = super().read(data_dir)
        return images, {labels}


Partitioner = _Labelled
"""
RUN = [
    *("train", "--algorithm", "fegan", "--dataset", "labelled", "--datasets-dir", "."),
    *("--transport", "memory", "--world-size", "6", "--workers-per-host", "1", "--threads", "1"),
    *("--participation", "0.8", "--round-iterations", "1", "--iterations", "3"),
    *("--batch-size", "4", "--sample-interval", "0", "--eval-interval", "0"),
    *("--dp-epsilon", "8", "--dp-delta", "1e-4"),
]
WITH_PAIRS = [[20.0 + 9 * ((n + c) % 10 < 2) for c in range(10)] for n in range(5)]
FLAT = [[20.0] * 10] * 5
ONE_CLASS = "labels * 0 + 7"
TELLS_TIME = {Kind.SPANS, Kind.READY}  # how long, and by what key

Answers = dict[tuple[int, str, int], tuple[Tensor, float]]
"""By worker, kind and iteration: what it has answered before that is masked, and its weight."""
Said = dict[tuple[int, str, int], tuple[Any, list[Tensor]]]
"""By host, kind and iteration: what else a message says."""


def what_leaves(
    folder: Path,
    labels: str,
    noisy: Sequence[Sequence[float]],
    flags: Sequence[str],
    lies: Overhears,
) -> tuple[Answers, Said]:
    """Of a run with these labels, in which the noisy counts of rank n are noisy[n − 1]."""
    folder.mkdir()
    digits = (REPOSITORY / "datasets" / "digits.py").read_text()
    (folder / "labelled.py").write_text(digits + LABELLED.format(labels=labels))
    answers, said = Answers(), Said()
    join = LyingNetwork.join

    class Heard(Leaving):
        def __init__(self, question: Message, *rest: Any, **more: Any) -> None:
            super().__init__(question, *rest, **more)
            for n, answer in self.answers.items():
                result = answer.clone(), self.weights.get(n, 1.0)
                answers[n, str(question.kind), question.iteration] = result

    def told(_counted: Any, *, schedule: Any, **_about: Any) -> Any:
        return SimpleNamespace(tell=torch.tensor(noisy[int(schedule.whose.split()[-1]) - 1]).double)

    def heard(network: LyingNetwork, number: int, hello: Any) -> Any:
        said[number, "HELLO", 0] = [hello["num_samples"], hello["class_counts"]], []
        return join(network, number, hello)

    with pytest.MonkeyPatch.context() as change:
        make_noise_known(change)
        change.setattr(counts, "paid_counts", told)
        change.setattr(host, "Leaving", Heard)
        change.setattr(LyingNetwork, "join", heard)
        change.setattr(processes, "MemoryNetwork", partial(LyingNetwork, lies))
        ended = run_here(*RUN, *flags, "--dp-ledger", "ledger", "--out", "run", cwd=folder)
    ended_well(ended, folder / "run", 3)
    for number, message in lies.sent:
        if message.kind not in TELLS_TIME and "--secure-aggregation" not in flags:
            tensors = [message.tensors[name] for name in sorted(message.tensors)]
            said[number, str(message.kind), message.iteration] = dict(message.fields), tensors
    return answers, said


def are_equal(one: tuple[Answers, Said], other: tuple[Answers, Said]) -> bool:
    pairs: list[tuple[dict[Any, Any], dict[Any, Any]]] = [(one[0], other[0]), (one[1], other[1])]
    return all(a.keys() == b.keys() and all(_same(a[n], b[n]) for n in a) for a, b in pairs)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return torch.equal(one, other)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


class TellsOfOneClass(Overhears):
    """Tells all hosts that few samples are of any class: then weights show which host has most."""

    def to_host(self, host: int, message: Message) -> Sequence[Message]:
        sent = super().to_host(host, message)
        if message.kind != ROUND:
            return sent
        return [replace(message, fields={**message.fields, "classes": [9, *[9999] * 9]})]


SECURE = ("--sampling", "random", "--secure-aggregation")


@pytest.mark.parametrize(
    ("flags", "lies"),
    [
        ((), Overhears),
        pytest.param(SECURE, Overhears, marks=pytest.mark.slow),
        (SECURE, TellsOfOneClass),
    ],
    ids=["in the clear", "in secure sums", "to a server that lies"],
)
@claim("no-classes", "balanced and kl go by noisy counts")
@claim("kl-under-noise", "Under --dp-epsilon a server that lies learns no more than noisy counts.")
def test_with_the_same_noisy_counts_no_label_changes_what_leaves(
    tmp_path: Path, flags: Sequence[str], lies: type[Overhears]
) -> None:
    whole = what_leaves(tmp_path / "digits", "labels", WITH_PAIRS, flags, lies())
    other = what_leaves(tmp_path / "sevens", ONE_CLASS, WITH_PAIRS, flags, lies())
    assert whole[0]
    assert whole[1]
    assert are_equal(whole, other)
    # Else that could not fail: by other noisy counts something else leaves.
    flat = what_leaves(tmp_path / "flat", ONE_CLASS, FLAT, flags, lies())
    assert not are_equal(other, flat)
