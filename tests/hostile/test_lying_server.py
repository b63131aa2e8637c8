"""A server that lies about keys, drop-outs and survivors, and that reads what it relays."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor

from mdgan.engine.host_keys import HostKeys
from mdgan.families.federated.messages import ROUND
from mdgan.families.mdgan.messages import BATCHES, COPIED, DISCRIMINATORS, FEEDBACK, SWAP
from mdgan.gan.exact_sum import STEPS_PER_UNIT
from mdgan.messages import Kind, Message, adopt
from mdgan.privacy.masks import Mask, put_together, sign_between, without_masks
from tests.claims.registry import claim
from tests.hostile.lying_server import ALL, LyingServer, lying_run
from tests.processes import ended_well, read_events
from tests.unit.credentials.test_signing import AUTHORITY, issued

VICTIM = 4
OTHERS = tuple(host for host in ALL if host != VICTIM)
ENDS = "this host does not answer the server in this process: "


class Plain(LyingServer):
    """Notes what hosts answer, and hand over, in the same run without secure aggregation."""

    def __init__(self) -> None:
        self.answers: dict[tuple[int, int], Tensor] = {}
        self.parcels: list[Message] = []

    def from_host(self, host: int, message: Message) -> Sequence[Message]:
        if message.kind == FEEDBACK:
            answer = message.tensors["answers.values"].double() * STEPS_PER_UNIT
            self.answers[host, message.iteration] = answer.round().long().flatten()
        return [message]

    def parcel(self, giver: int, taker: int, message: Message) -> Message:
        self.parcels.append(message)
        return message


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plain, bytes]:
    """What happens without secure aggregation, and the generator."""
    folder, seen = tmp_path_factory.mktemp("plain"), Plain()
    result = lying_run(folder, seen, "--swap-interval", "2", secure=False)
    return seen, ended_well(result, folder / "run", 4)


class Substitutes(LyingServer):
    """Puts its own key in place of each other host's, for one host."""

    def __init__(self, host_keys: HostKeys) -> None:
        self._own = host_keys

    def to_host(self, host: int, message: Message) -> Sequence[Message]:
        if message.kind != Kind.KEYS or host != VICTIM:
            return [message]
        (first, *others) = message.fields["keys"]
        own = self._own.make_key(b"any run")
        return [replace(message, fields={"keys": [{**own, "workers": first["workers"]}, *others]})]


@pytest.mark.parametrize(
    ("host_keys", "why"),
    [
        (HostKeys([1]), "its certificate does not count"),
        (HostKeys([1], issued(AUTHORITY, "server")), "the signature is not that of"),
    ],
)
def test_a_key_that_the_server_has_put_in_between(
    tmp_path: Path, host_keys: HostKeys, why: str
) -> None:
    """The host masks nothing together with that one; the others go on."""
    result = lying_run(tmp_path, Substitutes(host_keys))
    ended_well(result, tmp_path / "run", 4)
    assert f"the key that the server tells of host 1 is refused: {why}" in result.errors
    assert f"host {VICTIM} takes part in no sum until it joins again" in result.errors


class SpoilsKey(LyingServer):
    """Tells a key of the victim's that all others refuse, as if the victim had told it so."""

    def to_host(self, host: int, message: Message) -> Sequence[Message]:
        if message.kind != Kind.KEYS or host == VICTIM:
            return [message]
        told = [
            {**key, "signature": "00"} if VICTIM in key["workers"] else key
            for key in message.fields["keys"]
        ]
        return [replace(message, fields={"keys": told})]


def test_a_key_that_most_hosts_refuse_costs_its_host_alone(tmp_path: Path) -> None:
    result = lying_run(tmp_path, SpoilsKey())
    ended_well(result, tmp_path / "run", 4)
    assert ENDS not in result.errors
    (lost,) = read_events(tmp_path / "run", "lost")
    assert (lost["workers"], lost["reason"]) == (
        [VICTIM],
        "most other hosts refuse its key; strike 1",
    )


class FalselyGone(LyingServer):
    """Has the victim's answer, says that it has dropped out, and tries to have it unmasked, too."""

    def __init__(self) -> None:
        self.total: Tensor | None = None
        self.revealed: dict[int, Tensor] = {}
        self.asked_again: set[int] = set()

    def from_host(self, host: int, message: Message) -> Sequence[Message]:
        if message.kind == FEEDBACK and host == VICTIM and message.iteration == 2:
            if self.total is None:
                self.total = message.tensors["masked.0"]
                self.pretend_gone(host)
            return []
        if "revealed.0" in message.tensors and message.iteration == 2:
            self.revealed[host] = message.tensors["revealed.0"]
        return [message]

    def to_host(self, host: int, message: Message) -> Sequence[Message]:
        if message.kind != Kind.UNMASK or message.iteration != 2:
            return [message]
        sums = msgspec.convert(message.fields["sums"], dict)
        every = {**sums, "survivors": {"0": list(ALL)}}
        self.asked_again.add(host)
        return [message, replace(message, fields={"sums": every})]


@claim(
    "opens-sums-alone",
    "With --secure-aggregation hosts mask their answers, so that the server opens sums alone",
)
def test_a_false_drop_out_tells_nothing_of_the_victim(
    tmp_path: Path, plain: tuple[Plain, bytes]
) -> None:
    """All that hosts reveal takes the masks between them and the victim off, but not its own."""
    lies = FalselyGone()
    result = lying_run(tmp_path, lies, "--swap-interval", "2")
    assert lies.asked_again == set(OTHERS) == set(lies.revealed)
    assert f"{ENDS}it wants to unmask a sum that this host has no part in, or a 2nd time" in (
        result.errors
    )
    assert lies.total is not None
    rows = np.stack([lies.revealed[host].numpy().view("<u2") for host in OTHERS])
    seeds = put_together(rows, [1 + ALL.index(host) for host in OTHERS])
    pairs = [
        Mask(of_host[1], sign_between(VICTIM, host))
        for host, of_host in zip(OTHERS, seeds, strict=True)
    ]
    left = without_masks({VICTIM: lies.total}, pairs)
    true = plain[0].answers[VICTIM, 2]
    assert true.abs().max() < 2**53, "the step is what a server wants to know"
    assert not (left[: len(true)] == true).any()
    assert (left.double().abs() > 2**55).double().mean() > 0.9  # evenly spread: 0.996


class TwoLists(LyingServer):
    """Says to three hosts that all have survived, and to the others that one has dropped out."""

    def to_host(self, host: int, message: Message) -> Sequence[Message]:
        if message.kind != Kind.UNMASK or host < VICTIM:
            return [message]
        sums = {**message.fields["sums"], "survivors": {"0": [1, *range(3, 7)]}}
        shares = message.tensors["shares.0"]
        lied = {"shares.0": torch.cat([shares[:1], shares[2:]])}
        return [Message(message.kind, message.iteration, {"sums": sums}, lied)]


def test_different_survivors_for_different_hosts(tmp_path: Path) -> None:
    result = lying_run(tmp_path, TwoLists())
    message = "a host has dropped out, and 0 of 5 hosts that it takes confirm that to this one"
    assert (
        result.errors.count(message) == 3
    )  # by three hosts, which the server then takes for liars
    assert result.errors.count("it leaves out its part of a masked sum") == 3
    assert ENDS not in result.errors


class TwoCrash(LyingServer):
    """One host is lost with its answer, another one with its codes, or these were altered."""

    def __init__(self, *, alters: bool) -> None:
        self._alters = alters
        self._lost: set[int] = set()

    def from_host(self, host: int, message: Message) -> Sequence[Message]:
        is_code = "codes.0" in message.tensors
        if message.kind != FEEDBACK or (host, is_code) not in ((4, False), (5, True)):
            return [message]
        if is_code and self._alters:
            return [replace(message, tensors={"codes.0": message.tensors["codes.0"] ^ 1})]
        if message.iteration == 2 and host not in self._lost:
            self._lost.add(host)
            self.pretend_gone(host)
        return [] if host in self._lost else [message]


@pytest.mark.parametrize("alters", [False, True])
def test_what_too_few_hosts_confirm_ends_no_other_host(tmp_path: Path, alters: bool) -> None:
    lies = TwoCrash(alters=alters)
    result = lying_run(tmp_path, lies)
    ended_well(result, tmp_path / "run", 4)
    gone = [[4]] if alters else [[4], [5]]
    assert [row["workers"] for row in read_events(tmp_path / "run", "lost")] == gone


class Replays(LyingServer):
    """Sends messages of one kind twice."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def to_host(self, host: int, message: Message) -> Sequence[Message]:
        del host
        return [message] * (2 if message.kind == self._kind and message.iteration == 2 else 1)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (BATCHES, "it asks question 2 a second time"),
        (Kind.UNMASK, "or a 2nd time"),
        (SWAP, "it sends SWAP of iteration 2 after SWAP of iteration 2"),
    ],
)
def test_a_question_that_is_replayed(tmp_path: Path, kind: str, why: str) -> None:
    result = lying_run(tmp_path, Replays(kind), "--swap-interval", "2")
    assert result.errors.count(why) == len(ALL) + 1, "each host, and the last line"


class Relays(LyingServer):
    """Keeps the parcels that pass it, and may change a bit."""

    def __init__(self, *, alters: bool) -> None:
        self._alters = alters
        self.seen: list[Message] = []

    def parcel(self, giver: int, taker: int, message: Message) -> Message:
        del giver, taker
        self.seen.append(message)
        if not self._alters:
            return message
        changed = {name: tensor.clone() for name, tensor in message.tensors.items()}
        first = next(iter(changed.values())).view(torch.uint8).flatten()
        first[len(first) // 2] ^= 1
        return replace(message, tensors=changed)


@claim("traps", "cannot read discriminators")
@claim(
    "sealed",
    "Discriminators of swaps, and copies for newcomers, are encrypted between the two hosts",
)
def test_a_relay_reads_no_discriminator(tmp_path: Path, plain: tuple[Plain, bytes]) -> None:
    lies = Relays(alters=False)
    result = lying_run(tmp_path, lies, "--swap-interval", "2")
    assert ended_well(result, tmp_path / "run", 4) == plain[1]
    assert len(lies.seen) == len(plain[0].parcels) == len(ALL)
    assert {message.kind for message in lies.seen} == {DISCRIMINATORS}
    passed = b"".join(t.numpy().tobytes() for m in lies.seen for t in m.tensors.values())
    for message in plain[0].parcels:
        for name, tensor in message.tensors.items():
            clear = tensor.numpy().tobytes()
            assert len(clear) < 16 or clear not in passed, name


def test_a_parcel_that_was_altered_counts_as_one_that_did_not_come(tmp_path: Path) -> None:
    result = lying_run(tmp_path, Relays(alters=True), "--swap-interval", "2")
    ended_well(result, tmp_path / "run", 4)
    assert result.errors.count("in the swap of iteration 2 is refused") == len(ALL)
    (swap,) = read_events(tmp_path / "run", "swap")
    assert len(swap["given"]) == len(ALL)
    assert not swap["taken"]
    assert not swap["exact"]


class BringsNetworks(LyingServer):
    """Puts networks of its own, all zero, into all hosts but the victim, which then answer 0."""

    def __init__(self, state: Mapping[str, Tensor]) -> None:
        self._state = state

    def to_host(self, host: int, message: Message) -> Sequence[Message]:
        if message.kind != BATCHES or message.iteration != 1 or host == VICTIM:
            return [message]
        return [adopt(1, {host: self._state}), message]


def test_networks_that_no_host_lacks(tmp_path: Path, plain: tuple[Plain, bytes]) -> None:
    values = {name.split("/", 1)[1]: t for name, t in plain[0].parcels[0].tensors.items()}
    zeros = {f"discriminator.{name}": torch.zeros_like(t) for name, t in values.items()}
    model = {name: t for name, t in zeros.items() if name.startswith(COPIED)}
    result = lying_run(tmp_path, BringsNetworks(model))
    assert result.errors.count(f"{ENDS}it gives states to workers that lack none") == 6


class AsksOthersElse(LyingServer):
    """Has all hosts but the victim answer something of which it knows what it will be."""

    def to_host(self, host: int, message: Message) -> Sequence[Message]:
        if host == VICTIM or message.kind not in (BATCHES, ROUND):
            return [message]
        flat = {n: t if n == "labels" else torch.zeros_like(t) for n, t in message.tensors.items()}
        return [replace(message, tensors=flat)]


class GivesWeights(LyingServer):
    """Gives all weight to the victim."""

    def __init__(self, *, more: bool) -> None:
        self._more = [[n, 1, 1, 1.0] for n in (98, 99)] if more else []

    def to_host(self, host: int, message: Message) -> Sequence[Message]:
        del host
        if message.kind != ROUND:
            return [message]
        (tasks,) = message.fields["lists"]
        changed = [[n, *load, float(n == VICTIM)] for n, *load, _ in tasks]
        return [replace(message, fields={**message.fields, "lists": [changed + self._more]})]


@pytest.mark.parametrize("algorithm", ["mdgan", "fl-gan"])
@claim("what-is-answered", "Hosts that were asked different things cannot unmask each other.")
def test_what_hosts_are_asked_about_is_the_same(tmp_path: Path, algorithm: str) -> None:
    """The victim's shares are sealed for hosts that were asked the same, of which there is none."""
    result = lying_run(tmp_path, AsksOthersElse(), algorithm=algorithm)
    assert f"host {VICTIM} has not sealed this for host 1" in result.errors
    assert f"host 1 has not sealed this for host {VICTIM}" in result.errors
    assert f"the sum of rank(s) {', '.join(map(str, ALL))} makes no sense" in result.errors


@pytest.mark.parametrize(
    ("weighting", "more", "why"),
    [
        ("uniform", False, "it gives workers different weights"),
        ("samples", False, f"rank {VICTIM} has 100% of the weight of a sum"),
        ("samples", True, "it gives weights to workers that no host of the sum has"),
    ],
)
def test_no_host_takes_part_in_a_sum_that_is_its_own_models(
    tmp_path: Path, weighting: str, more: bool, why: str
) -> None:
    lies = GivesWeights(more=more)
    result = lying_run(tmp_path, lies, "--weighting", weighting, algorithm="fl-gan")
    assert f"{ENDS}{why}" in result.errors
