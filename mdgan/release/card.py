"""The card of a bundle, for readers: what it is, what is known of it, and what it cannot be."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field

from jinja2 import Environment, PackageLoader, StrictUndefined

from mdgan.credentials.permit import permit_of
from mdgan.families import registry
from mdgan.records.release_policy import Verdict
from mdgan.records.score_names import SCORE_NAMES
from mdgan.records.values import said, said_list
from mdgan.release.evidence import Evidence
from mdgan.samples.contract import SampleKind

_PURPOSE = (
    "Synthetic {kind} for research, teaching and development where the real ones cannot be shared."
)
_LIMITS = (
    "Samples follow what workers held together. What is rare there is rarer here or missing, and "
    "what is wrong or unfair there is so here.",
    "Conclusions about people must be checked on real data before anybody acts on them.",
    "The audit finds what its attacks find. It cannot show that there is nothing to be found.",
)
_SCORES = (
    "Scores compare samples with real ones by the features of a network, or column by column. They "
    "say how like the real ones samples are as a whole, not whether a single sample is plausible."
)
_IN_PLACE = "Data stayed where they are: workers trained on them there, and sent no sample."
_IN_ONE_PLACE = "All data were in one place."
_SHOWN_TERMS = {
    "algorithm": "algorithm",
    "dataset": "data set",
    "world_size": "ranks, with the server",
    "iterations": "iterations",
    "batch_size": "batch size of a worker",
    "secure_aggregation": "secure sums",
    "dp_unit": "what privacy hides",
    "version": "mdgan",
}


@dataclass(frozen=True)
class Section:
    """A part of the card: sentences, then a table of two columns, then code."""

    title: str
    texts: Sequence[str] = ()
    rows: Sequence[tuple[str, str]] = ()
    code: str = ""


@dataclass(frozen=True)
class Card:
    """What the card is made of.

    Attributes:
        files: of the bundle, without those about it.
        lines: of Python that sample from the exported generator; empty without it.
        notes: what the reader should know besides, one line each.
    """

    evidence: Evidence
    purpose: str
    files: Sequence[str]
    lines: str
    verdicts: Sequence[Verdict]
    notes: Sequence[str]
    kind: SampleKind = field(repr=False)

    @property
    def title(self) -> str:
        """One line."""
        name = str(self.evidence.terms.get("dataset", "own"))
        return f"Synthetic {self.kind.name} after “{name}”"

    @property
    def about(self) -> str:
        """What it is for."""
        return self.purpose or _PURPOSE.format(kind=self.kind.name)

    @property
    def sections(self) -> list[Section]:
        """All of it but the title."""
        found = [
            Section("Purpose", [self.about, *self.notes]),
            Section("Data", rows=_data(self.evidence, self.kind)),
            Section("How it was made", [_made(self.evidence)], _terms(self.evidence)),
            Section("Scores", *_scores(self.evidence)),
            Section("What it may tell of people", *_privacy(self.evidence)),
            Section("Who signed", *_signed(self.evidence)),
            Section("Policy", rows=[(_mark(each), each.why) for each in self.verdicts]),
        ]
        if self.lines:
            text = "These lines need torch alone. Run `mdgan verify` first: torch runs what is in "
            text += "such a file. mdgan draws the same bits: `mdgan sample -n 300 -o samples.npz`."
            found.append(Section("Sampling", [text], code=self.lines))
        return [*found, Section("Limits", _LIMITS)]


def card_of(card: Card, picture: bytes | None = None) -> tuple[bytes, bytes]:
    """The card as Markdown and as one HTML page, which needs no other file."""
    parts = [f"# {card.title}"]
    for section in card.sections:
        parts += [f"## {section.title}", *map(_escaped, section.texts)]
        if section.rows:
            rows = [f"| {_cell(name)} | {_cell(value)} |" for name, value in section.rows]
            parts.append("\n".join(["| | |", "|---|---|", *rows]))
        parts += [f"```python\n{section.code}```"] * bool(section.code)
    environment = Environment(
        loader=PackageLoader("mdgan.release"), autoescape=True, undefined=StrictUndefined
    )
    page = environment.get_template("card.html").render(
        title=card.title,
        sections=card.sections,
        picture="" if picture is None else b64encode(picture).decode(),
    )
    return ("\n\n".join(parts) + "\n").encode(), page.encode()


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;")


def _cell(text: str) -> str:
    return _escaped(" ".join(text.split())).replace("|", "\\|")


def _mark(verdict: Verdict) -> str:
    return "met" if verdict.met else "not met"


def _data(evidence: Evidence, kind: SampleKind) -> list[tuple[str, str]]:
    rows = [
        ("real samples", "not told" if evidence.samples is None else f"{evidence.samples:,}"),
        ("at workers", str(len([n for n in evidence.workers if n]) or "not told")),
        ("shape of a sample", " × ".join(map(str, evidence.shape))),
    ]
    if evidence.classes:
        rows.append(("of each class", ", ".join(map(str, evidence.classes))))
    return rows + [(f"column {name}", what) for name, what in kind.columns().items()]


def _made(evidence: Evidence) -> str:
    entry = registry.algorithm(str(evidence.terms["algorithm"]))
    return f"{entry.name}: {entry.about}. {_IN_PLACE if entry.has_hosts else _IN_ONE_PLACE}"


def _terms(evidence: Evidence) -> list[tuple[str, str]]:
    told = [
        (words, str(evidence.terms[name]))
        for name, words in _SHOWN_TERMS.items()
        if evidence.terms.get(name) not in (None, False, "")
    ]
    return [*told, ("generator of iteration", f"{evidence.iteration:,}")]


def _scores(evidence: Evidence) -> tuple[list[str], list[tuple[str, str]]]:
    found = evidence.scores
    if found is None:
        return ["The run was not scored."], []
    rows = []
    for name, words in SCORE_NAMES.items():
        if name in found.scores:
            real = f", real samples {said(found.real[name])}" if name in found.real else ""
            rows.append((words, f"{said(found.scores[name])}{real}"))
    return [_SCORES], rows


def _privacy(evidence: Evidence) -> tuple[list[str], list[tuple[str, str]]]:
    rows = []
    if evidence.has_dp:
        epsilon, delta = evidence.figures["epsilon"], evidence.figures["delta"]
        texts = [
            f"Differential privacy: ε = {said(epsilon)} at most, δ = {delta:g}. What the run made "
            "would hardly differ without any one of the samples, or without any one client where "
            "clients are hidden as a whole."
        ]
        for worker, own in evidence.workers.items():
            whose = f"ε of worker {worker}" if worker else "ε of each client"
            rows += [(whose, said(own.epsilon))] if own.epsilon is not None else []
    else:
        texts = ["No differential privacy: nothing but the audit says what samples tell of people."]
    if evidence.audit is None:
        return [*texts, "It was not audited."], rows
    for attack in evidence.audit.attacks:
        rows += [
            (f"AUC of membership, by {attack.space}", f"{attack.membership.auc:.3f} (0.5: none)"),
            (f"distance to trained / held out, by {attack.space}", said(attack.ratio)),
        ]
        if attack.copied is not None:
            rows.append((f"copies, by {attack.space}", f"{100 * attack.copied:.1f} %"))
    if evidence.audit.bound is not None:
        rows.append(("by canaries", str(evidence.audit.bound)))
    return texts, rows


def _signed(evidence: Evidence) -> tuple[list[str], list[tuple[str, str]]]:
    if not evidence.attestations:
        return ["No host signed: the run had no certificates, or hosts left without a word."], []
    rows = []
    for answer in evidence.attestations:
        ranks = f"rank(s) {said_list(answer.workers)}"
        if answer.refusal:
            rows.append((ranks, f"did not sign: {answer.refusal}"))
            continue
        permit = permit_of(answer.chain.encode())
        rows.append((ranks, f"signed by {permit.name}, key {permit.fingerprint[:16]}…"))
    return ["`mdgan verify` checks these signatures with the authority's certificate."], rows
