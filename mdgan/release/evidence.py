"""`evidence.json`: everything about a run that strangers may know. It holds no sample."""

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
FORM = 2  # the form of the file; this mdgan checks no bundle of another form
_KINDS = SECTIONS[:3]
_SHARES = 1_000
_NO_SETTINGS = {"extractor"}  # terms hold the resolved extractor instead of the user's setting
_Text = Annotated[str, Meta(max_length=10_000)]


class RunEvidence(Struct, frozen=True, kw_only=True, dict=True):
    """The content of the file; with the generator it determines all other files of a bundle."""

    form: Count  # see `FORM`
    made: Annotated[str, Meta(max_length=40)]  # when, in UTC
    run: str  # the random name of the run, which hosts have signed
    state: Annotated[str, Meta(max_length=40)]
    iteration: Count
    # The kind of sample: pictures, rows or tensors.
    kind: Annotated[str, Meta(pattern=rf"\A({'|'.join(_KINDS)})\Z")]
    terms: dict[str, Any]  # equal on all ranks: data set, algorithm, settings
    generator: str  # digest of its tensors
    learnt: str = ""  # digest of the counts of all sites; see `Statement`
    # The rounded number of samples of all workers at the start; None under privacy.
    samples: Count | None = None
    # How often the generator makes samples of each class; empty for equally often, or for the
    # shares in the counts of all sites.
    label_shares: Annotated[list[Annotated[int, Meta(ge=0, le=_SHARES)]], Meta(max_length=10_000)]
    epsilon: dict[Count, Seconds] = {}  # by worker, 0 for each client as a whole
    scores: ScoresRow | None = None
    audit: Audit | None = None
    # The answers of hosts about this generator, or from when they left earlier.
    attestations: list[Attestation] = []
    num_samples: Annotated[int, Meta(ge=0, le=10_000_000)]  # synthetic samples in the bundle
    purpose: _Text = ""
    notes: list[_Text] = []
    versions: dict[str, str] = {}  # of the programs that made the bundle

    @cached_property
    def settings(self) -> RunSettings:
        """The terms as settings; raises BadInput if no run can have them."""
        return _settings_of(self.terms)

    @property
    def has_dp(self) -> bool:
        """Whether differential privacy bounds what the run tells."""
        return self.settings.privacy.keeps_ledger

    @property
    def server_adds_noise(self) -> bool:
        """Whether noise hides whole clients, so that no account of a host states ε."""
        return self.settings.privacy.hides_clients

    @property
    def accounts(self) -> list[int]:
        """The ranks that must state the ε of their samples; 0: the server, for whole clients."""
        if self.server_adds_noise:
            return [0]
        return list(filter(self.settings.holds_data, range(1, self.settings.world_size)))

    def privacy(self, epsilon: Mapping[int, float]) -> dict[str, float]:
        """The figures δ, and the largest ε by rank unless one account is missing."""
        if not self.has_dp:
            return {}
        figures = {"delta": self.settings.privacy.dp_delta or 0.0}
        if self.accounts and all(rank in epsilon for rank in self.accounts):
            figures["epsilon"] = max(epsilon.values())
        return figures

    @property
    def measured(self) -> dict[str, float]:
        """The figures that only the server has measured."""
        return {**release_figures.of_scores(self.scores), **release_figures.of_audit(self.audit)}

    @property
    def figures(self) -> dict[str, float]:
        """The figures that policies decide by, without checking signatures."""
        signed = release_figures.of_signatures(self.attestations)
        return {**self.measured, **self.privacy(self.epsilon), **signed}

    def misfit(self) -> str:
        """Names a field that could smuggle data, since mdgan would not write it so; or empty."""
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
        """For each host's ranks, which certificate signed or why not; checks no signature."""
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
        """The rules of a policy that apply to this run; see `rules_in`."""
        return rules_in(policy, where, self.kind, has_dp=self.has_dp)


def evidence_of(
    trained: TrainedRun, recorded: RecordedRun, num_samples: int, purpose: str, notes: Sequence[str]
) -> RunEvidence:
    """Gathers the evidence from a run's folder."""
    digest, counts = digest_of(trained.generator.state_dict()), published_counts(trained)
    learnt = "" if counts is None else digest_of({"counts": counts})
    terms, answers = _signed(trained, recorded, digest, learnt=learnt)
    has_dp = _settings_of(terms).privacy.keeps_ledger
    scores = release_figures.last_scores(recorded)
    discloses = trained.settings()[0].privacy.discloses(FEATURES)
    if has_dp and discloses and not trained.dataset.kind.judges:
        scores = None  # they are from sums over all samples, without noise
    audit = recorded.audit
    held = {n: shard for row in recorded.of(Happening) for n, shard in row.holdings.items()}
    num_held = sum(shard.samples or sum(shard.classes) for shard in held.values())
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
        samples=None if has_dp else release_figures.rounded(num_held),
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
    """The section of a policy for a kind of sample."""
    return kind.name if kind.name in _KINDS else "tensors"


def versions() -> dict[str, str]:
    """Versions of the programs, and the processor, that determine a bundle's files."""
    return {
        "mdgan": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "processor": torch.backends.cpu.get_cpu_capability(),
    }


def _settings_of(terms: Mapping[str, Any]) -> RunSettings:
    return registry.read_settings([{n: term for n, term in terms.items() if n not in _NO_SETTINGS}])


def published_counts(trained: TrainedRun) -> Tensor | None:
    """The counts of all sites, as strangers may know them; None if there are none."""
    if not trained.dataset.kind.num_counts:
        return None
    counts = trained.run.read_counts(trained.dataset.kind.num_counts)
    noisy = trained.settings()[0].privacy.covers_samples
    return published(trained.dataset.kind, counts, noisy=noisy)


def _signed(
    trained: TrainedRun, recorded: RecordedRun, generator: str, learnt: str
) -> tuple[dict[str, Any], list[Attestation]]:
    """The terms that hosts agreed to last, and their answers about this generator.

    It includes hosts that left before the end, or refused to sign.
    """
    shared = trained.settings()[0].as_json(shared=True)
    version = recorded.status.get("version", "")
    sha256 = {"dataset_sha256": trained.dataset.sha256, **trained.dataset.agreed}
    terms = {"version": version, **shared, **sha256}
    kept: list[Attestation] = []
    for answer in reversed(release_figures.attestations(recorded)):
        stated = answer.said()
        others = stated.generator not in ("", generator) or stated.learnt not in ("", learnt)
        if others or stated.run != recorded.status.get("run_id"):
            continue
        if not any(accepted.signature for accepted in kept):
            terms = stated.terms
        if stated.terms == terms or answer.refusal:
            kept.insert(0, answer)
    return terms, kept


def _label_shares(trained: TrainedRun) -> list[int]:
    """Shares of classes in thousandths, if the generator makes them as often as workers hold."""
    is_even = trained.settings()[0].training.label_prior != "data"
    number = num_classes_of(trained.generator)
    if is_even or number is None or trained.dataset.kind.num_counts:
        return []
    counts = label_counts(number, trained.held_counts()).tolist()
    return [
        max(int(n > 0), round(release_figures.rounded(_SHARES * n / sum(counts)))) for n in counts
    ]
