"""What is known of a run and may be told to all: `evidence.json`. Nothing in it was real."""

import platform
from datetime import UTC, datetime
from typing import Annotated, Any

import torch
from msgspec import Meta, Struct

from mdgan import __version__
from mdgan.credentials.attestation import Attestation
from mdgan.gan.model_state import digest_of
from mdgan.inspect.trained import TrainedRun
from mdgan.launch.privacy import CLASSES
from mdgan.records.audit import Bound, Copying
from mdgan.records.happenings import BEGAN, JOINED, happening
from mdgan.records.recorded_run import RecordedRun
from mdgan.records.release_figures import attestations, figures_of, spent
from mdgan.records.release_policy import SECTIONS, Rule, rules_in
from mdgan.records.rows import Attended, Count, ScoresRow, Seconds

EVIDENCE_FILE = "evidence.json"
_KINDS = SECTIONS[:3]
_Finite = Annotated[float, Meta(gt=-1e12, lt=1e12)]


class WorkerEvidence(Struct, frozen=True, kw_only=True):
    """A worker, or for 0 every client; `epsilon` is None without differential privacy."""

    epsilon: Seconds | None = None
    answers: Count | None = None


class ScoreEvidence(Struct, frozen=True, kw_only=True):
    """The scores of the last generator that was scored; `real` are those of real samples."""

    iteration: Count
    scores: dict[str, _Finite]
    real: dict[str, _Finite] = {}
    generated: Count | None = None
    compared_with: Count | None = None
    network_sha256: str | None = None


class AuditEvidence(Struct, frozen=True, kw_only=True):
    """What attacks on the generator found, with samples drawn from it."""

    generated: Count
    attacks: list[Copying]
    bound: Bound | None = None


class Evidence(Struct, frozen=True, kw_only=True):
    """All of it.

    Attributes:
        made: when, in UTC.
        run: the random name of the run, which hosts have signed.
        kind: of sample: pictures, rows or tensors.
        terms: what was equal on all ranks: data set, algorithm, settings.
        generator: digest of its tensors.
        samples: how many all workers held at the beginning; None where hosts tell no numbers.
        classes: how many of each, where hosts were told to disclose that.
        figures: what policies decide by.
        attestations: what hosts signed of this generator, or as they left earlier.
        versions: of the programs that made this.
    """

    made: Annotated[str, Meta(max_length=40)]
    run: str
    state: str
    iteration: Count
    kind: Annotated[str, Meta(pattern=r"\A(pictures|rows|tensors)\Z")]
    shape: list[Count]
    terms: dict[str, Any]
    generator: str
    samples: Count | None = None
    classes: list[Count] = []
    workers: dict[Count, WorkerEvidence] = {}
    scores: ScoreEvidence | None = None
    audit: AuditEvidence | None = None
    figures: dict[str, _Finite]
    attestations: list[Attestation] = []
    versions: dict[str, str] = {}

    @property
    def has_dp(self) -> bool:
        """Whether differential privacy bounds what the run tells."""
        return "epsilon" in self.figures

    def rules(self, policy: str, where: str) -> list[Rule]:
        """The rules of a policy that count for this; see `rules_in`."""
        return rules_in(policy, where, self.kind, has_dp=self.has_dp)


def evidence_of(trained: TrainedRun, recorded: RecordedRun) -> Evidence:
    """Gathers it from a run's folder."""
    digest = digest_of(trained.generator.state_dict())
    terms, answers = _signed(trained, recorded, digest)
    epsilon, kind = spent(recorded, answers), trained.dataset.kind.name
    attended = {
        n: counts.get("answered")
        for row in recorded.of(Attended)
        for n, counts in row.workers.items()
    }
    return Evidence(
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        run=recorded.status.get("run_id", ""),
        state=recorded.status.get("state", ""),
        iteration=trained.iteration,
        kind=kind if kind in _KINDS else "tensors",
        shape=list(trained.models.shape),
        terms=terms,
        generator=digest,
        samples=_held(recorded),
        classes=_classes(trained, recorded),
        workers={
            n: WorkerEvidence(epsilon=epsilon.get(n), answers=attended.get(n))
            for n in sorted(attended.keys() | epsilon.keys())
        },
        scores=_scores(recorded),
        audit=_audit(recorded),
        figures=figures_of(recorded, answers),
        attestations=answers,
        versions={
            "mdgan": __version__,
            "torch": str(torch.__version__),
            "python": platform.python_version(),
        },
    )


def _signed(
    trained: TrainedRun, recorded: RecordedRun, generator: str
) -> tuple[dict[str, Any], list[Attestation]]:
    """The terms that hosts agreed to last, and what they said of this generator under them.

    Those that left before the end, or say why they do not sign, count as well.
    """
    shared = trained.settings()[0].as_json(shared=True)
    terms = {**shared, "dataset_sha256": trained.dataset.sha256}
    kept: list[Attestation] = []
    for answer in reversed(attestations(recorded)):
        try:
            said = answer.said()
        except ValueError:
            continue
        if said.generator not in ("", generator) or said.run != recorded.status.get("run_id"):
            continue
        if not any(each.signature for each in kept):
            terms = said.terms
        if said.terms == terms or answer.refusal:
            kept.insert(0, answer)
    return terms, kept


def _held(recorded: RecordedRun) -> int | None:
    begun = [each for row in recorded.events if (each := happening(row)) is not None]
    holdings = {
        n: held.samples or sum(held.classes)
        for each in begun
        if each.kind in (BEGAN, JOINED)
        for n, held in each.holdings.items()
    }
    return sum(holdings.values()) or None


def _classes(trained: TrainedRun, recorded: RecordedRun) -> list[int]:
    """Numbers of classes are for all to see only if hosts were told so by a flag."""
    disclosed = str(recorded.config.get("dp_disclose") or "").split(",")
    if CLASSES not in disclosed:
        return []
    return [sum(column) for column in zip(*trained.held(), strict=False)]


def _scores(recorded: RecordedRun) -> ScoreEvidence | None:
    scored = [row for row in recorded.of(ScoresRow) if row.scores]
    if not scored:
        return None
    last = scored[-1]
    return ScoreEvidence(
        iteration=last.iteration,
        scores={name: value for name, value in last.scores.items() if value is not None},
        real={n: float(value) for n, value in last.real.items() if isinstance(value, float | int)},
        generated=last.n,
        compared_with=last.n_real,
        network_sha256=None if last.extractor is None else last.extractor.sha256,
    )


def _audit(recorded: RecordedRun) -> AuditEvidence | None:
    found = recorded.audit
    if found is None:
        return None
    return AuditEvidence(generated=found.num_generated, attacks=found.generator, bound=found.bound)
