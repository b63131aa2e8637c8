"""What `mdgan plan` and `--dry-run` say of MD-GAN: bytes, work, and the paper's table III."""

from collections.abc import Sequence
from math import inf, prod
from typing import NamedTuple

from mdgan.engine import message_sizes as sizes
from mdgan.engine.answers import LEAST_TO_SUM
from mdgan.families import contract
from mdgan.families.mdgan import messages
from mdgan.families.mdgan.settings import MEANS, MDGANSettings
from mdgan.families.mdgan.swaps import swap_every
from mdgan.families.mdgan.variants.holders import Holders
from mdgan.gan.build import Models, build_model, judging_operations, num_parameters
from mdgan.gan.optimizers import training_bytes
from mdgan.spelling import count, flag

_SWAPS = {
    "pairs": "pairs swap",
    "derangement": "all exchange along a permutation",
    "means": "pairs go on with the mean of their discriminators",
}
_STEP_SAMPLES = 48
_MANY_SAMPLES = 64
"""With this many samples in a step a discriminator learns well beside others that judge one G."""
_LABEL_BYTES = 8
_ADDRESSES_BYTES = 1 << 20
_FLOAT_BYTES = 4


class MDGANPlanning(contract.Builder[MDGANSettings]):
    """The half of MD-GAN's builder that only foretells a run; `build.py` has the other half."""

    def message_sizes(self, settings: MDGANSettings, models: Models) -> sizes.MessageSizes:
        """Upper bounds: of batches, of feedback, and of discriminators with their optimizers."""
        batch_bytes = _FLOAT_BYTES * settings.training.batch_size * prod(models.shape)
        label_bytes = _LABEL_BYTES * settings.training.batch_size
        is_secure = settings.secure.secure_aggregation
        shares = sizes.shares_bytes(settings.num_workers, is_secure=is_secure)
        outputs = _FLOAT_BYTES * settings.training.batch_size
        # A masked sum is int64.
        answer_bytes = (1 + is_secure) * batch_bytes + outputs + shares + 64
        # As int8, with a scale for each sample.
        for_all = settings.num_fakes * (prod(models.shape) + _FLOAT_BYTES + _LABEL_BYTES)

        def generated(count: int) -> int:
            of_two = 2 * count * (batch_bytes + label_bytes)  # a worker judges one, trains on one
            return for_all if settings.batches.trains_on_all else of_two

        network = build_model(models.discriminator, 0), settings.training.policy("discriminator")
        states = sizes.state_bytes(network)
        return sizes.MessageSizes(
            states,
            lambda count: {
                messages.FEEDBACK: count * answer_bytes + (8 << 10),
                messages.SWAPPED: sizes.small_bytes(count),
            },
            lambda count: {
                messages.BATCHES: generated(count) + sizes.small_bytes(count) + shares,
                messages.SWAP: _ADDRESSES_BYTES + sizes.small_bytes(count),
            },
            lambda count: {messages.DISCRIMINATORS: count * states + sizes.small_bytes(0)},
            sizes.names_bytes(network),
            shares_bytes=shares,
        )

    def answer_operations(self, settings: MDGANSettings, models: Models) -> float | None:
        """L times judging a batch; None where results depend on the processes or on time."""
        if settings.vectorize or settings.by_arrival:
            return None
        training = settings.training
        return training.local_steps * judging_operations(models, training.batch_size)

    def for_coverage(self, settings: MDGANSettings) -> str:
        b, flags = settings.training.batch_size, []
        if b < _MANY_SAMPLES:
            flags.append(f"{flag('batch_size', _MANY_SAMPLES)}")
        if b < _STEP_SAMPLES and not settings.step_samples:
            more = flag("step_samples", _STEP_SAMPLES)
            flags.append(f"{more}, which takes several times the work of a step")
        swaps = settings.num_workers > 1 and settings.swaps.swap_interval != 0
        if swaps and settings.swaps.swap != MEANS and not settings.suspects.shut_out_free_riders:
            means = flag("swap", MEANS)
            flags.append(f"{means}, by which discriminators become alike, and move more often")
        return "; ".join(flags)

    def planning(
        self, settings: MDGANSettings, models: Models, class_counts: contract.ClassCounts | None
    ) -> contract.Planning[MDGANSettings]:
        """The short run that `mdgan plan` measures, and the paper's table III beside it."""
        discriminator = build_model(models.discriminator, 0)
        batches = settings.batches
        num_judges, kappa = batches.num_judges, batches.kappa_for()
        short = settings.but(kappa=kappa, stale=0, swap_interval=0, swap_epochs=None)
        weights = num_parameters(discriminator)
        worker_bytes = training_bytes((discriminator, settings.training.policy("discriminator")))
        moving_bytes = worker_bytes - _FLOAT_BYTES * weights  # gradients stay
        if settings.swaps.swap_state == "weights":
            moving_bytes = sum(tensor.nbytes for tensor in discriminator.state_dict().values())
        share = num_judges / settings.num_workers
        swap = contract.Exchange(
            "swap",
            "discriminator",
            moving_bytes,
            every=_planned_interval(settings, class_counts, weights),
            remedy="--shard-size or --swap-interval",
            moved=lambda hosts: moving_bytes * share * mean_moved(settings.swaps.swap, hosts),
        )
        return contract.Planning(
            short,
            enough_workers=max(min(kappa, batches.num_sharing), settings.aggregation.needs_answers),
            enough_in_a_host=LEAST_TO_SUM * kappa,  # then it adds up feedback on every batch
            worker_bytes=worker_bytes,
            overlaps=settings.stale > 0,
            by_arrival=settings.by_arrival,
            exchange=swap if settings.num_workers > 1 else None,
            notes=_notes(settings, models, num_judges, weights),
        )

    def describe(self, run: contract.PlannedRun[MDGANSettings]) -> list[tuple[str, str]]:
        """Rows of `--dry-run`: algorithm and swaps, κ, and the samples in a step."""
        settings, mean_size = run.settings, contract.mean_size(run.class_counts)
        every = swap_every(settings, mean_size, run.class_counts, num_weights_of(run.models))
        rhythm = SwapRhythm(every, every, swap_every(settings, mean_size))
        kappa = _first_kappa(run)
        num_fakes = settings.batches.num_fakes(kappa)
        return [
            ("trains", in_words(settings, rhythm, kappa)),
            ("κ", str(kappa)),
            ("a step", f"on {settings.num_reals} real and {num_fakes} generated samples"),
        ]


def _first_kappa(run: contract.PlannedRun[MDGANSettings]) -> int:
    """κ of the first iteration, worked out as the server does it once hosts have joined."""
    settings = run.settings
    kappa = settings.batches.kappa_for()
    if not settings.secure.secure_aggregation:
        return kappa
    holders = Holders(settings.participation, settings.training.seed)
    judges = holders.among(n for host in run.hosts for n in host)
    judging = [host for host in run.hosts if judges is None or judges.intersection(host)]
    return max(1, min(kappa, len(judging) // run.least_parties))


class SwapRhythm(NamedTuple):
    """Iterations between two swaps; 0 for never."""

    every: int  # in this run
    now: int  # if the run began with the shards of today
    usual: int  # the same, if all workers also held the same classes


def in_words(settings: MDGANSettings, rhythm: SwapRhythm, kappa: int) -> str:
    """The line that the server logs at the start, with κ of then: the algorithm, and its flags."""
    batches, training, number = settings.batches, settings.training, settings.num_workers
    words = [
        f"MD-GAN (Hardy et al. 2019): κ = {count(kappa, 'batch', 'batches')} of "
        f"{training.batch_size}{', which workers both judge and train on' * (kappa == 1)}",
        count(number, "worker"),
    ]
    if batches.num_judges < number:
        words.append(f"{batches.num_judges} of them with a discriminator ({flag('participation')})")
    words.append(_rhythm_in_words(settings, rhythm))
    if (own_samples := batches.plan(kappa).own_samples) > training.batch_size:
        of_all = " and all batches" * batches.trains_on_all
        words.append(f"each learns from {own_samples} own samples{of_all} ({flag('step_samples')})")
    if settings.updates != "sync":
        words.append(f"{flag('updates', settings.updates)}")
    if settings.stale:
        words.append(f"{flag('stale', settings.stale)}")
    if settings.aggregation.name != "mean":
        words.append(f"feedback by {settings.aggregation} ({flag('aggregation')})")
    return ", ".join(words)


def _rhythm_in_words(settings: MDGANSettings, rhythm: SwapRhythm) -> str:
    every, now, usual = rhythm
    if not every or settings.num_workers == 1:
        return "no swaps"
    often = "in every iteration" if every == 1 else f"every {every:,} iterations"
    words = f"{_SWAPS[settings.swaps.swap]} {often}"
    if every >= settings.training.iterations:
        words = f"no swap in so few iterations (they come {often})"
    if every != now:  # shards have grown or shrunk since the run began
        return f"{words}, as when the run began, not every {now:,} ({flag('swap_interval')})"
    if every < usual:
        why = f"as workers hold different classes ({flag('swap_interval')})"
        return f"{words}, not every {usual:,}, {why}"
    return words


def num_weights_of(models: Models) -> int:
    """|θ|, the weights of one discriminator."""
    return num_parameters(build_model(models.discriminator, 0))


def _planned_interval(
    settings: MDGANSettings, class_counts: contract.ClassCounts | None, num_weights: int
) -> int | None:
    """Iterations between two swaps; None if they depend on shards whose size is not known.

    The plan takes unknown shards to hold all classes alike, and many batches.
    """
    if class_counts is None:
        every = swap_every(settings, inf)
        return every if every < settings.training.iterations_of(1.0, inf) else None
    counts = class_counts or [[]]
    return swap_every(settings, contract.mean_size(counts), counts, num_weights=num_weights)


def mean_moved(form: str, hosts: Sequence[Sequence[int]]) -> float:
    """The mean number of discriminators that change their host in a swap; `hosts` has workers."""
    num_workers = sum(map(len, hosts))
    if num_workers < 2:
        return 0.0
    moving = num_workers - (0 if form == "derangement" else num_workers % 2)
    # A discriminator is as likely to go to any other worker.
    away = sum(len(host) * (num_workers - len(host)) for host in hosts)
    return moving * away / (num_workers * (num_workers - 1))


def _notes(
    settings: MDGANSettings, models: Models, num_workers: int, num_weights: int
) -> dict[str, tuple[str, float]]:
    """Table III (Hardy et al. 2019), four bytes to a number."""
    batch = _FLOAT_BYTES * settings.training.batch_size * prod(models.shape)
    return {
        "server sends": ("Table III: {}, 2bdN", 2 * batch * num_workers),
        "server receives": ("Table III: {}, bdN", batch * num_workers),
        "host receives": ("Table III: {} a worker, 2bd", 2 * batch),
        "host sends": ("Table III: {} a worker, bd", batch),
        "a discriminator": ("with its optimizer; Table III: {}, |θ|", _FLOAT_BYTES * num_weights),
    }
