"""On which hosts' noise a host relies in a sum, and with which sums it therefore helps."""

from collections.abc import Mapping
from math import nan

import pytest
import torch
from torch import Tensor

from mdgan.engine.counting import counts_form, read_counts
from mdgan.engine.host.encoding import HostEncoding
from mdgan.engine.host_keys import HostKeys, NotMasked
from mdgan.engine.stages.mask import read_masked
from mdgan.messages import Kind, Message
from mdgan.privacy.noise import with_noise
from mdgan.privacy.shared_noise import NoiseSharing
from mdgan.samples.table.kind import TableKind
from mdgan.samples.table.schema import Schema, WholeColumn
from tests.claims.registry import claim
from tests.unit.credentials.test_signing import ANOTHER, AUTHORITY, issued
from tests.unit.engine.secure import RUN, Hosts
from tests.unit.engine.test_masked_answers import ZEROS, is_sum_of


@claim("sharers-counted", "Each host counts certificates itself, by the keys that it has checked")
def test_a_sum_of_fewer_workers_than_it_takes_is_neither_masked_nor_unmasked() -> None:
    """All add a part of the noise; a sum of fewer would have too little of it."""
    hosts = Hosts(5, sharing=NoiseSharing(5))
    with pytest.raises(NotMasked, match="all but 4 of the 5 workers that share the noise"):
        hosts.answer(1, ZEROS, hosts.question(parties={"0": [1, 2, 3, 4]}))
    hosts = Hosts(5, sharing=NoiseSharing(5))
    for host in hosts.parties[:4]:
        hosts.answer(host, ZEROS)
    with pytest.raises(NotMasked, match="all but 4 of the 5 workers that share the noise"):
        hosts.confirm(1, [1, 2, 3, 4])
    hosts.answer(5, ZEROS)
    assert is_sum_of(hosts.total(hosts.parties), [0])


MANY = {1: [1, *range(10, 16)]}
"""One host carries seven workers."""


@pytest.mark.parametrize(
    ("number", "sharing", "sharers"),
    [
        (4, NoiseSharing(10), 4),
        (4, NoiseSharing(10, 3), 3),
        (4, NoiseSharing(10, 5), 5),
        (4, NoiseSharing(10, None, 5), 4),
        (4, None, 1),
    ],
)
def test_noise_is_divided_by_hosts_and_not_by_their_workers(
    number: int, sharing: NoiseSharing | None, sharers: int
) -> None:
    hosts = Hosts(number, sharing=sharing, carried=MANY)
    assert {mask.num_sharers(hosts.question()) for mask in hosts.masks.values()} == {sharers}


@pytest.mark.parametrize("sharing", [NoiseSharing(10, 5), NoiseSharing(10, None, 5)])
def test_many_workers_of_one_host_do_not_stand_for_many_parts(sharing: NoiseSharing) -> None:
    hosts = Hosts(4, sharing=sharing, carried=MANY)
    with pytest.raises(NotMasked, match=r"5 hosts' answers|5 or more"):
        hosts.answer(2, ZEROS)


@claim(
    "one-file",
    "A credentials file that all machines share is one certificate, so each host adds all of "
    "the noise",
)
def test_a_file_that_all_share_is_one_certificate() -> None:
    """A server that has it, too, could make any number of hosts."""
    shared = issued(AUTHORITY, None)
    hosts = Hosts(5, sharing=NoiseSharing(5), certificates=dict.fromkeys(range(1, 6), shared))
    assert {mask.num_sharers(hosts.question()) for mask in hosts.masks.values()} == {1}
    hosts = Hosts(5, sharing=NoiseSharing(5, 2), certificates=dict.fromkeys(range(1, 6), shared))
    with pytest.raises(NotMasked, match=r"all but 1 of the 2 certificates \(or hosts\)"):
        hosts.answer(1, ZEROS)


def test_certificates_without_a_role_count_by_their_keys() -> None:
    credentials = {host: issued(AUTHORITY, None) for host in range(1, 5)}
    hosts = Hosts(5, sharing=NoiseSharing(5), certificates={**credentials, 5: credentials[4]})
    assert {mask.num_sharers(hosts.question()) for mask in hosts.masks.values()} == {4}


def test_one_certificate_is_in_a_sum_once() -> None:
    credentials = {host: issued(AUTHORITY, "worker") for host in range(1, 5)}
    hosts = Hosts(5, sharing=NoiseSharing(5), certificates={**credentials, 5: credentials[4]})
    with pytest.raises(NotMasked, match="names a host twice"):
        hosts.answer(1, ZEROS)


@claim("sharers-counted", "Each host counts certificates itself, by the keys that it has checked")
def test_a_certificate_of_another_authority_shares_no_noise() -> None:
    credentials = {host: issued(AUTHORITY, "worker") for host in range(1, 5)}
    hosts = Hosts(
        5, sharing=NoiseSharing(5), certificates={**credentials, 5: issued(ANOTHER, "worker")}
    )
    assert hosts.masks[1].num_sharers(hosts.question()) == 4
    assert not hosts.answer(1, ZEROS).tensors


KIND = TableKind(Schema(columns=(WholeColumn(name="age", low=0, high=200),)))


@claim("shared-noise", "also to counts of tables.")
@pytest.mark.parametrize("number", [4, 5])
def test_counts_take_the_noise_of_all_though_answers_have_all_of_it(number: int) -> None:
    """Noisy counts add up on their lattice, exactly."""
    hosts = Hosts(4, sharing=NoiseSharing(number, counts_alone=True))
    hosts.parties = [1, 2, 3]
    assert hosts.answer(1, ZEROS).tensors
    hosts = Hosts(4, sharing=NoiseSharing(number, counts_alone=True))
    form, told = counts_form(KIND, noisy=True), dict[int, Tensor]()
    question = Message(Kind.ASKCOUNTS, 1, {**hosts.question().fields, "least_noise": 3.0})
    for host, mask in hosts.masks.items():

        def count(parts: Mapping[int, float], host: int = host) -> dict[int, Tensor]:
            assert parts[host] == pytest.approx(1 / 2)
            sums = KIND.noisy_form(torch.full((KIND.num_counts,), host)).double()
            told[host] = with_noise(sums, KIND.num_histograms**0.5, 1.5, bytes(32))
            return {host: told[host]}

        encoding = HostEncoding(KIND, count, noisy=True, noises={host: 3.0})
        if number > len(hosts.masks):
            with pytest.raises(NotMasked, match="all but 4 of the 5 workers that share the noise"):
                encoding.answer(question, mask)
            return
        answer = read_masked(encoding.answer(question, mask), form, {0: hosts.parties})
        assert isinstance(answer, dict)
        hosts.sent[host] = answer[0]
    total = hosts.total(hosts.parties)
    assert total is not None
    assert torch.equal(total[:-2] / form.arithmetic.scale, torch.stack([*told.values()]).sum(0))


@pytest.mark.parametrize(
    ("noisy", "values"),
    [
        (True, torch.zeros(KIND.num_noisy_counts, dtype=torch.int64)),
        (True, torch.zeros(KIND.num_counts, dtype=torch.float64)),
        (True, torch.full((KIND.num_noisy_counts,), nan, dtype=torch.float64)),
        (True, torch.full((KIND.num_noisy_counts,), 1e15, dtype=torch.float64)),
        (False, torch.full((KIND.num_counts,), -1)),
        (False, torch.full((KIND.num_counts,), 1 << 50)),
    ],
)
def test_counts_that_no_rows_have_are_refused(noisy: bool, values: Tensor) -> None:
    form = counts_form(KIND, noisy=noisy)
    with pytest.raises(ValueError, match="counts"):
        read_counts(Message(Kind.COUNTS, 1, tensors={"counts": values}), form)
    fits = torch.zeros(form.shape, dtype=torch.float64 if noisy else torch.int64)
    assert not read_counts(Message(Kind.COUNTS, 1, tensors={"counts": fits}), form).any()


@claim("sharers-counted", "and unmasks no sum with fewer.")
def test_noise_that_was_left_out_is_not_made_up_for_by_keys_that_are_told_later() -> None:
    """Once hosts have answered, one that remains says that it carries what the lost one did."""
    certificates = {host: issued(AUTHORITY, "worker") for host in range(1, 6)}
    for sharing, lacks in (
        (NoiseSharing(5), "all but 4 of the 5 workers"),
        (NoiseSharing(4), "all but 4 of the 5 certificates"),
    ):
        hosts = Hosts(5, sharing=sharing, certificates=certificates)
        for host in hosts.parties[:4]:
            hosts.answer(host, ZEROS)
        liar = HostKeys([4, 5], certificates[4]).make_key(RUN)
        hosts.masks[1].keys.learn([liar, {**hosts.keys[5], "signature": "00"}])
        with pytest.raises(NotMasked, match=lacks):
            hosts.confirm(1, [1, 2, 3, 4])
