"""The settings of ParaGAN, what they exclude, and its entry in the registry."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from typing_extensions import override

from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.families.contract import Algorithm, updates_setting
from mdgan.families.data_parallel.scaling import BatchSizes, Scaling
from mdgan.gan.optimizer_settings import SCALING_RULE_NAMES
from mdgan.settings import declare
from mdgan.settings.excludes import Condition, table
from mdgan.spelling import flag

NAME = "paragan"
SHARED, STAR, DIRECT = "shared", "star", "direct"
_MOST_BATCHES = 2
_ALONE = "local-step"
_MOST_BUFFERED = 1000
_RANGE = re.compile(r"([0-9]{1,6})\.\.([0-9]{1,6})")

_ALWAYS = Condition(flag("algorithm", NAME), lambda _run: True, lambda _run: NAME)
_LAGS = Condition(flag("updates", "async"), lambda run: run.asynchrony.lag_at(1) > 0)
_KAPPA = Condition(
    flag("kappa", 2), lambda run: run.kappa not in ("auto", 1), lambda run: flag("kappa", run.kappa)
)


class Groups(NamedTuple):
    """The workers of each network's group, in increasing order."""

    generator: list[int]
    discriminator: list[int]


@dataclass(frozen=True)
class GeneratorRanks:
    """The workers that train the generator alone; all others train the discriminator alone."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}..{self.last}"

    def __contains__(self, worker: int) -> bool:
        return self.first <= worker <= self.last

    def groups(self, workers: Iterable[int]) -> Groups:
        """Divides workers into the two groups."""
        ordered = sorted(workers)
        return Groups([n for n in ordered if n in self], [n for n in ordered if n not in self])


def parse_generator_ranks(text: str) -> GeneratorRanks:
    """Reads `--generator-ranks`, or raises `ValueError`."""
    match = _RANGE.fullmatch(text)
    if match is None:
        raise ValueError("must be a range of ranks such as 1..2")
    first, last = int(match[1]), int(match[2])
    if last < first:
        raise ValueError(f"runs backwards; write {last}..{first}")
    if first == 0:
        raise ValueError("rank 0 is the server; begin with 1")
    return GeneratorRanks(first, last)


class BatchSettings(declare.Settings):
    """Batch sizes, and how learning rates follow from them."""

    global_batch_size: int | None = declare.setting(
        None,
        "Samples in the batches of all workers together, dealt out again when workers come or go.",
        declare.whole(1),
        symbol="B",
        default_text="--batch-size for each worker",
        other_names=("--total-batch-size", "--effective-batch-size"),
    )
    lr_scaling: str = declare.setting(
        "none",
        "How learning rates grow with the samples of an iteration: not, as they do (linear), as "
        "their square root does (sqrt), or by a rule of your own.",
        SCALING_RULE_NAMES.setting(stand_in="linear"),
        metavar="RULE",
    )
    reference_batch_size: int | None = declare.key_setting(
        None,
        "With --lr-scaling: the samples of an iteration for which learning rates are given.",
        declare.whole(1),
        default_text="--batch-size, that is, one worker",
    )
    generator_batch_size: int | None = declare.key_setting(
        None,
        "Samples of a worker that its generator learns from.",
        declare.whole(1),
        metavar="b",
        default_text="--batch-size",
    )
    discriminator_batch_size: int | None = declare.key_setting(
        None,
        "Real samples of a worker that its discriminator learns from, and generated ones.",
        declare.whole(1),
        metavar="b",
        default_text="--batch-size",
    )

    excludes = table(
        """
        lr_scaling=none   | reference_batch_size |
            is for {lr_scaling=linear} or sqrt; add one
        global_batch_size | generator_batch_size discriminator_batch_size |
            {when} says it for all workers; give one of them
        """
    )


class AsynchronySettings(declare.Settings):
    """Whether a network waits for the other."""

    updates: str = updates_setting()
    image_buffer: int | None = declare.key_setting(
        None,
        "With --updates async: how many iterations ago the images were made that discriminators "
        "learn from; 0 is --updates sync.",
        declare.whole(0, _MOST_BUFFERED),
        metavar="K",
        default_text="1",
    )
    sync_after: int | None = declare.key_setting(
        None,
        "With --updates async: the last iteration of that kind; the others are synchronous.",
        declare.whole(1),
        metavar="I",
        default_text="all iterations are asynchronous",
    )
    generator_ranks: GeneratorRanks | None = declare.setting(
        None,
        "With --updates async: the workers that train the generator alone, such as 1..2; the "
        "others train the discriminator alone.",
        declare.parsed(parse_generator_ranks),
        metavar="1..g",
        default_text="every worker trains both networks",
    )

    excludes = table(
        """
        updates=sync    | image_buffer sync_after generator_ranks | is for {updates=async}; add that
        generator_ranks | image_buffer=0 |
            with {when} discriminators learn from images of an earlier iteration; use 1 or more
        generator_ranks | sync_after |
            a worker has one network to train, and would wait for the others half of the time
        """
    )

    def lag_at(self, iteration: int) -> int:
        """K of an iteration: discriminators learn from images of K iterations before; 0: sync."""
        is_over = self.sync_after is not None and iteration > self.sync_after
        if self.updates == "sync" or is_over:
            return 0
        return 1 if self.image_buffer is None else self.image_buffer


class DataParallelSettings(RunSettings):
    """The settings of ParaGAN, beside those that every algorithm has."""

    batches = declare.section(BatchSettings)
    asynchrony = declare.section(AsynchronySettings)

    algorithm: str = declare.setting(NAME, "What trains.", declare.text(), is_usual=True)
    all_reduce: str = declare.setting(
        SHARED,
        "Where gradients are added up: in memory that all processes share, if they are on one "
        "machine and compute on its CPUs, else by the server (shared); always by the server "
        "(star); or by all hosts, which send each other parts without encryption, on machines and "
        "a network of one owner (direct). The result is the same.",
        declare.one_of(SHARED, STAR, DIRECT),
    )

    excludes = table(
        """
        @always        | participation |
            {when} averages the gradients of all workers; leave it out, or use fewer workers
        @lags          | local_steps |
            with {when} both networks take one step at a time; leave it out, or give
            discriminators more samples with {set discriminator_batch_size=N}
        all_reduce=direct | generator_ranks deadline dp_epsilon dp_noise |
            with {when} all hosts must add up together; use {all_reduce=star}
        generator_ranks | @kappa |
            with {when} discriminators learn from the images that the generator learnt from; leave
            it out
        """,
        always=_ALWAYS,
        lags=_LAGS,
        kappa=_KAPPA,
    )

    def check(self) -> None:
        """Refuses values that do not fit the number of workers, all of which train each time."""
        super().check()
        if self.kappa != "auto" and self.kappa > _MOST_BATCHES:
            raise BadInput(
                flag("kappa", self.kappa),
                f"a worker of {NAME} has use for two generated batches at most, one for each "
                "network",
                "use 1 or 2",
            )
        if self.asynchrony.generator_ranks is not None:
            self._check_apart(self.asynchrony.generator_ranks)
        together, samples = max(map(len, self.groups())), self.batches.global_batch_size
        if samples is not None and samples < together:
            why = f"fewer samples than the {together} workers that train a network"
            raise BadInput(flag("global_batch_size", samples), why, "use more, or fewer workers")
        if self.batches.lr_scaling in SCALING_RULE_NAMES.registered:
            scaling = self.scaling()  # a rule of the user's own may fail for some number of workers
            for num_workers in range(1, self.num_workers + 1):
                for sizes in zip(*scaling.batch_sizes(range(num_workers)).values(), strict=True):
                    scaling.rate_factor(sum(sizes))

    def _check_apart(self, ranks: GeneratorRanks) -> None:
        setting = flag("generator_ranks", ranks)
        if ranks.last > self.num_workers:
            raise BadInput(
                setting,
                f"rank {ranks.last} is outside 1..{self.num_workers} "
                f"({flag('world_size', self.world_size)})",
            )
        if len(ranks.groups(range(1, self.world_size)).discriminator) == 0:
            raise BadInput(setting, "leaves no worker for the discriminator", "use fewer")

    def groups(self) -> list[list[int]]:
        """The groups of workers at the start: all in one, or G's and D's."""
        workers, ranks = list(range(1, self.world_size)), self.asynchrony.generator_ranks
        return [workers] if ranks is None else [*ranks.groups(workers)]

    @override
    def holds_data(self, worker: int) -> bool:
        ranks = self.asynchrony.generator_ranks
        return ranks is None or worker not in ranks

    def scaling(self) -> Scaling:
        """The batch sizes and learning rates of any number of workers."""
        batches, usual = self.batches, self.training.batch_size
        sizes = batches.discriminator_batch_size or usual, batches.generator_batch_size or usual
        reference = batches.reference_batch_size or usual
        return Scaling(BatchSizes(*sizes), batches.global_batch_size, batches.lr_scaling, reference)


@dataclass(frozen=True)
class _ParaGAN(Algorithm[DataParallelSettings]):
    def phases(self, settings: DataParallelSettings) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The phases without the D steps, if both networks step at once until the end."""
        server, host = super().phases(settings)
        if settings.all_reduce == STAR:
            host = tuple(phase for phase in host if phase != "step")
        if settings.asynchrony.lag_at(settings.training.iterations):
            server = tuple(phase for phase in server if phase != _ALONE)
        return server, host


PARAGAN = _ParaGAN(
    NAME,
    "workers train both models on their own data, and every gradient is averaged",
    DataParallelSettings,
    "mdgan.families.data_parallel.build:BUILDER",
    server_phases=("scale", "send", "wait", "aggregate", _ALONE, "step"),
    host_phases=("receive", "generate", "real-half", "fake-half", "aggregate", "send", "step"),
)
"""Shi et al. 2024."""
