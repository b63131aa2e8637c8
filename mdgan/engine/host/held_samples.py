"""The samples of this machine's workers: their numbers, counts and privacy budgets."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from hashlib import sha256

import torch
from torch import Tensor

from mdgan.data.dataset_file import DatasetFile
from mdgan.data.shard import ClientShards, Shard
from mdgan.engine.settings import RunSettings
from mdgan.gan.labels import shares_of
from mdgan.privacy import counts
from mdgan.privacy.budget import Budget, ClientsAccount, open_budget
from mdgan.privacy.contents import Contents
from mdgan.privacy.ledger import look_up
from mdgan.privacy.ledger_view import LedgerView, Plan
from mdgan.privacy.planning import StepSchedule, ledger_folder, plan_of


@dataclass(frozen=True)
class HeldSamples:
    """The samples of workers, by rank, and what must be computed from them before training."""

    settings: RunSettings
    shards: Mapping[int, Shard]
    # Digests of the samples by rank, for the ledger; empty without a ledger. Rank 0 stands for the
    # samples of all placed clients.
    contents: Mapping[int, Contents]
    dataset: DatasetFile

    @classmethod
    def read(
        cls,
        settings: RunSettings,
        shards: Mapping[int, Shard],
        clients: ClientShards | None,
        dataset: DatasetFile,
    ) -> "HeldSamples":
        """Computes digests of the samples; `clients`: the placed ones, if the server is here."""
        contents = dict[int, Contents]()
        if settings.privacy.keeps_ledger and settings.num_placed is None:
            contents = {rank: Contents.of(shard) for rank, shard in shards.items()}
        elif settings.privacy.keeps_ledger and clients is not None:
            contents = {0: clients.read_once(Contents.of)}
        return cls(settings, shards, contents, dataset)

    @cached_property
    def units(self) -> dict[int, Shard]:
        """The samples that count: under noise, the first sample of each unit (such as a person)."""
        return {rank: self._units(rank, self.contents.get(rank)) for rank in self.shards}

    def _units(self, rank: int, held: Contents | None) -> Shard:
        shard = self.shards[rank]
        if held is None or not self.settings.privacy.hides_samples:
            return shard
        units = held.units(len(shard))
        return shard.of(units.first_samples) if units.num_repeats else shard

    def _contents_of(self, rank: int) -> Contents:
        """The digests of a shard, computed here unless the launching process has done so."""
        return self.contents.get(rank) or Contents.of(self.shards[rank])

    def schedule(self, rank: int) -> StepSchedule:
        """The steps of a worker's training, as its budget counts them."""
        return self._schedule(rank, self.units[rank])

    def _schedule(self, rank: int, units: Shard) -> StepSchedule:
        return StepSchedule.of_samples(rank, len(units), self.settings, self._counts_first)

    @property
    def _counts_first(self) -> bool:
        """Whether the counts of a table are planned together with the one sum workers send."""
        return self.settings.tells_once and self.dataset.kind.num_counts > 0

    def open_account(self) -> ClientsAccount | None:
        """The account of the samples of this host's clients; None if they have no account."""
        privacy = self.settings.privacy
        if not (privacy.hides_clients and privacy.keeps_ledger) or (
            self.settings.num_placed is not None
        ):
            return None
        held = Contents.union(map(self._contents_of, self.shards))
        schedule = schedule_of_clients(self.settings)
        return ClientsAccount(privacy, schedule, ledger_folder(privacy), held)

    def open_budgets(self) -> dict[int, Budget]:
        """Opens the budgets of workers, by rank; none without noise."""
        if not self.settings.privacy.hides_samples:
            return {}
        folder, budgets = ledger_folder(self.settings.privacy), dict[int, Budget]()
        try:
            for rank, shard in self.shards.items():
                held, first = partial(self._contents_of, rank), self._counts_first
                budget = open_budget(rank, len(shard), self.settings, folder, held, first)
                if budget is not None:
                    budgets[rank] = budget
        except BaseException:
            for budget in budgets.values():
                budget.close()
            raise
        return budgets

    def count_samples(self, parts: Mapping[int, float] = {}) -> dict[int, Tensor]:
        """The counts of each worker, int64; with noise, or a part of it, by `PaidCounts.tell`."""
        if not self.settings.privacy.covers_samples:
            return {rank: shard.counts() for rank, shard in self.shards.items()}
        return {rank: own.tell(parts.get(rank, 1.0)) for rank, own in self.paid_counts.items()}

    @cached_property
    def paid_counts(self) -> dict[int, counts.PaidCounts]:
        """The counts of a table, which the budget has paid; none without noise."""
        kind, is_shared = self.dataset.kind, self.settings.shares_counts
        if not (self.settings.privacy.covers_samples and kind.num_counts):
            return {}

        def count(shard: Shard) -> counts.SampleCounts:
            own, meaning = kind.noisy_form(shard.counts()), self._meaning_of_rows
            return counts.SampleCounts(own, kind.num_histograms, meaning, is_shared)

        return {rank: own for rank, _, own in self._paid(count)}

    @property
    def _meaning_of_rows(self) -> str:
        meaning = self.dataset.kind.counts_meaning
        return f"{meaning} shared" if meaning and self.settings.shares_counts else meaning

    def noisy_classes(self) -> dict[int, list[int]]:
        """About how many samples of each class workers hold; all that uses classes uses these.

        A worker's weight follows from its own counts, so noise in the sum of all workers would not
        cover it. Each worker adds noise to its own counts before it sends them or adds them up. A
        sample is in one count of one worker: they are one Gaussian mechanism of sensitivity 1,
        charged beside the worker's steps. What is computed from counts and steps costs no more: the
        weight, weight × models, the drawn clients, and sums of all that.

        Noisy counts are cut at 0, drawn together where they differ no more than noise makes them
        (`shares_of`), and scaled to the number of samples that the worker tells anyway.
        """
        found, variance = dict[int, list[int]](), counts.noise_of(self.settings) ** 2
        for rank, size, paid in self._paid(self._count_classes):
            shares = shares_of(paid.tell().round().clamp(min=0), variance)
            exact = shares * self.settings.privacy.public_samples(size)
            whole = exact.floor()
            missing = round(float((exact - whole).sum()))
            whole[(exact - whole).topk(missing).indices] += 1
            found[rank] = whole.long().tolist()
        return found

    def _count_classes(self, shard: Shard) -> counts.SampleCounts:
        return classes_of(shard, self.dataset.num_classes or 0)

    def _paid(
        self, count: Callable[[Shard], counts.SampleCounts]
    ) -> Iterator[tuple[int, int, counts.PaidCounts]]:
        """Yields each worker, its number of units, and their counts, which the budget pays."""
        for rank in self.shards:
            held = self._contents_of(rank)
            each = self._units(rank, held)
            schedule, own = self._schedule(rank, each), count(each)
            paid = counts.paid_counts(own, schedule=schedule, settings=self.settings, held=held)
            yield rank, len(each), paid

    def are_paid(self, rank: int, meaning: str) -> bool:
        """Whether the budget has paid such counts already; errors as `planned_counts`."""
        if (held := self.contents.get(rank)) is None:
            return False
        own, of = counts.SampleCounts(torch.empty(0), 0, meaning), self.schedule(rank)
        planned = counts.planned_counts(own, schedule=of, settings=self.settings, held=held)
        return planned.kept() is not None

    def asked_before(self, rank: int, *, goes_on: bool = False) -> dict[str, str]:
        """The counts made before training: what they count by, in words → `SampleCounts.meaning`.

        A resumed run does not count a table again.
        """
        asked = {} if goes_on else {"this schema and target": self._meaning_of_rows}
        if self.settings.hides_classes:
            asked["these labels"] = self._count_classes(self.units[rank]).meaning
        return {by: meaning for by, meaning in asked.items() if meaning}

    def known_at_training(
        self, rank: int, schedule: StepSchedule, meanings: Iterable[str]
    ) -> LedgerView:
        """What the ledger will hold of a worker's samples after counts; spends nothing."""
        folder, held = ledger_folder(self.settings.privacy), self.contents.get(rank)
        known = LedgerView() if held is None else look_up(folder, held)
        for meaning in meanings:
            if not (schedule.counts_share or self.are_paid(rank, meaning)):
                known = counts.after_counts(known, schedule, self.settings)
        return known

    def planned_noise(self) -> tuple[int, Plan] | None:
        """The worker with the fewest samples, and the plan of its noise; spends nothing."""
        privacy = self.settings.privacy
        if not (self.shards and privacy.covers_samples):
            return None
        rank = min(self.units, key=lambda n: len(self.units[n]))
        schedule = self.schedule(rank)
        known = self.known_at_training(rank, schedule, self.asked_before(rank).values())
        return rank, plan_of(privacy, schedule, known, ledger_folder(privacy))


def schedule_of_clients(settings: RunSettings) -> StepSchedule:
    """The schedule of clients for one round, as the number of rounds is not known yet."""
    return StepSchedule.of_clients(settings.data.dataset, settings.participation, 1)


def classes_of(shard: Shard, num_classes: int) -> counts.SampleCounts:
    """How many samples of each of K classes a worker holds; other labels give another meaning."""
    held = torch.tensor(shard.class_counts(num_classes))[:num_classes]
    return counts.SampleCounts(held, 1, f"classes {sha256(held.numpy().tobytes()).hexdigest()}")
