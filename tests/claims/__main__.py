"""`python -m tests.claims`: each promise of a page has a test, and each test its sentence."""

import sys
from pathlib import Path

from tests.claims.check import problems, quotes_of, read_repository, stretches_of
from tests.claims.pages import NO_PROMISES, NOT_YET, PAGES, PROMISE_WORDS

REPOSITORY = Path(__file__).resolve().parents[2]


def main() -> int:
    """Prints what is wrong, or else how many promises each page makes."""
    pages, tests = read_repository(REPOSITORY, PAGES)
    wrong = problems(pages, tests, PROMISE_WORDS, no_promises=NO_PROMISES, not_yet=NOT_YET)
    for line in wrong:
        print(line, file=sys.stderr)
    if wrong:
        return 1
    quotes = [quote for place, text in tests.items() for quote in quotes_of(place, text)]
    quick = {f"claim-{quote.name}" for quote in quotes if not quote.slow}
    for page, text in pages.items():
        anchors = {each.anchor for each in stretches_of(page, text) if each.anchor}
        claims = {name for name in anchors if name.startswith("claim-")}
        print(f"{page}: {len(claims)} promises, {len(anchors - claims)} assumptions")
        if slow := sorted(claims - quick):
            print(f"  tried by slow tests alone: {', '.join(slow)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
