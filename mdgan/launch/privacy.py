"""What a machine checks and opens for differential privacy, before its workers train."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mdgan.data.client_shards import ClientShards
from mdgan.data.partition import lets_workers_share
from mdgan.data.shard import Shard
from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.privacy import counts
from mdgan.privacy.accountant import PrivacyCharge, check_installed, epsilon_of
from mdgan.privacy.budget import Budget, ClientsAccount, open_budget
from mdgan.privacy.contents import Contents
from mdgan.privacy.ledger import LedgerView, Plan, look_up
from mdgan.privacy.one_run import least_canaries
from mdgan.privacy.planning import (
    StepSchedule,
    check_alike,
    leaves_something,
    ledger_folder,
    plan_of,
    spent_before,
)
from mdgan.privacy.settings import DISCLOSABLE

CLASSES, FEATURES = DISCLOSABLE[:2]
"""What hosts tell outside of training."""
_FEW_SAMPLES = 5_000
"""With fewer samples a worker, noise in every step ruins what is learnt; see docs/quality.md."""
_BLIND_SCHEMES = ("iid", "none")
"""Divisions that do not depend on what samples are."""


def tells(settings: RunSettings, what: str) -> bool:
    """Whether workers tell something of their data; see `PrivacySettings.tells`."""
    return settings.privacy.discloses(what)


def flush_denormals(settings: RunSettings) -> None:
    """Counts numbers below 10⁻³⁸ as 0, in this thread and in all that it starts.

    Some processors take many times as long for them, which would tell of samples that lead to them.
    """
    if settings.privacy.hides_samples and settings.privacy.dp_noise != 0:
        torch.set_flush_denormal(True)


def tells_times(settings: RunSettings) -> bool:
    """Whether hosts tell how long they compute: how long real samples take tells of them."""
    return not (settings.privacy.hides_samples and settings.privacy.keeps_ledger)


def rehearsed(settings: RunSettings, ledger: Path) -> RunSettings:
    """The settings of a short run on noise, which spends nothing of what counts."""
    if not settings.privacy.has_dp:
        return settings
    return settings.but(**{"dp_ledger": str(ledger), "audit_canaries": 0})


def why_untold(settings: RunSettings) -> str:
    """What a host answers that is asked to describe its data; empty if it describes them."""
    if tells(settings, FEATURES):
        return ""
    return "it tells nothing of its samples that no noise covers (--dp-disclose features would)"


def told_counts(settings: RunSettings, held: Sequence[int]) -> Sequence[int]:
    """What a host says of how many samples of each class a worker holds, or of how many in all."""
    if settings.privacy.dp_public_samples is None:
        return held
    return [settings.privacy.dp_public_samples]


def read_contents(
    settings: RunSettings, shards: Mapping[int, Shard], clients: ClientShards | None
) -> dict[int, Contents]:
    """What the samples of workers hold, by rank; empty where nothing is remembered.

    Args:
        clients: those that are placed, if the server is here; rank 0 has what all of them hold.
    """
    if not settings.privacy.keeps_ledger:
        return {}
    if settings.num_placed is not None:
        return {} if clients is None else {0: clients.read_once(Contents.of)}
    return {rank: Contents.of(shard) for rank, shard in shards.items()}


def open_account(
    settings: RunSettings, shards: Mapping[int, Shard], contents: Mapping[int, Contents]
) -> ClientsAccount | None:
    """The account of the samples of this host's own clients; None where they have none."""
    privacy = settings.privacy
    if not (privacy.hides_clients and privacy.keeps_ledger) or settings.num_placed is not None:
        return None
    held = Contents.union(_contents_of(shard, n, contents) for n, shard in shards.items())
    return ClientsAccount(privacy, _of_clients(settings), ledger_folder(privacy), held)


def _contents_of(shard: Shard, rank: int, known: Mapping[int, Contents]) -> Contents:
    """What a shard holds; it is read if the process that launched this one has not read it."""
    return known.get(rank) or Contents.of(shard)


def open_budgets(
    settings: RunSettings, shards: Mapping[int, Shard], contents: Mapping[int, Contents]
) -> dict[int, Budget]:
    """The budgets of workers, by rank; empty without noise."""
    if not settings.privacy.hides_samples:
        return {}
    folder, budgets = ledger_folder(settings.privacy), dict[int, Budget]()
    try:
        for rank, shard in shards.items():
            held = partial(_contents_of, shard, rank, contents)
            if (budget := open_budget(rank, len(shard), settings, folder, held)) is not None:
                budgets[rank] = budget
    except BaseException:
        for budget in budgets.values():
            budget.close()
        raise
    return budgets


def spend_on_counts(
    settings: RunSettings, shards: Mapping[int, Shard], contents: Mapping[int, Contents]
) -> dict[int, counts.CountsNoise]:
    """What hides the samples of workers in their counts, by rank; empty without noise."""
    folder, found = ledger_folder(settings.privacy), dict[int, counts.CountsNoise]()
    for rank, shard in shards.items():
        held = partial(_contents_of, shard, rank, contents)
        noise = counts.spend_on_counts(rank, len(shard), settings, folder, held)
        if noise is not None:
            found[rank] = noise
    return found


def counts_of(
    shards: Mapping[int, Shard], noise: Mapping[int, counts.CountsNoise], num_histograms: int
) -> dict[int, Tensor]:
    """The counts of each worker, int64, with noise if there must be some."""
    return {
        rank: noise[rank].added(shard.counts(), num_histograms) if rank in noise else shard.counts()
        for rank, shard in shards.items()
    }


def check_covered(path: Path, settings: RunSettings, before: Mapping[str, Any]) -> None:
    """Checks that a run that goes on has learnt under the same protection from its start."""
    privacy = settings.privacy
    if not privacy.keeps_ledger:
        return
    has_noise = before.get("dp_noise") or before.get("dp_epsilon") is not None
    is_alike = (before.get("dp_unit") == "client") == privacy.hides_clients
    if not has_noise or before.get("dp_repeatable") or not is_alike:
        raise BadInput(
            f"--resume {path}: {privacy.dp_flag} covers the steps from here on alone, and the run "
            "has already learnt from these samples without privacy; start a new run"
        )


def check_budgets(
    settings: RunSettings,
    shards: Mapping[int, Shard],
    contents: Mapping[int, Contents],
    *,
    serves: bool,
    goes_on: bool = False,
) -> list[str]:
    """Checks that those who spend on this machine may take a step; writes nothing.

    Args:
        goes_on: whether an earlier run goes on; workers may have told all that they tell.

    Returns:
        Warnings, one line each.
    """
    privacy = settings.privacy
    warnings = _check_distinct(settings, contents)
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
    warnings += _better_told_once(settings, shards)
    return warnings + _check_samples(settings, shards, contents, goes_on=goes_on)


def planned_noise(
    settings: RunSettings, shards: Mapping[int, Shard], contents: Mapping[int, Contents]
) -> tuple[int, Plan] | None:
    """The worker here with the fewest samples, and the noise of its steps; spends nothing."""
    privacy = settings.privacy
    if not (shards and privacy.hides_samples and privacy.dp_noise != 0):
        return None
    rank, folder = min(shards, key=lambda n: len(shards[n])), ledger_folder(privacy)
    known = look_up(folder, contents[rank]) if rank in contents else LedgerView()
    schedule = StepSchedule.of_samples(rank, len(shards[rank]), settings)
    return rank, plan_of(privacy, schedule, known, folder)


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


def _check_distinct(settings: RunSettings, contents: Mapping[int, Contents]) -> list[str]:
    """Checks that no two workers here hold the same samples; warns of samples that occur again."""
    flag = settings.privacy.dp_flag
    if not settings.privacy.keeps_ledger or settings.num_placed is not None:
        return []
    if lets_workers_share(settings.data.partition):
        raise BadInput(
            f"--partition {settings.data.partition}: with {flag} no two workers may hold the same "
            "sample, which would lose what both spend; use another scheme"
        )
    holders: dict[bytes, int] = {}
    for rank, held in contents.items():
        shared = [holders.setdefault(digest, rank) for digest in held.digests]
        if others := [other for other in shared if other != rank]:
            raise BadInput(
                f"{flag}: ranks {others[0]} and {rank} hold the same samples "
                f"({others.count(others[0]):,} of them), which would spend in both accounts; give "
                "each worker samples of its own"
            )
    return [
        f"{flag}: {held.num_repeats:,} samples of rank {rank} are copies of others of it; a sample "
        "with k copies loses k times as much, so keep one of each"
        for rank, held in contents.items()
        if held.num_repeats
    ]


def _check_samples(
    settings: RunSettings,
    shards: Mapping[int, Shard],
    contents: Mapping[int, Contents],
    *,
    goes_on: bool,
) -> list[str]:
    privacy = settings.privacy
    warnings, folder = _large_delta(privacy.dp_delta or 0.0, shards), ledger_folder(privacy)
    for rank, shard in shards.items():
        if len(shard) > (said := privacy.public_samples(len(shard))):
            raise BadInput(
                f"--set dp_public_samples={said}: rank {rank} holds more, {len(shard):,}; say a "
                "number that is at least as large for every worker here"
            )
        schedule = StepSchedule.of_samples(rank, len(shard), settings)
        if not goes_on:
            schedule = schedule._replace(may_be_over=False)
        known = look_up(folder, contents[rank]) if rank in contents else LedgerView()
        plan = plan_of(privacy, schedule, known, folder)
        if privacy.audit_canaries:
            _check_canaries(settings, plan)
        if spent := _spent_before(settings, schedule, known):
            goes_on = known.last is not None and known.last.plan == plan
            left = plan.until - (known.last.steps if goes_on and known.last else 0)
            warnings.append(f"{spent}; {left:,} steps with noise {plan.noise:.3g} are left")
    return warnings


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


def _of_clients(settings: RunSettings) -> StepSchedule:
    """How many rounds there will be is not known yet."""
    return StepSchedule.of_clients(settings.data.dataset, settings.participation, 1)


def _check_clients(
    settings: RunSettings, contents: Mapping[int, Contents], *, serves: bool
) -> list[str]:
    """As `_check_samples`: of the server's account of all clients, and of this host's own."""
    privacy = settings.privacy
    schedule, folder, warnings = _of_clients(settings), ledger_folder(privacy), []
    told = [(0.0, "")]

    def look(whose: str, own: Contents) -> tuple[StepSchedule, LedgerView]:
        one = schedule._replace(whose=whose)
        known = look_up(folder, own)
        told.append((spent_before(privacy, known), _spent_before(settings, one, known)))
        return one, known

    if serves:
        _, known = look(schedule.whose, contents.get(0) or Contents.of_name(schedule.whose))
        last = known.last
        if last is None or last.plan.unit != schedule.hides or last.steps >= last.plan.until:
            plan_of(privacy, schedule, known, folder)
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
        check_alike(privacy, one, known, folder)
        # By PRV a run that goes on and another one differ, which the host's account finds out.
        if privacy.dp_accountant == "rdp" and not leaves_something(known.histories, privacy):
            plan_of(privacy, one, known, folder)
    return warnings + [f"{spent}; ledger {folder}" for _, spent in [max(told)] if spent]


def _spent_before(settings: RunSettings, schedule: StepSchedule, known: LedgerView) -> str:
    """What the user should know of earlier runs; empty if there were none."""
    if not known.histories:
        return ""
    spent = spent_before(settings.privacy, known)
    return f"{settings.privacy.dp_flag}: {schedule.whose} have spent {spent:.3g} before"
