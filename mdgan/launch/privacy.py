"""What a machine checks and opens for differential privacy, before its workers train."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mdgan.data.dataset_file import DatasetFile
from mdgan.data.shard import ClientShards, Shard
from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.gan.labels import shares_of
from mdgan.privacy import counts
from mdgan.privacy.budget import Budget, ClientsAccount, open_budget
from mdgan.privacy.contents import Contents
from mdgan.privacy.ledger import Releases, look_up
from mdgan.privacy.ledger_view import LedgerView, Plan
from mdgan.privacy.planning import StepSchedule, ledger_folder, plan_of
from mdgan.privacy.settings import DISCLOSABLE
from mdgan.samples.contract import SampleKind

FEATURES = DISCLOSABLE[1]  # what hosts tell outside of training


def tells(settings: RunSettings, what: str) -> bool:
    """Whether workers tell something of their data; see `PrivacySettings.tells`."""
    return settings.privacy.discloses(what)


def flush_denormals(settings: RunSettings) -> None:
    """Counts numbers below 10⁻³⁸ as 0, in this thread and in all that it starts.

    Some processors take many times as long for them, which would tell of samples that lead to them.
    """
    if settings.privacy.covers_samples:
        torch.set_flush_denormal(True)


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


def counted(settings: RunSettings, shard: Shard, held: Contents | None) -> Shard:
    """The samples by which a worker says how many it holds: of each unit that noise hides one."""
    if held is None or not settings.privacy.hides_samples:
        return shard
    units = held.units(len(shard))
    return shard.of(units.first_samples) if units.num_repeats else shard


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
    return ClientsAccount(privacy, schedule_of_clients(settings), ledger_folder(privacy), held)


def schedule_of_clients(settings: RunSettings) -> StepSchedule:
    """How many rounds there will be is not known yet."""
    return StepSchedule.of_clients(settings.data.dataset, settings.participation, 1)


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


def counts_of(
    settings: RunSettings,
    shards: Mapping[int, Shard],
    contents: Mapping[int, Contents],
    kind: SampleKind,
) -> dict[int, Tensor]:
    """The counts of each worker, int64; where noise hides samples, with noise, and charged."""
    if not settings.privacy.covers_samples:
        return {rank: shard.counts() for rank, shard in shards.items()}

    def count(shard: Shard) -> counts.SampleCounts:
        return counts.SampleCounts(shard.counts(), kind.num_histograms, kind.counts_meaning)

    return {rank: told for rank, _, told in _noisy(settings, shards, contents, count)}


def noisy_classes(
    settings: RunSettings,
    shards: Mapping[int, Shard],
    contents: Mapping[int, Contents],
    num_classes: int,
) -> dict[int, list[int]]:
    """About how many samples of each class workers hold: all that may follow their classes.

    A worker's weight follows from its own counts, so noise in the sum of all would not cover it:
    each worker adds noise to its own, and only then are they told or added up. A sample stands in
    one count of one worker, which makes them one Gaussian mechanism of sensitivity 1, charged
    beside the worker's steps. What follows from counts and steps costs no more: the weight, weight
    × models, who is drawn, and sums of all that.

    Noisy counts are cut at 0, drawn together where they differ no more than noise makes them
    (`shares_of`), and scaled to the number of samples that the worker tells anyway, so that they
    add up as counts do.
    """
    found, variance = dict[int, list[int]](), counts.noise_of(settings) ** 2
    count = partial(classes_of, num_classes=num_classes)
    for rank, size, told in _noisy(settings, shards, contents, count):
        shares = shares_of(told.clamp(min=0).double(), variance)
        exact = shares * settings.privacy.public_samples(size)
        whole = exact.floor()
        missing = round(float((exact - whole).sum()))
        whole[(exact - whole).topk(missing).indices] += 1
        found[rank] = whole.long().tolist()
    return found


def classes_of(shard: Shard, num_classes: int) -> counts.SampleCounts:
    """How many samples of each of K classes a worker holds; by other labels they are others."""
    held = torch.tensor(shard.class_counts(num_classes))[:num_classes]
    return counts.SampleCounts(held, 1, f"classes {sha256(held.numpy().tobytes()).hexdigest()}")


def _noisy(
    settings: RunSettings,
    shards: Mapping[int, Shard],
    contents: Mapping[int, Contents],
    count: Callable[[Shard], counts.SampleCounts],
) -> Iterator[tuple[int, int, Tensor]]:
    """Each worker, its number of units, and what is counted of them, with noise, and charged."""
    for rank, shard in shards.items():
        held = _contents_of(shard, rank, contents)
        each = counted(settings, shard, held)
        schedule = StepSchedule.of_samples(rank, len(each), settings)
        told = counts.noisy_counts(count(each), schedule=schedule, settings=settings, held=held)
        yield rank, len(each), told


def asked_before(
    settings: RunSettings, shard: Shard, dataset: DatasetFile, *, goes_on: bool = False
) -> dict[str, str]:
    """By what a worker's samples are counted before training: `SampleCounts.meaning`, in words.

    A run that goes on counts no table again.
    """
    asked = {} if goes_on else {"this schema and target": dataset.kind.counts_meaning}
    if settings.hides_classes:
        asked["these labels"] = classes_of(shard, dataset.num_classes or 0).meaning
    return {by: meaning for by, meaning in asked.items() if meaning}


def known_at_training(
    settings: RunSettings,
    schedule: StepSchedule,
    held: Contents | None,
    meanings: Iterable[str],
) -> LedgerView:
    """What the ledger will know of samples when they train, after these counts; spends nothing."""
    folder = ledger_folder(settings.privacy)
    known = LedgerView() if held is None else look_up(folder, held)
    for meaning in meanings:
        if held is None or not counts.are_told(settings, Releases(folder, held), meaning):
            known = counts.after_counts(known, schedule, settings)
    return known


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


def planned_noise(
    settings: RunSettings,
    shards: Mapping[int, Shard],
    contents: Mapping[int, Contents],
    dataset: DatasetFile,
) -> tuple[int, Plan] | None:
    """The worker here with the fewest samples, and the noise of its steps; spends nothing."""
    privacy = settings.privacy
    if not (shards and privacy.covers_samples):
        return None
    shards = {rank: counted(settings, shard, contents.get(rank)) for rank, shard in shards.items()}
    rank = min(shards, key=lambda n: len(shards[n]))
    schedule = StepSchedule.of_samples(rank, len(shards[rank]), settings)
    meanings = asked_before(settings, shards[rank], dataset).values()
    known = known_at_training(settings, schedule, contents.get(rank), meanings)
    return rank, plan_of(privacy, schedule, known, ledger_folder(privacy))
