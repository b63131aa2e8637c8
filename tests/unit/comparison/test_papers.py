"""Each figure and table of the papers has a row, and rows name files that exist."""

import json
import re
from pathlib import Path

import pytest

from benchmarks.examples_results import numbers, page
from benchmarks.examples_results.papers import PAPERS, Claim, Group, Row, read_rows

ROOT = Path(__file__).resolve().parents[3]
TITLES, ROWS = read_rows(ROOT / PAPERS)


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def numbered(prefix: str, last: int) -> set[str]:
    return {f"{prefix}{number}" for number in range(1, last + 1)}


FIGURES = {
    "md-gan": numbered("", 6),
    "report": {"4.1", "5.1", "6.1", "6.2", "8.1", "8.2", "12.1"}
    | numbered("7.", 16)
    | numbered("E.", 8)
    | numbered("F.", 10),
    "fegan": numbered("", 17),
    "paragan": numbered("", 13),
    "pollen": numbered("", 22),
}
TABLES = {
    "md-gan": {"I", "II", "III", "IV"},
    "report": {"5.1", "C.1"},
    "fegan": {"1"},
    "paragan": {"1", "2"},
    "pollen": numbered("", 9),
}


def named(paper: str, kind: str) -> set[str]:
    """The figures, or tables, that the rows of a paper name."""
    results = set()
    for row in (row for row in ROWS if row.paper == paper):
        for part in row.place.split("; "):
            if not part.startswith(kind):
                continue
            text = part.removeprefix(kind).removeprefix("s").split(", MLP")[0].split(", CNNs")[0]
            for each in re.split(r", ", text.strip()):
                first, _, last = each.partition(" to ")
                if last:
                    before, dot, start = first.rpartition(".")
                    end = int(last.rpartition(".")[2])
                    results |= {f"{before}{dot}{n}" for n in range(int(start), end + 1)}
                else:
                    results.add(re.sub(r"(?<=\d)[ab]$", "", first))
    return results


@pytest.mark.parametrize("paper", TITLES)
def test_every_figure_and_table_has_a_row(paper: str) -> None:
    assert named(paper, "figure") == FIGURES[paper]
    assert named(paper, "table") == TABLES[paper]


def test_the_report_s_hypotheses_have_rows() -> None:
    places = [row.place for row in ROWS if row.paper == "report"]
    assert [place[:2] for place in places if place.startswith("H")] == ["H1", "H2"]


KNOWN = {
    *(
        f"{of}_{per}"
        for of in numbers._QUOTIENTS.values()
        for per in ("per_second", "of_iteration")
    ),
    *("fid", "inception_score", "seconds", "seconds_of_iteration", "iterations_to_level"),
    *("kl_after_10_rounds", "kl_at_end"),
    *("generator_loss_deviation", "discriminator_loss_deviation"),
}


@pytest.mark.parametrize("row", [r for r in ROWS if r.group], ids=lambda r: f"{r.paper} {r.place}")
def test_claims_are_about_files_and_numbers_that_there_are(row: Row) -> None:
    group = row.group
    assert group is not None
    assert group.files
    names = [path.stem for path in group.files]
    assert len(set(names)) == len(names), "mdgan compare calls them by their names"
    assert row.claims
    for claim in row.claims:
        assert set(claim.names) <= set(names)
        assert claim.number in KNOWN or re.fullmatch(r"fid@\d+", claim.number)
        held = {path.stem: json.loads(path.read_text()).get("partition") for path in group.files}
        for first, _, second in claim.pairs():
            assert held[first] == held[second], "scores are against what workers hold"


def test_all_examples_are_of_some_row() -> None:
    used = {path for row in ROWS if row.group for path in row.group.files}
    assert used == set((ROOT / "examples").relative_to(ROOT).glob("*/*.json"))


def test_the_page_is_of_the_numbers() -> None:
    records = json.loads((ROOT / "examples" / "results.json").read_bytes())
    written = (ROOT / "examples" / "results.md").read_text(encoding="utf-8")
    expected = page.as_page(TITLES, ROWS, records)
    assert written == expected, "run python -m benchmarks.examples_results --page"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a < b", "**yes** (FID: a 1; b 2)"),
        ("b < a", "**no** (FID: b 2; a 1)"),
        ("a < b, c", "**yes**, within the spread (FID: a 1; b 2; c 1.1 ± 0.3)"),
        ("b < c < a", "**no**, within the spread (FID: b 2; c 1.1 ± 0.3; a 1)"),
        ("a < b < c", "**in part** (FID: a 1; b 2; c 1.1 ± 0.3)"),
        ("a ~ c", "**yes** (FID: a 1; c 1.1 ± 0.3)"),
        ("a ~ b", "**no** (FID: a 1; b 2)"),
        ("a < d", "cannot be said: no fid of d"),
    ],
)
def test_a_claim_is_held_against_the_numbers(text: str, message: str) -> None:
    results: dict[str, dict[str, list[float]]] = {
        **{"a": {"fid": [1, 0]}, "b": {"fid": [2, 0]}, "c": {"fid": [1.1, 0.3]}, "d": {}}
    }
    assert page.verdict(Claim.read("it is", "fid", text), results) == message


def test_numbers_of_earlier_settings_are_marked_and_run_again(tmp_path: Path) -> None:
    group = Group(("co-location",), ())
    record = {"commit": "abc", "date": "2026-11-29", "seeds": [0], "numbers": {}}
    now = {group.name: {**record, "digest": group.digest}}
    assert page.is_done(group, now, [0])
    assert not page.is_done(group, now, [0, 1])
    assert not page.is_done(group, {group.name: {**record, "digest": "other"}})
    row = next(row for row in ROWS if row.group == group)
    lines = page.as_page({row.paper: "FeGAN"}, [row], {group.name: {**record, "digest": "other"}})
    assert "**of other settings than the files have now**" in lines
    assert "commit abc, 2026-11-29; seeds 0" in lines


def test_sections_of_an_output_are_kept_by_their_headings() -> None:
    output = ["title", "bytes of it", "  sends  1", "memory", "  much", "a swap", "  2"]
    assert list(page.kept_lines(output, ["bytes", "a swap"])) == [
        *("bytes of it", "  sends  1", "a swap", "  2")
    ]
    assert list(page.kept_lines(output, [])) == output
