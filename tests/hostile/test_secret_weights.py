"""Clients that weigh their own models, and a server or a client that lies about classes."""

import json
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest
import torch

from mdgan.data.dataset_file import load
from mdgan.data.shard import Shard
from mdgan.engine.hello import make_hello
from mdgan.families.federated.build import BUILDER
from mdgan.families.federated.messages import ASKCLASSES, CLASSES_FORM, ROUND, UPDATE
from mdgan.families.federated.settings import FederatedSettings
from mdgan.gan.exact_sum import WEIGHTED
from mdgan.gan.model_vector import BLOCK
from mdgan.messages import Message
from tests.claims.registry import claim
from tests.claims.test_what_travels import Overhears, numbers_of
from tests.hostile.lying_server import ALL, LyingServer, lying_run
from tests.hostile.test_lying_server import ENDS, VICTIM
from tests.processes import ended_well

SECRET = ("--weighting", "kl", "--partition", "shards:2")
ALL_HELD = 1438  # training samples of the digits


@claim("classes-told", "hosts add up their class counts in a secure sum")
@claim("classes-told", "each worker weighs its own models")
def test_all_that_the_server_gets_is_sums(tmp_path: Path) -> None:
    heard = Overhears()
    result = lying_run(tmp_path, heard, *SECRET, algorithm="fl-gan")
    ended_well(result, tmp_path / "run", 4)
    of_hosts = [message for _, message in heard.sent]
    counted = [m for m in of_hosts if m.kind == CLASSES_FORM.kind and "masked.0" in m.tensors]
    assert len(counted) == len(ALL)
    for message in counted:
        masked = message.tensors["masked.0"][: prod(CLASSES_FORM.shape)]
        assert (masked.double().abs() > 2**55).double().mean() > 0.9  # evenly spread: 0.996
        assert not (numbers_of(message)[0] > len(ALL)).any(), "nothing but ranks beside"
    rounds = [message for _, message in heard.got if message.kind == ROUND]
    assert all(sum(m.fields["classes"]) == ALL_HELD for m in rounds)
    assert len({w for m in rounds for *_, w in m.fields["lists"][0]}) == 1, "loads are equal"
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert '"classes": [' not in json.dumps(run)


@claim(
    "classes-told",
    "In secure sums the workers of fl-gan and fegan tell no classes, but for one thing: "
    "with --sampling balanced they tell the server how many of each class.",
)
def test_a_worker_tells_its_classes_where_the_server_draws_by_them() -> None:
    digits = load("digits", None).partitioner(Path())
    shard = Shard(digits, torch.arange(40), torch.Generator())
    for sampling, secure in (("random", True), ("balanced", True), ("random", False)):
        values = {"sampling": sampling, "weighting": "kl", "secure_aggregation": secure}
        settings = FederatedSettings.read({"world_size": 8, **values})
        counts = {1: BUILDER.class_counts(shard, settings)}
        own_hello = make_hello(1, counts, {}, tells_classes=settings.tells_classes)
        assert own_hello["num_samples"] == {"1": 40}
        hides = secure and sampling == "random"
        assert own_hello["class_counts"] == {"1": [] if hides else shard.class_counts()}


class TellsOtherClasses(LyingServer):
    """Says of a class that all workers hold more of it: always to one, or later to all."""

    def __init__(self, *hosts: int, since: int) -> None:
        self._hosts, self._since = hosts, since

    def to_host(self, host: int, message: Message) -> Sequence[Message]:
        if host not in self._hosts or message.kind != ROUND or message.iteration < self._since:
            return [message]
        first, *others = message.fields["classes"]
        return [replace(message, fields={**message.fields, "classes": [first + 99, *others]})]


@pytest.mark.parametrize(
    ("lies", "says"),
    [
        (TellsOtherClasses(VICTIM, since=1), f"host {VICTIM} has not sealed this for host 1"),
        (TellsOtherClasses(*ALL, since=3), f"{ENDS}it tells of other classes of all clients"),
    ],
    ids=["to one", "later"],
)
def test_other_classes_are_not_believed(tmp_path: Path, lies: TellsOtherClasses, says: str) -> None:
    assert says in lying_run(tmp_path, lies, *SECRET, algorithm="fl-gan").errors


class TellsOfNoClasses(LyingServer):
    """Says in the first round that no host holds any: then weights are the server's own."""

    def to_host(self, host: int, message: Message) -> Sequence[Message]:
        del host
        if message.kind != ROUND or message.iteration > 1:
            return [message]
        return [replace(message, fields={**message.fields, "classes": []})]


def test_to_tell_of_no_classes_first_is_to_tell_of_others_later(tmp_path: Path) -> None:
    result = lying_run(tmp_path, TellsOfNoClasses(), *SECRET, algorithm="fl-gan")
    assert f"{ENDS}it tells of other classes of all clients" in result.errors


class CountsWrong(LyingServer):
    """A host that answers with more of the first class, or fewer than there are of any."""

    def __init__(self, more: int) -> None:
        self._more = more

    def from_host(self, host: int, message: Message) -> Sequence[Message]:
        if host != VICTIM or message.kind != CLASSES_FORM.kind or "masked.0" not in message.tensors:
            return [message]
        masked = message.tensors["masked.0"].clone()
        masked[0] += self._more
        masked[1] -= self._more
        masked[2] += self._more == 1
        return [replace(message, tensors={**message.tensors, "masked.0": masked})]


@pytest.mark.parametrize("more", [1, 2000])
def test_counts_that_workers_cannot_have_end_the_run(tmp_path: Path, more: int) -> None:
    """Hosts would not believe the server that passes them on."""
    result = lying_run(tmp_path, CountsWrong(more), *SECRET, algorithm="fl-gan")
    assert result.status == 2
    assert "the secure sum of classes is none that honest workers have" in result.errors


class AsksAgain(LyingServer):
    """Asks for classes once more, of fewer hosts: the difference is what one holds."""

    def to_host(self, host: int, message: Message) -> Sequence[Message]:
        del host
        return [message] * (1 + (message.kind == ASKCLASSES))


def test_classes_are_told_once(tmp_path: Path) -> None:
    result = lying_run(tmp_path, AsksAgain(), *SECRET, algorithm="fl-gan")
    assert f"{ENDS}it sends ASKCLASSES of iteration 1: more than 1 since this host" in result.errors


class Weighs(LyingServer):
    """What a host answers, with another weight."""

    def from_host(self, host: int, message: Message) -> Sequence[Message]:
        if host != VICTIM or message.kind != UPDATE or "masked.0" not in message.tensors:
            return [message]
        masked = message.tensors["masked.0"].clone()
        masked[-2 - BLOCK] += int(0.5 * WEIGHTED.scale)
        return [replace(message, tensors={**message.tensors, "masked.0": masked})]


def test_a_weight_that_no_worker_can_have_ends_the_run(tmp_path: Path) -> None:
    result = lying_run(tmp_path, Weighs(), *SECRET, algorithm="fl-gan")
    assert result.status not in (0, 2)
    assert "--weighting kl: the secret weights of a round add up to 1.3" in result.errors
