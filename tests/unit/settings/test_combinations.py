"""Settings that cannot be combined or are out of range: the line that the user reads."""

from typing import Any

import pytest

from mdgan.families import registry
from mdgan.launch.settings import LaunchSettings
from mdgan.settings.declare import Settings
from tests.unit.settings.refusals import refusal, refusal_of

ARRIVAL = {"updates": "arrival"}
SECURE = {"secure_aggregation": True}
RIDERS = {"shut_out_free_riders": True}
FEGAN = {"algorithm": "fegan"}
FL_GAN = {"algorithm": "fl-gan"}
ALIKE = {"sampling": "random", "weighting": "uniform"}
PARAGAN = {"algorithm": "paragan"}
ASYNC = {**PARAGAN, "updates": "async"}
APART = {**ASYNC, "generator_ranks": "1..2"}
PRIVATE = {"dp_epsilon": 1.0, "dp_delta": 1e-3}
OF_CLIENTS = {**FL_GAN, **PRIVATE, "dp_unit": "client", "sampling": "poisson"}
POISSON = {**FL_GAN, "sampling": "poisson"}
CLIENTS = {**FL_GAN, "clients": 9}

CASES: list[tuple[dict[str, Any], str]] = [
    ({"exact_layers": "0"}, "--set exact_layers=0: all layers compute in fp32; leave it out, or"),
    ({"profile": "11..20", "iterations": 9}, "--profile 11..20: training ends with iteration 9"),
    ({"merge_halves": True, "r1": 0.5}, "--merge-halves: --r1 0.5 needs a pass over real samples"),
    ({"merge_halves": True, "updates": "async"}, "--merge-halves: with --updates async a worker"),
    ({"merge_halves": True, "vectorize": True}, "--merge-halves: with --vectorize a worker"),
    ({"vectorize": True, "updates": "async"}, "--vectorize: with --updates async workers learn"),
    ({**ARRIVAL, "stale": 1}, "--stale 1: with --updates arrival the server takes answers one by"),
    ({**ARRIVAL, "aggregation": "f2u"}, "--aggregation f2u: with --updates arrival the server"),
    ({**ARRIVAL, "deadline": "3x"}, "--deadline 3x: with --updates arrival the server takes"),
    ({**ARRIVAL, "quorum": 0.75}, "--set quorum=0.75: with --updates arrival the server takes"),
    ({**ARRIVAL, "vectorize": True}, "--vectorize: with --updates arrival the server takes"),
    ({**ARRIVAL, **RIDERS}, "--shut-out-free-riders: with --updates arrival the server takes"),
    ({**ARRIVAL, "kappa": 3}, "--kappa 3: with --updates arrival a worker has batches of its own"),
    ({**ARRIVAL, **PARAGAN}, "--updates arrival: must be one of sync, async"),
    ({**RIDERS, "batch_size": 3}, "--shut-out-free-riders: a batch of 3 is too small"),
    ({**RIDERS, "world_size": 3}, "--shut-out-free-riders: with 2 worker(s) at a time"),
    ({"aggregation": "krum:3"}, "--aggregation krum:3: needs at least 9 workers to outvote 3"),
    ({"wire": "images=topk:0.1"}, "--wire images=topk:0.1: images: not one of fp32, bf16, int8"),
    ({"wire": "jpeg"}, "--wire jpeg: write images=CODEC,feedback=CODEC"),
    ({"wire": "feedback=topk"}, "--wire feedback=topk: feedback: not one of fp32, bf16, int8, t"),
    ({"wire": "feedback=topk:0.6"}, "--wire feedback=topk:0.6: feedback: F must be above 0 and at"),
    ({"wire": "feedback=topk:1e"}, "--wire feedback=topk:1e: feedback: F must be above 0 and at"),
    ({"wire": "models=int8"}, "--wire models=int8: must be of images, feedback"),
    ({**FEGAN, "wire": "images=bf16"}, "--wire images=bf16: must be of models"),
    ({"profile": "7"}, "--profile 7: must be FROM..TO, two iterations such as 101..110"),
    ({"inception_weights": "w"}, "--inception-weights w: needs --extractor inception beside it, n"),
    ({"extractor": "inception"}, "--extractor inception: needs --inception-weights FILE; nothing"),
    # sums
    ({**SECURE, "deadline": "3x"}, "--deadline 3x: with --secure-aggregation the server sees sums"),
    (
        {**SECURE, "checkpoint_to_server": True},
        "--set checkpoint_to_server=true: with --secure-aggregation",
    ),
    ({**SECURE, "aggregation": "median"}, "--aggregation median: with --secure-aggregation the"),
    ({**SECURE, **ARRIVAL}, "--updates arrival: with --secure-aggregation the server sees sums"),
    ({**SECURE, "stale": 1}, "--stale 1: with --secure-aggregation the server sees sums alone"),
    ({**SECURE, **RIDERS}, "--shut-out-free-riders: with --secure-aggregation the server sees"),
    ({**SECURE, "wire": "feedback=int8"}, "--wire feedback=int8: with --secure-aggregation the s"),
    ({**SECURE, "kappa": 2}, "--kappa 2 of 4 worker(s): with --secure-aggregation the server"),
    ({**SECURE, "world_size": 3}, "--secure-aggregation: a sum of 2 worker(s) at a time would"),
    ({**SECURE, **CLIENTS}, "--clients 9: with --secure-aggregation the server sees sums alone"),
    ({**SECURE, **FL_GAN, "wire": "models=int8"}, "--wire models=int8: with --secure-aggregation"),
    # privacy
    ({"dp_delta": 0.1}, "--dp-delta 0.1: is for --dp-epsilon or --dp-noise"),
    ({"dp_ledger": "x"}, "--dp-ledger x: is for --dp-epsilon or --dp-noise"),
    ({"dp_disclose": "losses"}, "--dp-disclose losses: is for --dp-epsilon or --dp-noise"),
    ({"dp_epsilon": 1.0}, "--dp-epsilon 1: holds but for a probability delta; add --dp-delta"),
    ({**PRIVATE, "dp_noise": 0}, "--dp-noise 0: with --dp-epsilon 1 there must be noise"),
    ({**PRIVATE, "dp_clip": float("inf")}, "--dp-clip inf: --dp-epsilon 1 needs a bound for what"),
    (
        {**PRIVATE, "dp_public_samples": 9, "dp_disclose": "classes"},
        "--set dp_public_samples=9: with --dp-disclose classes the true number is told",
    ),
    ({"audit_canaries": 5}, "--audit-canaries 5: is for noise that hides a worker's samples"),
    ({**PRIVATE, "merge_halves": True}, "--merge-halves: with --dp-epsilon 1 real samples are"),
    ({**PRIVATE, "augment": "ada"}, "--augment ada: with --dp-epsilon 1 it counts the logits"),
    ({**PRIVATE, "r1": 2, "augment": "diffaugment"}, "--r1 2 --augment diffaugment: with --dp-eps"),
    ({**PRIVATE, "precision": "bf16"}, "--precision bf16: with --dp-epsilon 1 gradients of single"),
    (
        {**PRIVATE, "compile": True},
        "--set compile=true: with --dp-epsilon 1 gradients of single samples",
    ),
    (
        {**PRIVATE, "channels_last": True},
        "--set channels_last=true: with --dp-epsilon 1 gradients of",
    ),
    ({**PRIVATE, "vectorize": True}, "--vectorize: with --dp-epsilon 1 each worker draws batches"),
    ({**PRIVATE, "profile": "1..2"}, "--profile 1..2: with --dp-epsilon 1 it tells how long"),
    (
        {"batch_sampling": "poisson", "merge_halves": True},
        "--merge-halves: with --batch-sampling poisson real samples are judged by themselves",
    ),
    # rounds
    (
        {**FEGAN, **PRIVATE, "clusters": "kmeans:3"},
        "--clusters kmeans:3: groups follow all samples of a worker at once, which no noise covers",
    ),
    ({**CLIENTS, **PRIVATE}, "--clients 9: with --dp-epsilon 1 each client has a machine that"),
    (
        {**FL_GAN, **PRIVATE, "training_load": "measured"},
        "--training-load measured: with --dp-epsilon 1 a client takes no step to try how long",
    ),
    ({**FL_GAN, "dp_unit": "client"}, "--dp-unit client: is for --dp-epsilon or --dp-noise; give"),
    ({**OF_CLIENTS, "sampling": "random"}, "--sampling random: with --dp-unit client each client"),
    (
        {**OF_CLIENTS, **SECURE, "dp_clip": 600},
        "--dp-clip 600.0: with --dp-unit client --secure-aggregation values below 512 alone are",
    ),
    (
        {**OF_CLIENTS, "checkpoint_to_server": True},
        "--set checkpoint_to_server=true: with --dp-unit client",
    ),
    ({**POISSON, "weighting": "samples"}, "--weighting samples: with --sampling poisson all upda"),
    ({**POISSON, "aggregation": "median"}, "--aggregation median: with --sampling poisson updates"),
    ({**POISSON, "wire": "models=int8"}, "--wire models=int8: with --sampling poisson updates"),
    (
        {**POISSON, **SECURE, "participation": 0.9},
        "--participation 0.9: with --sampling poisson --secure-aggregation sums of fewer than thre",
    ),
    ({**FL_GAN, "on_deadline": "abort"}, "--set on_deadline=abort: needs --deadline beside it"),
    ({**FEGAN, "aggregation": "median"}, "--weighting kl: with --aggregation median every worker"),
    (
        {**FEGAN, **ALIKE, "aggregation": "krum:1"},
        "--aggregation krum:1: needs at least 5 workers a round to outvote 1, not 1; use more (--w",
    ),
    ({**FL_GAN, "vectorize": True}, "--vectorize: clients that keep moments between rounds train"),
    ({**CLIENTS, "vectorize": True, "placement": "pull"}, "--vectorize: with --placement pull a s"),
    ({**CLIENTS, "vectorize": True, "merge_halves": True}, "--vectorize: clients learn from real"),
    ({**FL_GAN, "slots": 3}, "--slots 3: places --clients; give these, too"),
    ({**FL_GAN, "placement": "rr"}, "--placement rr: places --clients; give these, too"),
    ({**CLIENTS, "partition": "none"}, "--partition none: with --clients 9 clients are trained an"),
    (
        {**CLIENTS, "client_state": "kept"},
        "--set client_state=kept: with --clients 9 clients are tra",
    ),
    ({**CLIENTS, "wire": "models=int8"}, "--wire models=int8: sums of --clients travel as they a"),
    ({**CLIENTS, "placement": "pull", "deadline": "9"}, "--deadline 9: with --placement pull --cl"),
    ({**CLIENTS, "training_load": "measured"}, "--training-load measured: with --clients 9 client"),
    ({**FEGAN, "training_load": "heavy"}, "--training-load heavy: not one of equal, samples, meas"),
    ({**FEGAN, "training_load": "weak:0.5"}, "--training-load weak:0.5: not one of equal"),
    ({**FEGAN, "training_load": "weak:0,speed"}, "--training-load weak:0,speed: FRACTION must be"),
    ({**FEGAN, "training_load": "weak:e,speed"}, "--training-load weak:e,speed: FRACTION must be"),
    ({**FEGAN, "clusters": "dbscan:3"}, "--clusters dbscan:3: not one of none, kmeans:K, gmm:K"),
    ({**FEGAN, "clusters": "kmeans:1"}, "--clusters kmeans:1: K must be from 2 to 1000"),
    ({**FEGAN, "clusters": "gmm:1001"}, "--clusters gmm:1001: K must be from 2 to 1000"),
    ({**FEGAN, "participation": 1.5}, "--participation 1.5: must be above 0 and at most 1"),
    ({**FEGAN, "participation": float("nan")}, "--participation nan: must be above 0 and at most"),
    ({**FEGAN, "round_iterations": 0}, "--round-iterations 0: must be at least 1"),
    ({**FEGAN, "round_epochs": float("inf")}, "--set round_epochs=inf: must be above 0"),
    # groups of workers
    ({**PARAGAN, "participation": 0.5}, "--participation 0.5: paragan averages the gradients of"),
    ({**PARAGAN, "kappa": 3}, "--kappa 3: a worker of paragan has use for two generated batches"),
    (
        {**PARAGAN, "reference_batch_size": 5},
        "--set reference_batch_size=5: is for --lr-scaling lin",
    ),
    ({**PARAGAN, "global_batch_size": 3}, "--global-batch-size 3: fewer samples than the 4 worke"),
    (
        {**PARAGAN, "global_batch_size": 30, "generator_batch_size": 5},
        "--set generator_batch_size=5: --global-batch-size 30 says it for all workers; give one",
    ),
    ({**PARAGAN, "image_buffer": 2}, "--set image_buffer=2: is for --updates async; add that"),
    ({**PARAGAN, "generator_ranks": "1..2"}, "--generator-ranks 1..2: is for --updates async; ad"),
    ({**ASYNC, "local_steps": 2}, "--local-steps 2: with --updates async both networks take one"),
    ({**ASYNC, "generator_ranks": "1..5"}, "--generator-ranks 1..5: rank 5 is outside 1..4 (--wo"),
    ({**ASYNC, "generator_ranks": "1..4"}, "--generator-ranks 1..4: leaves no worker for the dis"),
    (
        {**APART, "image_buffer": 0},
        "--set image_buffer=0: with --generator-ranks 1..2 discriminators",
    ),
    (
        {**APART, "sync_after": 5},
        "--set sync_after=5: with --generator-ranks 1..2 a worker has one n",
    ),
    ({**APART, "kappa": 2}, "--kappa 2: with --generator-ranks 1..2 discriminators learn from"),
]


@pytest.mark.parametrize(("values", "says"), CASES, ids=[says for _, says in CASES])
def test_what_is_refused(values: dict[str, Any], says: str) -> None:
    assert refusal_of(values).startswith(says)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"transport": "memory", "ranks": "0"}, "--ranks 0: with --transport memory every rank is"),
        ({"ranks": "0"}, "--workers-per-host auto: is tried out where one `mdgan train` starts"),
        ({"transport": "memory"}, "--workers-per-host auto: is tried out where one"),
        ({"device": "cuda"}, "--workers-per-host auto: is tried out where one `mdgan train`"),
        ({"cores": "0"}, "--workers-per-host auto: is tried out where one `mdgan train` starts"),
    ],
)
def test_what_a_machine_is_refused(values: dict[str, Any], says: str) -> None:
    assert refusal(LaunchSettings, {"workers_per_host": "auto", **values}).startswith(says)


def test_what_there_is_a_row_for_has_the_settings_that_it_names() -> None:
    kinds: list[type[Settings]] = [registry.algorithm(name).settings for name in registry.names()]
    kinds.append(LaunchSettings)
    for kind in kinds:
        for row, component in kind.rows():
            for column in (row.when, row.what):
                names = column.replace("!", "").split() if isinstance(column, str) else []
                parts = [part.partition("=")[0] for name in names for part in name.split("+")]
                assert set(parts) <= {*registry.declared_settings(), *LaunchSettings.declared()}
            assert component in kind.__mro__ or component is not kind
