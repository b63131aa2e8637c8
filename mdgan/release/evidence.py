"""What is known of a run and may be told to all: `evidence.json`. No sample is in it."""

import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Annotated, Any

import torch
from msgspec import Meta, Struct
from msgspec.structs import replace
from torch import Tensor

from mdgan.credentials.permit import permit_of
from mdgan.engine.counting import published
from mdgan.engine.settings import RunSettings
from mdgan.families import registry
from mdgan.gan.labels import label_counts, num_classes_of
from mdgan.gan.model_state import digest_of
from mdgan.inspect.trained import TrainedRun
from mdgan.privacy.attestation import Attestation, rounded_up
from mdgan.privacy.settings import FEATURES
from mdgan.records import release_figures
from mdgan.records.audit import Audit
from mdgan.records.happenings import Happening
from mdgan.records.recorded_run import RecordedRun
from mdgan.records.release_policy import SECTIONS, Rule, rules_in
from mdgan.records.rows import Count, ScoresRow, Seconds
from mdgan.records.values import said_list
from mdgan.samples.contract import SampleKind
from mdgan.version import __version__

EVIDENCE_FILE = "evidence.json"
FORM = 2  # of the file. Bundles of another one cannot be checked.
_KINDS = SECTIONS[:3]
_SHARES = 1_000
_NO_SETTINGS = {"extractor"}  # among terms it is not what the user gave, but what came of it
_Text = Annotated[str, Meta(max_length=10_000)]


class RunEvidence(Struct, frozen=True, kw_only=True, dict=True):
    """All of it, and all that the other files of a bundle are made of beside the generator."""

    form: Count  # see `FORM`
    made: Annotated[str, Meta(max_length=40)]  # when, in UTC
    run: str  # the random name of the run, which hosts have signed
    state: Annotated[str, Meta(max_length=40)]
    iteration: Count
    # Of sample: pictures, rows or tensors.
    kind: Annotated[str, Meta(pattern=rf"\A({'|'.join(_KINDS)})\Z")]
    terms: dict[str, Any]  # what was equal on all ranks: data set, algorithm, settings
    generator: str  # digest of its tensors
    learnt: str = ""  # digest of what all sites have counted; see `Statement`
    # About how many workers held at the beginning; not told under privacy.
    samples: Count | None = None
    # How often samples of each class are generated; empty for equally often, or as all sites have
    # counted.
    label_shares: Annotated[list[Annotated[int, Meta(ge=0, le=_SHARES)]], Meta(max_length=10_000)]
    epsilon: dict[Count, Seconds] = {}  # by worker, 0 for each client as a whole
    scores: ScoresRow | None = None
    audit: Audit | None = None
    # What hosts signed of this generator, or as they left earlier.
    attestations: list[Attestation] = []
    num_samples: Annotated[int, Meta(ge=0, le=10_000_000)]  # how many the files of samples have
    purpose: _Text = ""
    notes: list[_Text] = []
    versions: dict[str, str] = {}  # of the programs that made this

    @cached_property
    def settings(self) -> RunSettings:
        """The terms as settings; raises BadInput if they are those of no run."""
        return _settings_of(self.terms)

    @property
    def has_dp(self) -> bool:
        """Whether differential privacy bounds what the run tells."""
        return self.settings.privacy.keeps_ledger

    @property
    def server_adds_noise(self) -> bool:
        """Whether the server is trusted to add it, so that no account of a host knows of it."""
        return self.settings.privacy.hides_clients

    @property
    def accounts(self) -> list[int]:
        """The ranks that must each say what their samples spent; 0 is the server's, of clients."""
        if self.server_adds_noise:
            return [0]
        return list(filter(self.settings.holds_data, range(1, self.settings.world_size)))

    def privacy(self, epsilon: Mapping[int, float]) -> dict[str, float]:
        """The figures ε, by rank, and δ; ε is not known if one account is missing."""
        if not self.has_dp:
            return {}
        found = {"delta": self.settings.privacy.dp_delta or 0.0}
        if self.accounts and all(rank in epsilon for rank in self.accounts):
            found["epsilon"] = max(epsilon.values())
        return found

    @property
    def measured(self) -> dict[str, float]:
        """The figures that only the server has measured."""
        return {**release_figures.of_scores(self.scores), **release_figures.of_audit(self.audit)}

    @property
    def figures(self) -> dict[str, float]:
        """What policies decide by; no signature is checked."""
        signed = release_figures.of_signatures(self.attestations)
        return {**self.measured, **self.privacy(self.epsilon), **signed}

    def misfit(self) -> str:
        """What in it mdgan does not write, as a place for other data; empty if nothing."""
        scores, audit = self.scores, self.audit
        if self.versions.keys() - versions().keys() or max(map(len, self.versions.values())) > 40:
            return "versions"
        if scores is not None and scores != replace(scores, **release_figures.NO_WORDS):
            return "scores"
        if audit is not None and (
            audit != replace(audit, **release_figures.NO_ATTACKS)
            or any(each.membership.curve for each in audit.generator)
            or (self.has_dp and audit.generator)
        ):
            return "audit"
        if self.has_dp and self.samples is not None:
            return "samples"
        if self.epsilon.keys() - set(self.accounts):
            return "epsilon"
        texts = [self.purpose, *self.notes]
        return "purpose or notes" if any(t != " ".join(t.split()) for t in texts) else ""

    def signers(self) -> list[tuple[str, str]]:
        """Which ranks signed, and by which certificate, or why they did not; nothing is checked."""
        rows = []
        for answer in self.attestations:
            what = f"did not sign: {answer.refusal}"
            if answer.signature:
                permit = permit_of(answer.chain.encode())
                which = "signed" if answer.said().generator else "signed the terms alone"
                what = f"{which} by {permit.name}, key {permit.fingerprint[:16]}…"
            rows.append((f"rank(s) {said_list(answer.workers)}", what))
        return rows

    def rules(self, policy: str, where: str) -> list[Rule]:
        """The rules of a policy that count for this; see `rules_in`."""
        return rules_in(policy, where, self.kind, has_dp=self.has_dp)


def evidence_of(
    trained: TrainedRun, recorded: RecordedRun, num_samples: int, purpose: str, notes: Sequence[str]
) -> RunEvidence:
    """Gathers it from a run's folder."""
    digest, counts = digest_of(trained.generator.state_dict()), published_counts(trained)
    learnt = "" if counts is None else digest_of({"counts": counts})
    terms, answers = _signed(trained, recorded, digest, learnt=learnt)
    has_dp = _settings_of(terms).privacy.keeps_ledger
    scores = release_figures.last_scores(recorded)
    discloses = trained.settings()[0].privacy.discloses(FEATURES)
    if has_dp and discloses and not trained.dataset.kind.judges:
        scores = None  # of sums over all samples, which no noise covers
    audit = recorded.audit
    return RunEvidence(
        form=FORM,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        run=recorded.status.get("run_id", ""),
        state=recorded.status.get("state", ""),
        iteration=trained.iteration,
        kind=kind_in_policies(trained.dataset.kind),
        terms=terms,
        generator=digest,
        learnt=learnt,
        samples=None if has_dp else release_figures.rounded(_held(recorded)),
        label_shares=_label_shares(trained),
        epsilon={n: rounded_up(e) for n, e in release_figures.spent(recorded, answers).items()},
        scores=None if scores is None else release_figures.rounded_scores(scores),
        audit=None if audit is None else release_figures.rounded_audit(audit, has_dp=has_dp),
        attestations=answers,
        num_samples=num_samples,
        purpose=" ".join(purpose.split()),
        notes=[" ".join(note.split()) for note in notes],
        versions=versions(),
    )


def kind_in_policies(kind: SampleKind) -> str:
    """Which section of a policy is for a kind of sample."""
    return kind.name if kind.name in _KINDS else "tensors"


def versions() -> dict[str, str]:
    """Of the programs that decide what a bundle's files are."""
    return {
        "mdgan": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "processor": torch.backends.cpu.get_cpu_capability(),
    }


def _settings_of(terms: Mapping[str, Any]) -> RunSettings:
    given = {name: term for name, term in terms.items() if name not in _NO_SETTINGS}
    return registry.read_settings([given])


def published_counts(trained: TrainedRun) -> Tensor | None:
    """What all sites have counted, as strangers may know it; None if nothing."""
    if not trained.dataset.kind.num_counts:
        return None
    counts = trained.run.read_counts(trained.dataset.kind.num_counts)
    noisy = trained.settings()[0].privacy.covers_samples
    return published(trained.dataset.kind, counts, noisy=noisy)


def _signed(
    trained: TrainedRun, recorded: RecordedRun, generator: str, learnt: str
) -> tuple[dict[str, Any], list[Attestation]]:
    """The terms that hosts agreed to last, and what they said of this generator under them.

    Those that left before the end, or say why they do not sign, count as well.
    """
    shared = trained.settings()[0].as_json(shared=True)
    version = recorded.status.get("version", "")
    sha256 = {"dataset_sha256": trained.dataset.sha256, **trained.dataset.agreed}
    terms = {"version": version, **shared, **sha256}
    kept: list[Attestation] = []
    for answer in reversed(release_figures.attestations(recorded)):
        said = answer.said()
        others = said.generator not in ("", generator) or said.learnt not in ("", learnt)
        if others or said.run != recorded.status.get("run_id"):
            continue
        if not any(each.signature for each in kept):
            terms = said.terms
        if said.terms == terms or answer.refusal:
            kept.insert(0, answer)
    return terms, kept


def _held(recorded: RecordedRun) -> int:
    held = {n: own for row in recorded.of(Happening) for n, own in row.holdings.items()}
    return sum(each.samples or sum(each.classes) for each in held.values())


def _label_shares(trained: TrainedRun) -> list[int]:
    """In thousandths, where samples are generated as often as workers hold their class."""
    is_even = trained.settings()[0].training.label_prior != "data"
    number = num_classes_of(trained.generator)
    if is_even or number is None or trained.dataset.kind.num_counts:
        return []
    counts = label_counts(number, trained.held()).tolist()
    return [
        max(int(n > 0), round(release_figures.rounded(_SHARES * n / sum(counts)))) for n in counts
    ]
