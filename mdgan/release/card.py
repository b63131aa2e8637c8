"""The card of a bundle for its readers: its purpose, its evidence and its limits."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from mdgan.families import registry
from mdgan.records.release_policy import RuleVerdict
from mdgan.records.score_names import SCORE_NAMES
from mdgan.records.values import said
from mdgan.release.evidence import RunEvidence
from mdgan.release.source import Source
from mdgan.samples.contract import SampleKind

_PLAIN = str.maketrans({**{c: f"\\{c}" for c in "\\`[]|"}, "<": "&lt;"})
"""Markdown that shows characters of others, instead of HTML, links, pictures, code or cells."""
LIMITS = (
    "Samples follow what workers held together. What is rare there may be rarer here or missing, "
    "and what is wrong or unfair there is so here.",
    "Conclusions about people must be checked on real data before they are acted on.",
    "The audit finds what its attacks find. It cannot show that there is nothing to be found.",
)
_PURPOSE = (
    "Synthetic {} for research, teaching and development where the real ones cannot be shared."
)
_IN_PLACE = "Data stayed where they are: workers trained on them there, and sent no sample."
_IN_ONE_PLACE = "All data were in one place."
_UNKNOWN = "Differential privacy with δ = {:g}, and an ε that is not known for every worker."
_NO_DP = "No differential privacy: only the audit says what samples tell of people."
_DP = (
    "Differential privacy, ε = {} at most and δ = {:g}: what the run made would hardly differ "
    "without any one of the samples, or clients where these are hidden as a whole."
)
_SHOWN_TERMS = {
    "dataset": "data set",
    "world_size": "ranks, with the server",
    "iterations": "iterations",
    "batch_size": "batch size of a worker",
    "secure_aggregation": "secure sums",
    "dp_unit": "what privacy hides",
    "dp_disclose": "told without noise",
    "version": "mdgan",
}


@dataclass(frozen=True)
class Card:
    """The content of a card, and its two forms (`written`)."""

    source: Source
    verdicts: Sequence[RuleVerdict]
    lines: str = ""  # Python that samples from the exported generator; empty if there is none

    @property
    def evidence(self) -> RunEvidence:
        """The evidence of the run."""
        return self.source.evidence

    @property
    def kind(self) -> SampleKind:
        """The kind of sample."""
        return self.source.dataset.kind

    @property
    def title(self) -> str:
        """The title, one line."""
        return f"Synthetic {self.kind.name} after “{self.evidence.terms.get('dataset', 'own')}”"

    @property
    def purpose(self) -> str:
        """The purpose of the samples, as the user gave it or by default."""
        return self.evidence.purpose or _PURPOSE.format(self.kind.name)

    @property
    def made(self) -> str:
        """A sentence about the algorithm and the place of the data."""
        entry = registry.algorithm(str(self.evidence.terms["algorithm"]))
        return f"{entry.name}: {entry.about}. {_IN_PLACE if entry.has_hosts else _IN_ONE_PLACE}"

    @property
    def privacy(self) -> str:
        """A sentence about the privacy that the run guarantees."""
        figures = self.evidence.figures
        if not self.evidence.has_dp:
            return _NO_DP
        if "epsilon" not in figures:
            return _UNKNOWN.format(figures["delta"])
        return _DP.format(said(figures["epsilon"]), figures["delta"])

    def written(self, picture: bytes | None) -> tuple[bytes, bytes]:
        """The card as Markdown and as an HTML page that needs no other file."""
        about: dict[str, Any] = {
            **{"name": self.title, "purpose": self.purpose, "notes": self.evidence.notes},
            **{"made": self.made, "privacy": self.privacy, "lines": self.lines, "limits": LIMITS},
            **{"data": self._data(), "terms": self._terms(), "scores": self._scores()},
            **{"attacks": self._attacks(), "signed": self.evidence.signers()},
            "policy": [("met" if rule.met else "not met", rule.why) for rule in self.verdicts],
            "picture": "" if picture is None else b64encode(picture).decode(),
        }

        def render(name: str, form: str, *, is_page: bool) -> bytes:
            environment = Environment(
                loader=PackageLoader("mdgan.release"),
                autoescape=is_page,
                undefined=StrictUndefined,
                trim_blocks=True,
            )
            environment.filters["plain"] = lambda text: text.translate(_PLAIN)
            return (environment.get_template(name).render(about, form=form) + "\n").encode()

        return (
            render("card.txt", "as_markdown.txt", is_page=False),
            render("page.html", "as_html.txt", is_page=True),
        )

    def _data(self) -> list[tuple[str, str]]:
        evidence = self.evidence
        rows = [
            ("real samples", f"about {evidence.samples:,}" if evidence.samples else "not told"),
            ("shape of a sample", " × ".join(map(str, self.source.models.shape))),
        ]
        return rows + [(f"column {name}", what) for name, what in self.kind.columns().items()]

    def _terms(self) -> list[tuple[str, str]]:
        terms = self.evidence.terms
        rows = [(words, str(terms[n])) for n, words in _SHOWN_TERMS.items() if terms.get(n)]
        return [*rows, ("generator of iteration", f"{self.evidence.iteration:,}")]

    def _scores(self) -> list[tuple[str, str]]:
        row, rows = self.evidence.scores, []
        for name, words in SCORE_NAMES.items():
            if row is not None and (score := row.scores.get(name)) is not None:
                real = row.real.get(name)
                beside = f", real samples {said(real)}" if isinstance(real, float) else ""
                rows.append((words, f"{said(score)}{beside}"))
        return rows

    def _attacks(self) -> list[tuple[str, str]]:
        rows = [
            (f"ε of worker {worker}" if worker else "ε of each client", said(epsilon))
            for worker, epsilon in sorted(self.evidence.epsilon.items())
        ]
        audit = self.evidence.audit
        if audit is None or not (audit.generator or audit.bound):
            return [*rows, ("audit", "none is told here")]
        for attack in audit.generator:
            rows += [
                (f"membership, by {attack.space}", f"AUC {attack.membership.auc:g} (0.5: none)"),
                (f"distance to trained / held out, by {attack.space}", said(attack.ratio)),
            ]
            if attack.copied is not None:
                rows.append((f"copies, by {attack.space}", f"{100 * attack.copied:g} %"))
        return [*rows, *([("by canaries", str(audit.bound))] if audit.bound else [])]
