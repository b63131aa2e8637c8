"""Holds the promises of the pages and the tests that try to break them against each other.

A page has `<a id="claim-NAME"></a>` before a promise, and a test `@claim("NAME", "the sentence")`.
An anchor's text ends with its paragraph, item or row of a table, or at the next anchor; an anchor
that ends its paragraph is that of the block below, which may be code. What no test can try has
`<a id="assumed-NAME"></a>` and ends with "(assumed by …)".
"""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ANCHOR = re.compile(r'<a id="((?:claim|assumed)-[^"]*)"></a>')
_NEW_BLOCK = re.compile(r"\s*(?:[*+-]|\d+\.)\s|\||#+\s")
_ASSUMED_BY = re.compile(r"\(assumed by\b ?([^)]*)\)")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[^a-z\d])")


@dataclass(frozen=True)
class Stretch:
    """A piece of a page without its markup, and the anchor that stands before it."""

    page: str
    line: int
    anchor: str
    text: str


@dataclass(frozen=True)
class Quote:
    """A sentence that a test quotes, the test's place, and the name of the promise."""

    place: str
    name: str
    sentence: str
    slow: bool
    is_test: bool = True


def without_markup(text: str) -> str:
    """Leaves what a reader sees, with single spaces."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"</?\w[^>]*>|[`*]", "", text)
    return " ".join(text.replace("|", " ").split())


def blocks_of(markdown: str) -> Iterator[tuple[int, str]]:
    """Yields each paragraph, item, row of a table and block of code, with its first line."""
    block: list[str] = []
    start, in_code = 1, False
    for number, line in enumerate([*markdown.splitlines(), ""], 1):
        fence = line.lstrip().startswith("```")
        ends = fence or (not in_code and (not line.strip() or _NEW_BLOCK.match(line)))
        if ends and block:
            yield start, "\n".join(block)
            block = []
        in_code ^= fence
        if not fence and line.strip():
            start = start if block else number
            block.append(line)


def stretches_of(page: str, markdown: str) -> Iterator[Stretch]:
    """Divides a page at its anchors."""
    waiting = ""
    for line, block in blocks_of(markdown):
        pieces = [waiting, *ANCHOR.split(re.sub(r"^\s*(?:[*+-]|\d+\.)\s", "", block))]
        waiting = ""
        for anchor, raw in zip(pieces[::2], pieces[1::2], strict=True):
            text = without_markup(raw)
            last = raw is pieces[-1]
            if anchor and last and not text:
                waiting = anchor
            else:
                yield Stretch(page, line, anchor, text)
    if waiting:
        yield Stretch(page, line, waiting, "")


def _is_slow(node: ast.AST) -> bool:
    return ast.unparse(node).endswith("mark.slow")


def quotes_of(place: str, source: str) -> Iterator[Quote]:
    """Finds what `@claim(…)` says in a file of tests, without running it."""
    if "claim(" not in source:
        return
    tree = ast.parse(source)
    all_slow = any(
        isinstance(node, ast.Assign)
        and ast.unparse(node.targets[0]) == "pytestmark"
        and "mark.slow" in ast.unparse(node)
        for node in tree.body
    )
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        slow = all_slow or any(map(_is_slow, node.decorator_list))
        for decorator in node.decorator_list:
            if (
                isinstance(decorator, ast.Call)
                and ast.unparse(decorator.func).split(".")[-1] == "claim"
            ):
                words = [each.value for each in decorator.args if isinstance(each, ast.Constant)]
                name, sentence = map(str, words if len(words) == 2 else ("", ""))
                is_test = node.name.lower().startswith("test")
                yield Quote(f"{place}:{decorator.lineno}", name, sentence, slow, is_test)


def _spans(text: str, phrases: Iterable[str]) -> list[tuple[int, int]]:
    """Where the phrases stand."""
    return [each.span() for phrase in phrases for each in re.finditer(re.escape(phrase), text)]


def _words_without_test(
    stretch: Stretch, phrases: Iterable[str], words: re.Pattern[str]
) -> Iterator[str]:
    """Yields a line for each sentence whose promising word no quote holds."""
    spans, reported = _spans(stretch.text, phrases), -1
    for word in words.finditer(stretch.text):
        if any(start <= word.start() < end for start, end in spans):
            continue
        ends = [match.end() for match in _SENTENCE_END.finditer(stretch.text, 0, word.start())]
        start = max(ends, default=0)
        if start != reported:
            reported = start
            sentence = _SENTENCE_END.split(stretch.text[start:])[0]
            yield (
                f"{stretch.page}:{stretch.line}: {word[0]!r} promises, and no test quotes it: "
                f"{sentence[:160]}"
            )


def _anchors_and_tests(stretches: list[Stretch], quotes: list[Quote]) -> Iterator[str]:
    """Yields a line for each anchor without a test, test without an anchor, and wrong quote."""
    anchored = {each.anchor: each for each in stretches if each.anchor}
    for name, times in Counter(each.anchor for each in stretches if each.anchor).items():
        if times > 1:
            at = anchored[name]
            yield f"{at.page}:{at.line}: {name} is the id of {times} anchors"
    tried = {f"claim-{quote.name}" for quote in quotes}
    for name, stretch in anchored.items():
        place = f"{stretch.page}:{stretch.line}: {name}"
        if name.startswith("claim-") and name not in tried:
            yield f"{place}: no test tries to make this promise false"
        by = _ASSUMED_BY.search(stretch.text)
        if name.startswith("assumed-") and not (by and by[1].strip()):
            yield f"{place}: end the assumption with '(assumed by …)', and say whose it is"
    for quote in quotes:
        place = f"{quote.place}: claim({quote.name!r})"
        its = anchored.get(f"claim-{quote.name}")
        if not quote.is_test:
            yield f"{place} stands on a function that is no test"
        if not quote.name:
            yield f"{place}: write the name and the sentence as two plain strings"
        elif its is None:
            yield f'{place}: no page has <a id="claim-{quote.name}"></a>'
        elif len(quote.sentence.split()) < 3 or without_markup(quote.sentence) not in its.text:
            yield f"{place}: {its.page}:{its.line} says something else: {its.text[:160]}"


def problems(
    pages: Mapping[str, str],
    tests: Mapping[str, str],
    words: Iterable[str],
    *,
    no_promises: Mapping[str, Iterable[str]] | None = None,
    not_yet: Iterable[str] = (),
) -> list[str]:
    """Compares pages with tests.

    Args:
        pages: the text of each page, by its path.
        tests: the text of each file of tests, by its path.
        words: regular expressions for words with which a sentence promises something.
        no_promises: by page, phrases that have such a word and promise nothing.
        not_yet: pages in which a promise may be without an anchor.

    Returns:
        A line for each thing that is wrong.
    """
    no_promises = no_promises or {}
    word = re.compile(rf"\b(?:{'|'.join(words)})\b", re.IGNORECASE)
    stretches = [item for page, text in pages.items() for item in stretches_of(page, text)]
    quotes = [item for place, text in tests.items() for item in quotes_of(place, text)]
    lines = list(_anchors_and_tests(stretches, quotes))
    quoted: dict[str, list[str]] = {}
    for quote in quotes:
        quoted.setdefault(f"claim-{quote.name}", []).append(without_markup(quote.sentence))
    for stretch in stretches:
        harmless = list(map(without_markup, no_promises.get(stretch.page, ())))
        by = _ASSUMED_BY.search(stretch.text) if stretch.anchor.startswith("assumed-") else None
        assumed = [stretch.text[: by.end()]] if by else []
        if stretch.page not in not_yet:
            phrases = [*harmless, *assumed, *quoted.get(stretch.anchor, ())]
            lines += _words_without_test(stretch, phrases, word)
    for page, harmless_phrases in no_promises.items():
        whole = [each.text for each in stretches if each.page == page]
        for phrase in map(without_markup, harmless_phrases):
            if not word.search(phrase) or not any(phrase in text for text in whole):
                lines.append(f"{page}: NO_PROMISES has what the page does not say: {phrase[:160]}")
    return lines


def read_repository(root: Path, pages: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Reads the pages and all files of tests, each by its path in the repository."""
    files = sorted((root / "tests").rglob("test_*.py"))
    return (
        {page: (root / page).read_text(encoding="utf-8") for page in pages},
        {str(file.relative_to(root)): file.read_text(encoding="utf-8") for file in files},
    )
