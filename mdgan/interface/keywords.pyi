"""The keywords of `mdgan.train`, written by `python -m scripts.keywords`."""

from collections.abc import Sequence
from os import PathLike
from typing import Any, Literal, TypedDict

Text = str | PathLike[str] | Sequence[Any]

class Keywords(TypedDict, total=False):
    """Settings by the names of their flags, with _ for -; see `mdgan train --help-all`."""

    ada_target: float | None
    aggregation: Text
    algorithm: Text
    all_reduce: Literal["shared", "star", "direct"]
    architecture: Text
    audit_canaries: int
    augment: Text | None
    batch_sampling: Literal["shuffled", "poisson"]
    batch_size: int
    ca: Text | None
    certificate: Text | None
    channels_last: bool
    checkpoint_interval: int
    checkpoint_keep: int
    checkpoint_to_server: bool
    class_weight: float | None
    client_state: Literal["kept", "fresh"] | None
    clients: int | None
    clusters: Text
    compile: bool
    connect_timeout: float
    cores: Text
    credentials: Text | None
    data_dir: Text | None
    data_threads: int | Literal["auto"]
    datasets_dir: Text | None
    deadline: Text | None
    device: Literal["cpu", "cuda", "mps", "auto"]
    discriminator_batch_size: int | None
    discriminator_loss: Text
    discriminator_optimizer: Text
    dp_accountant: Literal["rdp", "prv"]
    dp_clip: float | None
    dp_delta: float | None
    dp_disclose: Text | None
    dp_encoding_share: float
    dp_epsilon: float | None
    dp_ledger: Text | None
    dp_noise: float | None
    dp_public_samples: int | None
    dp_unit: Literal["sample", "client"]
    ema: float | None
    eval_interval: int
    eval_samples: int
    exact_layers: Text | None
    extractor: Text
    feature_network: Text | None
    feature_side: int
    features: Literal["auto", "pairs", "random"]
    file_memory: int | None
    generator_batch_size: int | None
    generator_loss: Text
    generator_optimizer: Text
    generator_ranks: Text | None
    global_batch_size: int | None
    gradient_penalty: float | None
    held_out: Text | None
    image_buffer: int | None
    image_size: int | None
    inception_weights: Text | None
    init_from: Text | None
    insecure: bool
    iterations: int
    kappa: int | Literal["auto"]
    kernel_width: float
    key: Text | None
    label_prior: Literal["uniform", "data"]
    listen: Text | None
    liveness_timeout: float
    local_steps: int
    log_file: Text | None
    log_interval: int
    longest_answer: float
    lr_scaling: Text
    map: Text | None
    master_addr: Text
    master_port: int | None
    max_world_size: int | None
    merge_halves: bool
    network_interface: Text | None
    noise_sharers: int | None
    norm: Literal["batch", "group"]
    num_features: int
    on_deadline: Literal["complete", "abort"]
    out: Text | None
    participation: float
    partition: Text
    patience: float
    picture_bits: int | None
    placement: Literal["rr", "bb", "lb", "pull"]
    precision: Literal["fp32", "bf16", "fp16"]
    profile: Text | None
    quorum: float
    r1: float | None
    ranks: Text | None
    reference_batch_size: int | None
    require: Text | None
    revoked: Text | None
    round_epochs: float | None
    round_iterations: int | None
    rows_per_person: int | None
    sample_interval: int
    sampling: Literal["random", "balanced", "poisson"]
    schema: Text | None
    secure_aggregation: bool
    seed: int
    shut_out_free_riders: bool
    slots: int | Literal["auto"]
    spectral_norm: bool | None
    stale: int
    step_samples: int
    strict_data: bool
    strikes: int
    swap: Literal["pairs", "means", "derangement"]
    swap_epochs: float | None
    swap_interval: int | None
    swap_state: Literal["all", "weights"]
    sync_after: int | None
    target: Text | None
    threads: int | Literal["auto"]
    tracker: Text | None
    training_load: Text
    transport: Literal["tcp", "memory"]
    updates: Literal["sync", "async", "arrival"]
    vectorize: bool
    weighting: Literal["uniform", "samples", "kl"]
    width: int | None
    wire: Text
    workers_per_host: int | Literal["auto"] | None
    world_size: int
