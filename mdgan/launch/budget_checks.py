"""Checks before training what this machine's samples have spent and may spend; charges nothing."""

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
_LEAST_CLASSES = 2  # the count of a single class would say nothing, and would spend all the same
_BLIND_SCHEMES = ("iid", "none")  # divisions that do not depend on the samples


def check_budgets(samples: HeldSamples, *, serves: bool, goes_on: bool = False) -> list[str]:
    """Checks that the workers of this machine, or the server for all clients, may take a step.

    Args:
        serves: whether the server runs on this machine.
        goes_on: whether a run is resumed; its workers may have spent all that they will.

    Returns:
        Warnings, one line each.
    """
    settings, privacy = samples.settings, samples.settings.privacy
    warnings = _check_distinct(samples)
    if serves and (init_from := settings.training.init_from) is not None:
        warnings.append(
            f"{flag('init_from', init_from)}: {privacy.dp_flag} does not cover what it has learnt; "
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
    if (planned := None if goes_on else samples.planned_noise()) is not None:
        sizes = [*map(len, samples.units.values())]
        _, noise = samples.schedule(planned[0]).noises(planned[1].noise)
        builder = registry.algorithm(settings.algorithm).build()
        warnings += builder.weigh_noise(settings, samples.dataset.kind, noise, sizes)
    return warnings


def _better_told_once(samples: HeldSamples) -> list[str]:
    """Recommends an algorithm that adds noise only once, for tables and for few samples."""
    settings, sizes = samples.settings, [*map(len, samples.units.values())]
    others = [n for n in registry.names() if registry.algorithm(n).settings.tells_once]
    if settings.tells_once or not others:
        return []
    if num_columns := len(samples.dataset.kind.columns()):
        rows, wanted = sum(sizes) / len(sizes), settings.privacy.dp_epsilon or 1.0
        table, scores = measured_tables.nearest(rows * settings.num_workers, num_columns)
        epsilon = min(scores, key=lambda each: abs(log(each / wanted)))
        return [
            f"{settings.privacy.dp_flag}: noise in every step hides much of a table; "
            f"{flag('algorithm', others[0])} adds it once: {scores[epsilon]} with ε = "
            f"{epsilon:g} and {table} ({measured_tables.MEANING})"
        ]
    if (fewest := min(sizes)) >= _FEW_SAMPLES:
        return []
    return [
        f"{settings.privacy.dp_flag}: a worker here holds {fewest:,} samples, too few for noise in "
        f"every step; {flag('algorithm', others[0])} adds it once, and learns far more"
    ]


def _check_distinct(samples: HeldSamples) -> list[str]:
    """Checks that no two workers here hold the same sample; warns of samples that count as one."""
    settings, contents = samples.settings, samples.contents
    dp_flag = settings.privacy.dp_flag
    if not settings.privacy.keeps_ledger or settings.num_placed is not None:
        return []
    if lets_workers_share(settings.data.partition):
        why = f"with {dp_flag} no two workers may hold the same sample, which would lose "
        why += "what both spend"
        raise BadInput(flag("partition", settings.data.partition), why, "use another scheme")
    or_else = ""
    if samples.dataset.kind.num_counts:
        or_else = '; where rows are equal by chance, say "rows_are_independent": true in the schema'
    if any(held.rows for held in contents.values()):
        or_else = "; name persons differently at each site, such as A-17"
    holders: dict[bytes, int] = {}
    for rank, held in contents.items():
        shared = [holders.setdefault(digest, rank) for digest in held.digests]
        if others := [other for other in shared if other != rank]:
            many = f"the same samples ({others.count(others[0]):,} of them)"
            why = f"ranks {others[0]} and {rank} hold {many}, or samples of the same persons, which"
            why += " would spend in both accounts"
            raise BadInput(dp_flag, why, f"give each worker samples of its own{or_else}")
    return [
        f"{dp_flag}: all samples of a person, and equal ones, count as one: those of rank {rank} "
        f"as {len(held.digests):,}, since {held.num_repeats:,} are further ones"
        for rank, held in contents.items()
        if held.num_repeats
    ]


def _check_samples(samples: HeldSamples, *, goes_on: bool) -> list[str]:
    """Checks that the samples of each worker here may spend what training asks of them."""
    settings, contents, dataset = samples.settings, samples.contents, samples.dataset
    privacy, asks_before = settings.privacy, settings.hides_classes or dataset.kind.num_counts
    if asks_before and privacy.dp_accountant == "prv":
        why = "cannot add up what counts and training spend"
        raise BadInput(key("dp_accountant", "prv"), why, "use rdp")
    if settings.hides_classes and (dataset.num_classes or 0) < _LEAST_CLASSES:
        blind = f"{flag('sampling', 'random')} {flag('weighting', 'uniform')}"
        why = "clients are drawn or weighed by noisy counts of classes, and "
        why += f"{dataset.path} does not say how many classes there are, two or more"
        raise BadInput(privacy.dp_flag, why, f"add NUM_CLASSES to it, or give {blind}")
    warnings = _large_delta(privacy.dp_delta or 0.0, samples.units)
    folder = planning.ledger_folder(privacy)
    if (public := privacy.dp_public_samples) is not None:
        warnings.append(
            f"{key('dp_public_samples', public)}: the server is not told the exact number of "
            "samples, and what it is told with noise still says about how many there are"
        )
    for rank, shard in samples.units.items():
        if len(shard) > (public := privacy.public_samples(len(shard))):
            way_out = "say a number that is at least as large for every worker here"
            why = f"rank {rank} holds more, {len(shard):,}"
            raise BadInput(key("dp_public_samples", public), why, way_out)
        schedule = samples.schedule(rank)
        known = look_up(folder, contents[rank]) if rank in contents else LedgerView()
        counts = samples.asked_before(rank, goes_on=goes_on)
        repeats = known.last is not None and (
            settings.tells_once
            and not (privacy.audit_canaries or settings.shares_noise)
            and Releases(folder, contents[rank]).has_told(known.last.plan.asked)
            and all(samples.are_paid(rank, meaning) for meaning in counts.values())
        )
        if not (goes_on or repeats):
            is_begun = schedule.counts_share and samples.are_paid(rank, *counts.values())
            schedule = schedule._replace(rest=1 if is_begun else None)
        after = samples.known_at_training(rank, schedule, counts.values())
        plan = planning.plan_of(privacy, schedule, after, folder)
        if privacy.audit_canaries:
            _check_canaries(settings, schedule, plan)
        last = after.last if after.last is not None and after.last.plan == plan else None
        if repeats and last is not None:
            warnings.append(f"{schedule.whose} have told this before; they tell the same again")
        elif spent := _spent_before(settings, schedule, known):
            num_steps = plan.until - (0 if last is None else last.steps)
            _, noise = schedule.noises(plan.noise)
            steps_left = f"{count(num_steps, 'step')} with noise {noise:.3g}"
            warnings.append(f"{spent}; left: {steps_left}")
        if rank in contents:
            warnings += _new_counts(samples, rank, schedule, known=known, counts=counts)
    return warnings


def _new_counts(
    samples: HeldSamples,
    rank: int,
    schedule: planning.StepSchedule,
    known: LedgerView,
    counts: Mapping[str, str],
) -> list[str]:
    """Warns of counts that samples in the ledger have not paid yet, and of files that changed.

    Args:
        counts: see `HeldSamples.asked_before`.
    """
    settings, held = samples.settings, samples.contents[rank]
    dp_flag, folder = settings.privacy.dp_flag, planning.ledger_folder(settings.privacy)
    if known.histories:
        shared = " (parts of shared noise are never told again)" if settings.shares_counts else ""
        return [
            f"{dp_flag}: {schedule.whose} were not counted by {by} with this noise yet{shared}; "
            "that spends anew, and adds to what they have spent before"
            for by, meaning in counts.items()
            if not samples.are_paid(rank, meaning)
        ]
    before = look_up(folder, held.as_files())
    if not (held.sources and before.histories):
        return []
    spent = planning.spent_before(settings.privacy.dp_delta, before)
    return [
        f"{dp_flag}: files of {schedule.whose} were trained on before, and the account knows "
        "none of their rows: columns or values have changed since; rows of the same persons have "
        f"spent {spent:.3g} there, which this run does not count"
    ]


def _check_canaries(settings: RunSettings, schedule: planning.StepSchedule, plan: Plan) -> None:
    """Checks that there are enough canaries to contradict ε if an attack guesses all of them."""
    privacy, delta = settings.privacy, settings.privacy.dp_delta or 0.0
    charge = PrivacyCharge(plan.noise, plan.rate, plan.planned)
    stated = privacy.dp_epsilon or epsilon_of(charge, delta, privacy.dp_accountant)
    if schedule.counts_share:  # the canaries are only in the sums, not in the counts
        charge = PrivacyCharge(schedule.noises(plan.noise)[1], plan.rate, 1)
    least = least_canaries((charge,), delta, stated, settings.num_workers)
    if least is None or privacy.audit_canaries < least:
        way_out = "no number of them could" if least is None else f"give at least {least:,}"
        why = f"those of {settings.num_workers:,} worker(s) could not contradict epsilon "
        why += f"{stated:.3g} with every guess right"
        canaries = flag("audit_canaries", privacy.audit_canaries)
        raise BadInput(canaries, why, f"{way_out}, or leave them out")


def _large_delta(delta: float, shards: Mapping[int, Shard]) -> list[str]:
    """Warns if δ lets a worker give away whole samples; it names the worker with most samples."""
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
    """The same as `_check_samples` for the server's ledger of all clients, and for this host's."""
    privacy = settings.privacy
    schedule, folder, warnings = schedule_of_clients(settings), planning.ledger_folder(privacy), []
    spendings = [(0.0, "")]

    def look(whose: str, held: Contents) -> tuple[planning.StepSchedule, LedgerView]:
        one = schedule._replace(whose=whose)
        known = look_up(folder, held)
        spent = planning.spent_before(privacy.dp_delta, known)
        spendings.append((spent, _spent_before(settings, one, known)))
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
    for rank, held in contents.items():
        if not rank:
            continue
        one, known = look(f"the samples of rank {rank}", held)
        planning.check_alike(privacy, one, known, folder)
        # With PRV it matters whether the run is resumed, so the host checks that when it charges.
        if privacy.dp_accountant == "rdp" and not planning.leaves_something(
            known.histories, privacy
        ):
            planning.plan_of(privacy, one, known, folder)
    return warnings + [f"{spent}; ledger {folder}" for _, spent in [max(spendings)] if spent]


def _spent_before(settings: RunSettings, schedule: planning.StepSchedule, known: LedgerView) -> str:
    """Says what samples spent in earlier runs; empty if they were in none."""
    if not known.histories:
        return ""
    spent = planning.spent_before(settings.privacy.dp_delta, known)
    return f"{settings.privacy.dp_flag}: {schedule.whose} have spent {spent:.3g} before"
