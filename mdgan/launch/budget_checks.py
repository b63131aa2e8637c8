"""What a machine checks before its workers spend, and what their owner hears; spends nothing."""

from collections.abc import Mapping

from mdgan.data.dataset_file import DatasetFile
from mdgan.data.partition import lets_workers_share
from mdgan.data.shard import Shard
from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.launch.privacy import asked_before, counted, known_at_training, schedule_of_clients
from mdgan.privacy import counts, planning
from mdgan.privacy.accountant import PrivacyCharge, check_installed, epsilon_of
from mdgan.privacy.contents import Contents
from mdgan.privacy.ledger import Releases, look_up
from mdgan.privacy.ledger_view import LedgerView, Plan
from mdgan.privacy.one_run import least_canaries
from mdgan.samples.contract import SampleKind

_FEW_SAMPLES = 5_000
"""With fewer samples a worker, noise in every step ruins what is learnt; see docs/quality.md."""
_LEAST_CLASSES = 2  # counts of one tell nothing, and would spend
_BLIND_SCHEMES = ("iid", "none")  # divisions that do not depend on what samples are


def check_budgets(
    settings: RunSettings,
    shards: Mapping[int, Shard],
    contents: Mapping[int, Contents],
    dataset: DatasetFile,
    *,
    serves: bool,
    goes_on: bool = False,
) -> list[str]:
    """Checks that those who spend on this machine may take a step; writes nothing.

    Args:
        dataset: that the samples are of; counts of them may be charged before training.
        goes_on: whether an earlier run goes on; workers may have told all that they tell.

    Returns:
        Warnings, one line each.
    """
    privacy = settings.privacy
    warnings = _check_distinct(settings, contents, dataset.kind)
    if serves and (given := settings.training.init_from) is not None:
        warnings.append(
            f"--init-from {given}: {privacy.dp_flag} does not cover what it has learnt; begin with "
            "it only if that was from public data"
        )
    if not (shards or (serves and privacy.hides_clients)):
        return warnings
    if privacy.dp_noise == 0:
        return [*warnings, "--dp-noise 0: without noise nothing is private"]
    check_installed(privacy.dp_flag)
    if privacy.hides_clients:
        return warnings + _check_clients(settings, contents, serves=serves)
    if settings.data.partition.name not in _BLIND_SCHEMES:
        warnings.append(
            f"--partition {settings.data.partition}: who holds a sample, and how many each worker "
            "holds, follows the classes of all samples, which no noise covers; for simulations"
        )
    each = {rank: counted(settings, shard, contents.get(rank)) for rank, shard in shards.items()}
    warnings += _better_told_once(settings, each)
    return warnings + _check_samples(settings, each, contents, dataset, goes_on=goes_on)


def _better_told_once(settings: RunSettings, shards: Mapping[int, Shard]) -> list[str]:
    """A hint at algorithms whose workers tell one noisy sum, where those here hold few samples."""
    fewest = min(map(len, shards.values()))
    others = [n for n in registry.names() if registry.algorithm(n).settings.tells_once]
    if settings.tells_once or fewest >= _FEW_SAMPLES or not others:
        return []
    return [
        f"{settings.privacy.dp_flag}: a worker here holds {fewest:,} samples, too few for noise in "
        f"every step; --algorithm {others[0]} adds it once, and learns far more"
    ]


def _check_distinct(
    settings: RunSettings, contents: Mapping[int, Contents], kind: SampleKind
) -> list[str]:
    """Checks that no two workers here hold the same samples; says which count as one."""
    flag = settings.privacy.dp_flag
    if not settings.privacy.keeps_ledger or settings.num_placed is not None:
        return []
    if lets_workers_share(settings.data.partition):
        raise BadInput(
            f"--partition {settings.data.partition}: with {flag} no two workers may hold the same "
            "sample, which would lose what both spend; use another scheme"
        )
    way = ""
    if kind.num_counts:
        way = '; where rows are equal by chance, say "rows_are_independent": true in the schema'
    if any(held.rows for held in contents.values()):
        way = "; name persons differently at each site, such as A-17"
    holders: dict[bytes, int] = {}
    for rank, held in contents.items():
        shared = [holders.setdefault(digest, rank) for digest in held.digests]
        if others := [other for other in shared if other != rank]:
            raise BadInput(
                f"{flag}: ranks {others[0]} and {rank} hold the same samples "
                f"({others.count(others[0]):,} of them), or samples of the same persons, which "
                f"would spend in both accounts; give each worker samples of its own{way}"
            )
    return [
        f"{flag}: all samples of a person, and equal ones, count as one: those of rank {rank} as "
        f"{len(held.digests):,}, since {held.num_repeats:,} are further ones"
        for rank, held in contents.items()
        if held.num_repeats
    ]


def _check_samples(
    settings: RunSettings,
    shards: Mapping[int, Shard],
    contents: Mapping[int, Contents],
    dataset: DatasetFile,
    *,
    goes_on: bool,
) -> list[str]:
    privacy, asks_before = settings.privacy, settings.hides_classes or dataset.kind.num_counts
    if asks_before and privacy.dp_accountant == "prv":
        raise BadInput(
            "--set dp_accountant=prv: cannot add up what counts and training spend; use rdp"
        )
    if settings.hides_classes and (dataset.num_classes or 0) < _LEAST_CLASSES:
        raise BadInput(
            f"{privacy.dp_flag}: clients are drawn or weighed by noisy counts of classes, and "
            f"{dataset.path} does not say how many classes there are, two or more; add "
            "NUM_CLASSES to it, or give --sampling random --weighting uniform"
        )
    warnings, folder = (
        _large_delta(privacy.dp_delta or 0.0, shards),
        planning.ledger_folder(privacy),
    )
    if (said := privacy.dp_public_samples) is not None:
        warnings.append(
            f"--set dp_public_samples={said}: the server is not told the exact number of samples, "
            "and what it is told with noise still says about how many there are"
        )
    for rank, shard in shards.items():
        if len(shard) > (said := privacy.public_samples(len(shard))):
            raise BadInput(
                f"--set dp_public_samples={said}: rank {rank} holds more, {len(shard):,}; say a "
                "number that is at least as large for every worker here"
            )
        schedule = planning.StepSchedule.of_samples(rank, len(shard), settings)
        known = look_up(folder, contents[rank]) if rank in contents else LedgerView()
        asked = asked_before(settings, shard, dataset, goes_on=goes_on)
        repeats = known.last is not None and (
            settings.tells_once
            and not (privacy.audit_canaries or settings.shares_noise)
            and Releases(folder, contents[rank]).has_told(known.last.plan.asked)
        )
        if not (goes_on or repeats):
            schedule = schedule._replace(may_be_over=False)
        after = known_at_training(settings, schedule, contents.get(rank), asked.values())
        plan = planning.plan_of(privacy, schedule, after, folder)
        if privacy.audit_canaries:
            _check_canaries(settings, plan)
        last = after.last if after.last is not None and after.last.plan == plan else None
        if repeats and last is not None:
            warnings.append(f"{schedule.whose} have told this before; they tell the same again")
        elif spent := _spent_before(settings, schedule, known):
            left = plan.until - (0 if last is None else last.steps)
            warnings.append(f"{spent}; {left:,} steps with noise {plan.noise:.3g} are left")
        if rank in contents:
            warnings += _new_questions(settings, schedule, contents[rank], known, asked)
    return warnings


def _new_questions(
    settings: RunSettings,
    schedule: planning.StepSchedule,
    held: Contents,
    known: LedgerView,
    asked: Mapping[str, str],
) -> list[str]:
    """What the user should know before known samples, or known files, are asked something new.

    Args:
        asked: see `asked_before`.
    """
    flag, folder = settings.privacy.dp_flag, planning.ledger_folder(settings.privacy)
    if known.histories:
        releases = Releases(folder, held)
        return [
            f"{flag}: {schedule.whose} were not counted by {by} with this noise yet; "
            "that spends anew, and adds to what they have spent before"
            for by, meaning in asked.items()
            if not counts.are_told(settings, releases, meaning)
        ]
    before = look_up(folder, held.as_files())
    if not (held.sources and before.histories):
        return []
    spent = planning.spent_before(settings.privacy, before)
    return [
        f"{flag}: files of {schedule.whose} were trained on before, and the account knows none of "
        "their rows: columns or values have changed since; rows of the same persons have spent "
        f"{spent:.3g} there, which this run does not count"
    ]


def _check_canaries(settings: RunSettings, plan: Plan) -> None:
    """Checks that canaries could contradict ε, if each was guessed right."""
    privacy, delta = settings.privacy, settings.privacy.dp_delta or 0.0
    charge = PrivacyCharge(plan.noise, plan.rate, plan.planned)
    stated = privacy.dp_epsilon or epsilon_of(charge, delta, privacy.dp_accountant)
    least = least_canaries((charge,), delta, stated, settings.num_workers)
    if least is None or privacy.audit_canaries < least:
        way_out = "no number of them could" if least is None else f"give at least {least:,}"
        raise BadInput(
            f"--audit-canaries {privacy.audit_canaries}: those of {settings.num_workers:,} "
            f"worker(s) could not contradict epsilon {stated:.3g} with every guess right; "
            f"{way_out}, or leave them out"
        )


def _large_delta(delta: float, shards: Mapping[int, Shard]) -> list[str]:
    """A warning if δ lets a worker give away whole samples; it names the one with most of them."""
    many = {rank: len(shard) for rank, shard in shards.items() if delta * len(shard) >= 1}
    if not many:
        return []
    rank = max(many, key=lambda n: many[n])
    others = f" (and {len(many) - 1} more)" if len(many) > 1 else ""
    return [
        f"--dp-delta {delta:g}: with that, rank {rank}{others} may give away one of its "
        f"{many[rank]:,} samples and still keep to it; below {0.1 / many[rank]:.1g} is usual"
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
        told.append((planning.spent_before(privacy, known), _spent_before(settings, one, known)))
        return one, known

    if serves:
        _, known = look(schedule.whose, contents.get(0) or Contents.of_name(schedule.whose))
        last = known.last
        if last is None or last.plan.unit != schedule.hides or last.steps >= last.plan.until:
            planning.plan_of(privacy, schedule, known, folder)
        number = settings.num_placed or settings.num_workers
        if privacy.dp_delta is not None and privacy.dp_delta * number >= 1:
            warnings.append(
                f"--dp-delta {privacy.dp_delta:g}: with that, the run may give away one of "
                f"{number:,} clients and still keep to it; below {0.1 / number:.1g} is usual"
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
    spent = planning.spent_before(settings.privacy, known)
    return f"{settings.privacy.dp_flag}: {schedule.whose} have spent {spent:.3g} before"
