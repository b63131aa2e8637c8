"""Writes the results of private tables in Markdown: means over seeds, by table and of all."""

import json
import statistics
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "private-tables.json"
SCORES = ("lr", "gb", "shapes", "pairs", "triples")
HEAD = "| ε | | LR | GB | shapes | pairs | triples | processor s |\n" + "|---" * 8 + "|\n"
NAMES = {
    "held-out": "real rows, held out",
    "pairs": "mdgan, pairs, 4 sites",
    "pairs-one": "mdgan, pairs, one site",
    "random": "mdgan, random features, 4 sites",
    "moments": "mdgan, 4 sites",
    "mst": "MST, all rows in one place",
    "aim": "AIM, all rows in one place",
}
Results = list[dict[str, Any]]


def results() -> Results:
    """All results so far."""
    read: Results = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    return read


def markdown(all_results: Results) -> str:
    """A part with means over all tables, of ways that tried each table; then a part for each."""
    tables = list(dict.fromkeys(result["table"] for result in all_results))
    kinds = sorted({(r["epsilon"], [*NAMES].index(r["way"])) for r in all_results})
    text = ""
    for title, chosen in [("all tables", tables), *((table, [table]) for table in tables)]:
        text += f"\n**{title}**\n\n{HEAD}"
        of_tables = [r for r in all_results if r["table"] in chosen]
        for epsilon, place in kinds:
            way = [*NAMES][place]
            tried = [r for r in of_tables if (r["epsilon"], r["way"]) == (epsilon, way)]
            if {r["table"] for r in tried} == set(chosen):
                text += f"| {epsilon} | {NAMES[way]}{_scores(tried)} |\n"
    return text


def _scores(tried: Results) -> str:
    ended = [r for r in tried if "lr" in r]
    text = ""
    if len(ended) < len(tried):
        most = max(r["most_seconds"] for r in tried if "lr" not in r)
        text = f"; {len(tried) - len(ended)} of {len(tried)} runs did not end in {most:,} s"
    if {r["table"] for r in ended} < {r["table"] for r in tried}:
        return text + " | -" * 6
    seeds = {r["seed"] for r in ended}
    for score in SCORES:
        means = [statistics.fmean(r[score] for r in ended if r["seed"] == seed) for seed in seeds]
        text += f" | {statistics.fmean(means):.3f}"
        text += f" ± {statistics.stdev(means):.3f}" if len(means) > 1 else ""
    return f"{text} | {statistics.median(r['seconds'] for r in ended):,.0f}"
