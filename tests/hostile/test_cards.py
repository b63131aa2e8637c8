"""Names of columns, and words of hosts, that would be more than text on the card of a bundle."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from mdgan.records.release_policy import RuleVerdict
from mdgan.release.card import Card
from mdgan.release.evidence import RunEvidence

markdown_it = pytest.importorskip("markdown_it", reason="pip install markdown-it-py")

TEXTS = (
    "<img src=http://127.0.0.1/seen>",
    "![seen](http://127.0.0.1/seen)",
    "[approved](http://127.0.0.1/)",
    "[approved]: http://127.0.0.1/ 'x'",
    "<script>alert(1)</script>",
    "a \\| b | c",
    "`a` \\<b>c",
)


def card(text: str) -> Card:
    evidence: Any = SimpleNamespace(
        terms={"algorithm": "mdgan", "dataset": text},
        **{"purpose": text, "notes": [text], "samples": None, "iteration": 1, "scores": None},
        **{"epsilon": {}, "audit": None, "has_dp": False, "figures": {}},
        signers=lambda: [("rank(s) 1", f"did not sign: {text}"), (text, text)],
    )
    kind = SimpleNamespace(name="rows", columns=lambda: {text: "number"})
    source = SimpleNamespace(
        evidence=cast(RunEvidence, evidence),
        dataset=SimpleNamespace(kind=kind),
        models=SimpleNamespace(shape=(3,)),
    )
    verdict = cast(RuleVerdict, SimpleNamespace(met=True, why=text))
    return Card(cast(Any, source), [verdict])


@pytest.mark.parametrize("text", TEXTS)
def test_what_others_have_named_is_text_on_both_cards(text: str) -> None:
    markdown, page = card(text).written(None)
    parser = markdown_it.MarkdownIt("commonmark", {"html": True}).enable("table")
    tokens = parser.parse(markdown.decode())
    kinds = {token.type for each in tokens for token in [each, *(each.children or ())]}
    assert not kinds & {"html_block", "html_inline", "image", "link_open", "code_inline"}
    cells = [each.content for each in tokens if each.type == "inline" and each.level == 5]
    assert len(cells) % 2 == 0, "a row of more than two cells"
    assert parser.render(markdown.decode()).count("127.0.0.1") == markdown.count(b"127.0.0.1")
    assert text not in page.decode() or not {"<", "&"} & set(text)
