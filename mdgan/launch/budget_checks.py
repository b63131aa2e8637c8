"""What a machine checks before its workers spend, and what their owner hears; spends nothing."""

from collections.abc import Mapping
from math import log

from mdgan.data.partition import lets_workers_share
from mdgan.data.shard import Shard
from mdgan.engine.host.held_samples import HeldSamples, schedule_of_clients
from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.privacy import measured_tables, planning
from mdgan.privacy.accountant import PrivacyCharge, check_installed, epsilon_of
from mdgan.privacy.contents import Contents
from mdgan.privacy.ledger import Releases, look_up
from mdgan.privacy.ledger_view import LedgerView, Plan
from mdgan.privacy.one_run import least_canaries
from mdgan.spelling import count, flag, key

_FEW_SAMPLES = 5_000
"""With fewer samples a worker, noise in every step ruins what is learnt; see docs/quality.md."""
_LEAST_CLASSES = 2  # counts of one tell nothing, and would spend
_BLIND_SCHEMES = ("iid", "none")  # divisions that do not depend on what samples are


def check_budgets(samples: HeldSamples, *, serves: bool, goes_on: bool = False) -> list[str]:
    """Checks that those who spend on this machine may take a step; writes nothing.

    Args:
        goes_on: whether an earlier run goes on; workers may have told all that they tell.

    Returns:
        Warnings, one line each.
    """
    settings, privacy = samples.settings, samples.settings.privacy
    warnings = _check_distinct(samples)
    if serves and (given := settings.training.init_from) is not None:
        warnings.append(
            f"{flag('init_from', given)}: {privacy.dp_flag} does not cover what it has learnt; "
            "begin with it only if that was from public data"
        )
    if not (samples.shards or (serves and privacy.hides_clients)):
        return warnings
    if privacy.dp_noise == 0:
        return [*warnings, f"{flag('dp_noise', 0)}: without noise nothing is private"]
    check_installed(privacy.dp_flag)
    if privacy.hides_clients:
        return warnings + _check_clients(settings, samples.contents, serves=serves)
    if settings.data.partition.name not in _BLIND_SCHEMES:
        warnings.append(
            f"{flag('partition', settings.data.partition)}: who holds a sample, and how many each "
            "worker holds, follows the classes of all samples, which no noise covers; for "
            "simulations"
        )
    warnings += _better_told_once(samples) + _check_samples(samples, goes_on=goes_on)
    if (found := None if goes_on else samples.planned_noise()) is not None:
        sizes = [*map(len, samples.units.values())]
        _, noise = samples.schedule(found[0]).noises(found[1].noise)
        builder = registry.algorithm(settings.algorithm).build()
        warnings += builder.weigh_noise(settings, samples.dataset.kind, noise, sizes)
    return warnings


def _better_told_once(samples: HeldSamples) -> list[str]:
    """A hint at algorithms whose workers tell one noisy sum, for tables and for few samples."""
    settings, sizes = samples.settings, [*map(len, samples.units.values())]
    others = [n for n in registry.names() if registry.algorithm(n).settings.tells_once]
    if settings.tells_once or not others:
        return []
    if num_columns := len(samples.dataset.kind.columns()):
        rows, asked = sum(sizes) / len(sizes), settings.privacy.dp_epsilon or 1.0
        table, said = measured_tables.nearest(rows * settings.num_workers, num_columns)
        epsilon = min(said, key=lambda each: abs(log(each / asked)))
        return [
            f"{settings.privacy.dp_flag}: noise in every step hides much of a table; "
            f"{flag('algorithm', others[0])} adds it once: {said[epsilon]} with ε = "
            f"{epsilon:g} and {table} ({measured_tables.MEANING})"
        ]
    if (fewest := min(sizes)) >= _FEW_SAMPLES:
        return []
    return [
        f"{settings.privacy.dp_flag}: a worker here holds {fewest:,} samples, too few for noise in "
        f"every step; {flag('algorithm', others[0])} adds it once, and learns far more"
    ]


def _check_distinct(samples: HeldSamples) -> list[str]:
    """Checks that no two workers here hold the same samples; says which count as one."""
    settings, contents = samples.settings, samples.contents
    asked = settings.privacy.dp_flag
    if not settings.privacy.keeps_ledger or settings.num_placed is not None:
        return []
    if lets_workers_share(settings.data.partition):
        raise BadInput(
            flag("partition", settings.data.partition),
            f"with {asked} no two workers may hold the same sample, which would lose what both "
            "spend",
            "use another scheme",
        )
    way = ""
    if samples.dataset.kind.num_counts:
        way = '; where rows are equal by chance, say "rows_are_independent": true in the schema'
    if any(held.rows for held in contents.values()):
        way = "; name persons differently at each site, such as A-17"
    holders: dict[bytes, int] = {}
    for rank, held in contents.items():
        shared = [holders.setdefault(digest, rank) for digest in held.digests]
        if others := [other for other in shared if other != rank]:
            raise BadInput(
                asked,
                f"ranks {others[0]} and {rank} hold the same samples "
                f"({others.count(others[0]):,} of them), or samples of the same persons, which "
                "would spend in both accounts",
                f"give each worker samples of its own{way}",
            )
    return [
        f"{asked}: all samples of a person, and equal ones, count as one: those of rank {rank} as "
        f"{len(held.digests):,}, since {held.num_repeats:,} are further ones"
        for rank, held in contents.items()
        if held.num_repeats
    ]


def _check_samples(samples: HeldSamples, *, goes_on: bool) -> list[str]:
    settings, contents, dataset = samples.settings, samples.contents, samples.dataset
    privacy, asks_before = settings.privacy, settings.hides_classes or dataset.kind.num_counts
    if asks_before and privacy.dp_accountant == "prv":
        why = "cannot add up what counts and training spend"
        raise BadInput(key("dp_accountant", "prv"), why, "use rdp")
    if settings.hides_classes and (dataset.num_classes or 0) < _LEAST_CLASSES:
        blind = f"{flag('sampling', 'random')} {flag('weighting', 'uniform')}"
        raise BadInput(
            privacy.dp_flag,
            "clients are drawn or weighed by noisy counts of classes, and "
            f"{dataset.path} does not say how many classes there are, two or more",
            f"add NUM_CLASSES to it, or give {blind}",
        )
    warnings = _large_delta(privacy.dp_delta or 0.0, samples.units)
    folder = planning.ledger_folder(privacy)
    if (said := privacy.dp_public_samples) is not None:
        warnings.append(
            f"{key('dp_public_samples', said)}: the server is not told the exact number of samples,"
            " and what it is told with noise still says about how many there are"
        )
    for rank, shard in samples.units.items():
        if len(shard) > (said := privacy.public_samples(len(shard))):
            way_out = "say a number that is at least as large for every worker here"
            why = f"rank {rank} holds more, {len(shard):,}"
            raise BadInput(key("dp_public_samples", said), why, way_out)
        schedule = samples.schedule(rank)
        known = look_up(folder, contents[rank]) if rank in contents else LedgerView()
        asked = samples.asked_before(rank, goes_on=goes_on)
        repeats = known.last is not None and (
            settings.tells_once
            and not (privacy.audit_canaries or settings.shares_noise)
            and Releases(folder, contents[rank]).has_told(known.last.plan.asked)
            and all(samples.are_paid(rank, meaning) for meaning in asked.values())
        )
        if not (goes_on or repeats):
            is_begun = schedule.counts_share and samples.are_paid(rank, *asked.values())
            schedule = schedule._replace(rest=1 if is_begun else None)
        after = samples.known_at_training(rank, schedule, asked.values())
        plan = planning.plan_of(privacy, schedule, after, folder)
        if privacy.audit_canaries:
            _check_canaries(settings, schedule, plan)
        last = after.last if after.last is not None and after.last.plan == plan else None
        if repeats and last is not None:
            warnings.append(f"{schedule.whose} have told this before; they tell the same again")
        elif spent := _spent_before(settings, schedule, known):
            left = plan.until - (0 if last is None else last.steps)
            _, noise = schedule.noises(plan.noise)
            warnings.append(f"{spent}; left: {count(left, 'step')} with noise {noise:.3g}")
        if rank in contents:
            warnings += _new_questions(samples, rank, schedule, known=known, asked=asked)
    return warnings


def _new_questions(
    samples: HeldSamples,
    rank: int,
    schedule: planning.StepSchedule,
    known: LedgerView,
    asked: Mapping[str, str],
) -> list[str]:
    """What the user should know before known samples, or known files, are asked something new.

    Args:
        asked: see `HeldSamples.asked_before`.
    """
    settings, held = samples.settings, samples.contents[rank]
    asked_with, folder = settings.privacy.dp_flag, planning.ledger_folder(settings.privacy)
    if known.histories:
        shared = " (parts of shared noise are never told again)" if settings.shares_counts else ""
        return [
            f"{asked_with}: {schedule.whose} were not counted by {by} with this noise yet{shared}; "
            "that spends anew, and adds to what they have spent before"
            for by, meaning in asked.items()
            if not samples.are_paid(rank, meaning)
        ]
    before = look_up(folder, held.as_files())
    if not (held.sources and before.histories):
        return []
    spent = planning.spent_before(settings.privacy.dp_delta, before)
    return [
        f"{asked_with}: files of {schedule.whose} were trained on before, and the account knows "
        "none of their rows: columns or values have changed since; rows of the same persons have "
        f"spent {spent:.3g} there, which this run does not count"
    ]


def _check_canaries(settings: RunSettings, schedule: planning.StepSchedule, plan: Plan) -> None:
    """Checks that canaries could contradict ε, if each was guessed right."""
    privacy, delta = settings.privacy, settings.privacy.dp_delta or 0.0
    charge = PrivacyCharge(plan.noise, plan.rate, plan.planned)
    stated = privacy.dp_epsilon or epsilon_of(charge, delta, privacy.dp_accountant)
    if schedule.counts_share:  # canaries are in sums alone
        charge = PrivacyCharge(schedule.noises(plan.noise)[1], plan.rate, 1)
    least = least_canaries((charge,), delta, stated, settings.num_workers)
    if least is None or privacy.audit_canaries < least:
        way_out = "no number of them could" if least is None else f"give at least {least:,}"
        raise BadInput(
            flag("audit_canaries", privacy.audit_canaries),
            f"those of {settings.num_workers:,} worker(s) could not contradict epsilon "
            f"{stated:.3g} with every guess right",
            f"{way_out}, or leave them out",
        )


def _large_delta(delta: float, shards: Mapping[int, Shard]) -> list[str]:
    """A warning if δ lets a worker give away whole samples; it names the one with most of them."""
    many = {rank: len(shard) for rank, shard in shards.items() if delta * len(shard) >= 1}
    if not many:
        return []
    rank = max(many, key=lambda n: many[n])
    others = f" (and {len(many) - 1} more)" if len(many) > 1 else ""
    return [
        f"{flag('dp_delta', f'{delta:g}')}: with that, rank {rank}{others} may give away one of "
        f"its {many[rank]:,} samples and still keep to it; below {0.1 / many[rank]:.1g} is usual"
    ]


def _check_clients(
    settings: RunSettings, contents: Mapping[int, Contents], *, serves: bool
) -> list[str]:
    """As `_check_samples`: of the server's account of all clients, and of this host's own."""
    privacy = settings.privacy
    schedule, folder, warnings = schedule_of_clients(settings), planning.ledger_folder(privacy), []
    told = [(0.0, "")]

    def look(whose: str, own: Contents) -> tuple[planning.StepSchedule, LedgerView]:
        one = schedule._replace(whose=whose)
        known = look_up(folder, own)
        spent = planning.spent_before(privacy.dp_delta, known)
        told.append((spent, _spent_before(settings, one, known)))
        return one, known

    if serves:
        _, known = look(schedule.whose, contents.get(0) or Contents.of_name(schedule.whose))
        last = known.last
        if last is None or last.plan.unit != schedule.hides or last.steps >= last.plan.until:
            planning.plan_of(privacy, schedule, known, folder)
        number = settings.num_placed or settings.num_workers
        if privacy.dp_delta is not None and privacy.dp_delta * number >= 1:
            warnings.append(
                f"{flag('dp_delta', f'{privacy.dp_delta:g}')}: with that, the run may give away "
                f"one of {number:,} clients and still keep to it; below {0.1 / number:.1g} is usual"
            )
    for rank, own in contents.items():
        if not rank:
            continue
        one, known = look(f"the samples of rank {rank}", own)
        planning.check_alike(privacy, one, known, folder)
        # By PRV a run that goes on and another one differ, which the host's account finds out.
        if privacy.dp_accountant == "rdp" and not planning.leaves_something(
            known.histories, privacy
        ):
            planning.plan_of(privacy, one, known, folder)
    return warnings + [f"{spent}; ledger {folder}" for _, spent in [max(told)] if spent]


def _spent_before(settings: RunSettings, schedule: planning.StepSchedule, known: LedgerView) -> str:
    """What the user should know of earlier runs; empty if there were none."""
    if not known.histories:
        return ""
    spent = planning.spent_before(settings.privacy.dp_delta, known)
    return f"{settings.privacy.dp_flag}: {schedule.whose} have spent {spent:.3g} before"
