"""What is known of a run and may be told to all: `evidence.json`. Nothing in it was real."""

import platform
from datetime import UTC, datetime
from typing import Annotated, Any

import torch
from msgspec import Meta, Struct
from msgspec.structs import replace

from mdgan import __version__
from mdgan.credentials.permit import permit_of
from mdgan.gan.model_state import digest_of
from mdgan.inspect.trained import TrainedRun
from mdgan.launch.privacy import CLASSES
from mdgan.privacy.attestation import Attestation
from mdgan.records.audit import Audit
from mdgan.records.happenings import happening
from mdgan.records.recorded_run import RecordedRun
from mdgan.records.release_figures import attestations, figures_of, spent
from mdgan.records.release_policy import SECTIONS, Rule, rules_in
from mdgan.records.rows import Count, FeatureNetwork, ScoresRow, Seconds
from mdgan.records.values import said_list

EVIDENCE_FILE = "evidence.json"
_KINDS = SECTIONS[:3]
_Finite = Annotated[float, Meta(gt=-1e12, lt=1e12)]


class RunEvidence(Struct, frozen=True, kw_only=True):
    """All of it.

    Attributes:
        made: when, in UTC.
        run: the random name of the run, which hosts have signed.
        kind: of sample: pictures, rows or tensors.
        terms: what was equal on all ranks: data set, algorithm, settings.
        generator: digest of its tensors.
        samples: how many workers held at the beginning.
        classes: how many of each, where hosts were told to disclose that.
        epsilon: by worker, 0 for each client as a whole.
        figures: what policies decide by.
        attestations: what hosts signed of this generator, or as they left earlier.
        versions: of the programs that made this.
    """

    made: Annotated[str, Meta(max_length=40)]
    run: str
    state: str
    iteration: Count
    kind: Annotated[str, Meta(pattern=rf"\A({'|'.join(_KINDS)})\Z")]
    shape: list[Count]
    terms: dict[str, Any]
    generator: str
    samples: Count
    classes: list[Count] = []
    epsilon: dict[Count, Seconds] = {}
    scores: ScoresRow | None = None
    audit: Audit | None = None
    figures: dict[str, _Finite]
    attestations: list[Attestation] = []
    versions: dict[str, str] = {}

    @property
    def has_dp(self) -> bool:
        """Whether differential privacy bounds what the run tells."""
        return "epsilon" in self.figures

    def signers(self) -> list[tuple[str, str]]:
        """Which ranks signed, and by which certificate, or why they did not; nothing is checked."""
        rows = []
        for answer in self.attestations:
            what = f"did not sign: {answer.refusal}"
            if answer.signature:
                permit = permit_of(answer.chain.encode())
                what = f"signed by {permit.name}, key {permit.fingerprint[:16]}…"
            rows.append((f"rank(s) {said_list(answer.workers)}", what))
        return rows

    def rules(self, policy: str, where: str) -> list[Rule]:
        """The rules of a policy that count for this; see `rules_in`."""
        return rules_in(policy, where, self.kind, has_dp=self.has_dp)


def evidence_of(trained: TrainedRun, recorded: RecordedRun) -> RunEvidence:
    """Gathers it from a run's folder."""
    digest = digest_of(trained.generator.state_dict())
    terms, answers = _signed(trained, recorded, digest)
    kind = trained.dataset.kind.name
    return RunEvidence(
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
        epsilon=spent(recorded, answers),
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
        said = answer.said()
        if said.generator not in ("", generator) or said.run != recorded.status.get("run_id"):
            continue
        if not any(each.signature for each in kept):
            terms = said.terms
        if said.terms == terms or answer.refusal:
            kept.insert(0, answer)
    return terms, kept


def _held(recorded: RecordedRun) -> int:
    seen = [each for row in recorded.events if (each := happening(row)) is not None]
    held = {n: holding for each in seen for n, holding in each.holdings.items()}
    return sum(each.samples or sum(each.classes) for each in held.values())


def _classes(trained: TrainedRun, recorded: RecordedRun) -> list[int]:
    """Numbers of classes are for all to see only if hosts were told so by a flag."""
    if CLASSES not in str(recorded.config.get("dp_disclose") or "").split(","):
        return []
    return [sum(column) for column in zip(*trained.held(), strict=False)]


def _scores(recorded: RecordedRun) -> ScoresRow | None:
    """The last scores, without words: these may name files."""
    scored = [row for row in recorded.of(ScoresRow) if row.scores]
    if not scored:
        return None
    network = scored[-1].extractor or FeatureNetwork()
    nothing: dict[str, Any] = {"left_out": {}, "warnings": [], "real_class_histogram": []}
    return replace(scored[-1], extractor=replace(network, name=None), by_class=None, **nothing)


def _audit(recorded: RecordedRun) -> Audit | None:
    """What attacks on the generator found; what others found stays at home."""
    if (found := recorded.audit) is None:
        return None
    attacks = [
        replace(each, membership=replace(each.membership, curve=[])) for each in found.generator
    ]
    nothing: dict[str, Any] = {"discriminators": [], "inversions": [], "left_out": {}}
    return replace(found, generator=attacks, extractor="", **nothing)
