"""What a user may require: `--require`, and guarded links."""

from typing import Any

import pytest

from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.launch.requirements import (
    check_certificates,
    check_delta,
    check_required,
    least_parties,
    least_sharers,
    parse_requirements,
)
from mdgan.launch.settings import LaunchSettings, check_exposed, read_identity, without_other_guards
from tests.claims.registry import claim

DP = {"dp_epsilon": 8.0, "dp_delta": 1e-5}
SECURE = {"secure_aggregation": True, "world_size": 7}
FEDERATED = {"algorithm": "fl-gan", "dp_unit": "client"}


@pytest.mark.parametrize(
    ("required", "settings", "lacks"),
    [
        ("dp", DP, ""),
        ("dp", {}, "no differential privacy"),
        ("dp", {"dp_noise": 0.0}, "no differential privacy"),
        ("epsilon<=8", DP, ""),
        ("epsilon <= 8", DP, ""),
        ("epsilon<=7.9", DP, "the run has epsilon 8"),
        ("epsilon<=8", {"dp_noise": 1.0, "dp_delta": 1e-5}, "bounds no epsilon"),
        ("delta<=1e-5", DP, ""),
        ("delta<=1e-6", DP, "the run has delta"),
        ("secure-aggregation", SECURE, ""),
        ("secure-aggregation", DP, "no --secure-aggregation"),
        ("secure-aggregation>=6", SECURE, ""),
        ("secure-aggregation >= 7", SECURE, "the answers of 6 worker"),
        (
            "secure-aggregation>=4",
            {**SECURE, "algorithm": "fl-gan", "participation": 0.5},
            "the answers of 3 worker",
        ),
        ("secure-aggregation", {"algorithm": "paragan"}, "no --secure-aggregation"),
        ("dp,secure-aggregation,epsilon<=8", {**DP, **SECURE}, ""),
        ("dp,secure-aggregation,epsilon<=8", SECURE, "no differential privacy"),
        ("noise-sharers>=6", {**DP, **SECURE, "algorithm": "moments"}, ""),
        ("noise-sharers >= 7", {**DP, **SECURE, "algorithm": "moments"}, "6 worker.s. share"),
        ("noise-sharers>=3", {**DP, "algorithm": "moments"}, "share no noise"),
        ("noise-sharers>=3", {**SECURE, "algorithm": "moments"}, "share no noise"),
        ("noise-sharers>=3", {**DP, **SECURE}, "share no noise"),
        ("noise-sharers>=3,dp", {**DP, **SECURE, **FEDERATED}, ""),
    ],
)
@claim(
    "require",
    "With --require the workers of a machine take part only in a run that has differential "
    "privacy of samples (dp), no larger epsilon or delta, or secure aggregation "
    "(secure-aggregation>=5).",
)
@claim("sharers-left", "has a machine help with no sum of fewer")
def test_what_a_run_must_have(required: str, settings: dict[str, Any], lacks: str) -> None:
    requirements, run = parse_requirements(required), registry.read_settings([settings])
    if not lacks:
        check_required(requirements, run)
        return
    with pytest.raises(BadInput, match=lacks):
        check_required(requirements, run)


@pytest.mark.parametrize(
    ("text", "least"),
    [
        ("dp", 3),
        ("secure-aggregation", 3),
        ("secure-aggregation>=2", 3),
        ("dp,secure-aggregation >= 5,secure-aggregation", 5),
    ],
)
def test_how_many_answers_a_sum_must_have(text: str, least: int) -> None:
    assert least_parties(parse_requirements(text)) == least
    assert least_parties(None) == 3


def test_how_many_certificates_must_share_the_noise() -> None:
    required = parse_requirements("dp,noise-sharers >= 5,secure-aggregation>=7,noise-sharers>=2")
    assert (least_sharers(required), least_parties(required)) == (5, 7)
    assert least_sharers(None) == least_sharers(parse_requirements("dp")) == 1


def test_a_certificate_that_all_share_is_not_many() -> None:
    run = registry.read_settings([{**DP, **SECURE, "algorithm": "moments", "noise_sharers": 4}])
    with pytest.raises(BadInput, match=r"--set noise_sharers=4: .*mdgan credentials issue"):
        check_certificates(None, run)
    run = run.but(noise_sharers=None)
    check_certificates(None, run)
    with pytest.raises(BadInput, match=r"--require noise-sharers>=2: .*mdgan credentials issue"):
        check_certificates(parse_requirements("noise-sharers>=2"), run)


@pytest.mark.parametrize(
    "text",
    [
        *("", "privacy", "epsilon", "epsilon<=", "epsilon<=0", "delta<=-1"),
        *("noise-sharers", "noise-sharers>=", "noise-sharers<=5", "noise-sharers>=1.5"),
        *("secure-aggregation>=", "secure-aggregation>=-1", "secure-aggregation<=5"),
    ],
)
def test_what_is_no_requirement(text: str) -> None:
    with pytest.raises(ValueError, match="is none of dp, epsilon<=E"):
        parse_requirements(text)


@pytest.mark.parametrize(
    ("settings", "refuses"),
    [
        ({"partition": "none"}, ""),
        ({"partition": "iid"}, ""),
        ({"partition": "none", "dp_disclose": "features"}, "the run has --dp-disclose features"),
    ],
)
@claim("require-checked", "mdgan join with dp refuses --dp-disclose.")
def test_what_a_server_may_not_choose(settings: dict[str, Any], refuses: str) -> None:
    run = registry.read_settings([{**DP, **settings}])
    check_required(None, run, from_server=True)
    requirements = parse_requirements("dp,epsilon<=8")
    check_required(requirements, run)
    if not refuses:
        check_required(requirements, run, from_server=True)
        return
    with pytest.raises(BadInput, match=f"--require dp,epsilon<=8: {refuses}"):
        check_required(requirements, run, from_server=True)


def test_an_epsilon_takes_a_delta_that_protects_each_sample() -> None:
    run = registry.read_settings([{**DP, "dp_delta": 0.01}])
    for required in (None, *map(parse_requirements, ("secure-aggregation", "dp,delta<=0.01"))):
        check_delta(required, run, {1: 100})
    epsilon = parse_requirements("epsilon<=8")
    check_delta(epsilon, run, {1: 99})
    with pytest.raises(BadInput, match=r"rank 2 may give away one of its 100 samples; .*<=0\.01"):
        check_delta(epsilon, run, {1: 99, 2: 100})


def test_without_a_file_there_is_no_identity() -> None:
    assert read_identity(LaunchSettings().links) is None
    assert read_identity(LaunchSettings(insecure=True).links) is None


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"credentials": "x", "insecure": True}, "--insecure: --credentials is given, too"),
        ({"ca": "x", "insecure": True}, "--insecure: --set ca is given, too"),
        ({"credentials": "x", "key": "y"}, "--set key: --credentials has it all"),
        ({"ca": "x"}, "--set ca=x: needs --set certificate=FILE"),
        ({"certificate": "x"}, "--set certificate=x: needs --set ca=FILE"),
        ({"key": "x"}, "--set key=x: needs --set ca=FILE"),
        ({"ca": "x", "key": "y"}, "--set ca=x: needs --set certificate=FILE"),
        ({"credentials": "nowhere"}, "nowhere: does not exist"),
    ],
)
def test_what_contradicts_itself(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_identity(LaunchSettings(**settings).links)
    assert says in str(caught.value)


def test_flags_that_guard_links_replace_all_those_of_a_file() -> None:
    theirs = {"credentials": "run.cred", "insecure": False, "seed": 3, "revoked": "list"}
    assert without_other_guards({"seed": 4, "ca": None, "insecure": False}, theirs) == theirs
    for flags in ({"insecure": True}, {"ca": "a", "certificate": "b", "key": "c"}):
        assert without_other_guards(flags, theirs) == {"seed": 3, "revoked": "list"}


@pytest.mark.parametrize("address", ["10.0.0.1", "192.168.7.3", "0.0.0.0", "::", "fe80::1%eth0"])
@claim(
    "strangers",
    "Where others could reach a port, mdgan refuses to start without certificates, unless"
    " you say --insecure",
)
def test_an_address_that_others_can_reach_needs_credentials(address: str) -> None:
    with pytest.raises(BadInput) as caught:
        check_exposed(address, LaunchSettings(master_addr="somewhere").links)
    for part in ("--master-addr somewhere", address, "--credentials FILE", "--insecure"):
        assert part in str(caught.value)
    check_exposed(address, LaunchSettings(credentials="run.cred").links)
    check_exposed(address, LaunchSettings(ca="a", certificate="b", key="c").links)
    check_exposed(address, LaunchSettings(insecure=True).links)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.1", "::1"])
def test_what_no_other_machine_can_reach_needs_none(address: str) -> None:
    check_exposed(address, LaunchSettings().links)
