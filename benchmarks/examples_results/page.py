"""Writes `examples/results.md` from the rows and the numbers."""

from collections.abc import Iterator, Mapping, Sequence
from math import hypot
from typing import Any

from benchmarks.examples_results.papers import Claim, Group, Row
from mdgan.records.values import brief_seconds, brief_size

_SAME = 0.25  # `~` means: the larger is greater by no more than this part of it
_HEAD = """# What showed

Every figure and table of the five papers has a row: what it says, and whether that showed here, or
why it was not tried. Written by

```bash
python -m benchmarks.examples_results     # goes on where it stopped
```

from `examples/papers.toml` and `examples/results.json`. The examples run as
[README.md](README.md) says: on digits (1,438 pictures of 8 × 8), mostly with 5 to 50 workers, on
two cores. Scores are those of mdgan's digits classifier, against the data that the workers hold.

"No" means that something did not show at this size, not that the paper is wrong. With one seed a
difference may be chance; with several, "within the spread" means that it is smaller than both
standard deviations together. "The same" is within a quarter. Seconds are of a machine that other
programs may have used at the same time.

**{done} of {all} groups of examples have run with today's settings**, each at the commit that it
names. Rows marked *kept* are of commands that need no example, and of the commit that they name.
"""
_COLUMNS = {
    "fid": ("FID", "{:.3g}".format),
    "inception_score": ("score", "{:.3g}".format),
    "coverage": ("coverage", "{:.2f}".format),
    "classes_covered": ("classes", "{:.3g}".format),
    "samples_processed": ("samples", "{:,.0f}".format),
    "seconds_of_iteration": ("an iteration", brief_seconds),
    "iterations_to_level": ("to the FID of all", "{:,.0f}".format),
    "client_bytes": ("a worker moved", brief_size),
    "server_bytes": ("the server moved", brief_size),
}
_NOT_RUN = "not run yet with today's settings"

Records = Mapping[str, Any]


def in_words(number: str, value: Sequence[float]) -> str:
    """A mean in the page's form, with its deviation if there is one."""
    of_bytes, of_time = "bytes" in number, "seconds" in number and "per" not in number
    form = brief_size if of_bytes else brief_seconds if of_time else "{:,.3g}".format
    text = form(value[0]) if value[0] < 1000 or of_bytes or of_time else f"{value[0]:,.0f}"
    return text + (f" ± {form(value[1])}" if value[1] else "")


def verdict(claim: Claim, numbers: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    """Whether a claim showed: yes or no, within the spread or not, and the numbers themselves."""
    missing = [name for name in claim.names if claim.number not in numbers.get(name, {})]
    if missing:
        return f"cannot be said: no {claim.number} of {', '.join(missing)}"
    values = {name: numbers[name][claim.number] for name in claim.names}
    held, close = [], []
    for first, sign, second in claim.pairs():
        (a, spread_a), (b, spread_b) = values[first], values[second]
        spread = hypot(spread_a, spread_b)
        near = abs(a - b) <= max(_SAME * max(abs(a), abs(b)), spread)
        held.append(near if sign == "~" else a < b)
        close.append(sign == "<" and abs(a - b) < spread)
    word = "yes" if all(held) else "no" if not any(held) else "in part"
    within = ", within the spread" if any(close) else ""
    shown = "; ".join(f"{name} {in_words(claim.number, value)}" for name, value in values.items())
    return f"**{word}**{within} ({_name(claim.number)}: {shown})"


def _name(number: str) -> str:
    """The name of a number on the page: `fid@400` → `FID after 400`."""
    return number.replace("fid", "FID").replace("@", " after ").replace("_", " ")


def as_page(papers: Mapping[str, str], rows: Sequence[Row], records: Records) -> str:
    """The whole page."""
    groups = {row.group.name: row.group for row in rows if row.group}
    done = sum(is_done(group, records) for group in groups.values())
    lines = [_HEAD.format(done=done, all=len(groups))]
    for paper, title in papers.items():
        lines += [f"## {title}", "", "| | it says | here |", "|---|---|---|"]
        lines += [_line(row, records) for row in rows if row.paper == paper]
        lines.append("")
        for row in rows:
            if row.paper == paper:
                lines += _output(row, records)
    lines += ["## The numbers", ""]
    for group in groups.values():
        lines += _table(group, records.get(group.name))
    return "\n".join(lines).rstrip() + "\n"


def is_done(group: Group, records: Records, seeds: Sequence[int] = ()) -> bool:
    """Whether a group has numbers for its present settings and for all of these seeds."""
    record = records.get(group.name, {})
    return record.get("digest") == group.digest and set(seeds) <= set(record["seeds"])


def _line(row: Row, records: Records) -> str:
    return f"| {row.place} | {row.says} | {_result_cell(row, records)} |"


def _result_cell(row: Row, records: Records) -> str:
    """The last cell of a row: whether the figure or table showed, or why it was not tried."""
    group, keys = row.group, row.keys
    if row.way == "not":
        return f"not shown: {keys['not']}"
    if row.way == "drawn":
        return f"drawn: {keys['drawn']}"
    if row.way == "kept":
        return f"{keys['kept']} (`{keys['command']}`, kept from commit {keys['commit']})"
    if group is None:
        missing = [each for each in row.commands if each not in records]
        return f"not run yet: `{missing[0]}`" if missing else "shown below the table"
    name = f"[{group.name}](#{group.name})"
    if group.name not in records:
        return f"{_NOT_RUN}: {name}"
    record = records[group.name]
    stale = "" if is_done(group, records) else "; **of other settings than the files have now**"
    verdicts = [f"{claim.says}: {verdict(claim, record['numbers'])}" for claim in row.claims]
    return f"{name}, {_of(record)}{stale}. " + ". ".join(verdicts)


def _of(record: Records) -> str:
    seeds = record.get("seeds", ())
    of_seeds = f"; seeds {', '.join(map(str, seeds))}" if seeds else ""
    return f"commit {record['commit']}, {record['date']}{of_seeds}"


def _output(row: Row, records: Records) -> Iterator[str]:
    """The lines that a row's commands printed."""
    for command in row.commands:
        if command in records:
            yield from (f"`{command}` ({_of(records[command])}):", "", "```")
            yield from kept_lines(records[command]["output"], row.keys["keep"])
            yield from ("```", "")


def kept_lines(output: Sequence[str], headings: Sequence[str]) -> Iterator[str]:
    """The sections of an output whose headings begin with one of these; all without headings."""
    keeps = not headings
    for line in output:
        if headings and line[:1] != " ":
            keeps = line.startswith(tuple(headings))
        if keeps:
            yield line.rstrip()


def _table(group: Group, record: Records | None) -> Iterator[str]:
    """The numbers of a group."""
    yield from (f"### {group.name}", "", "```bash", group.command, "```", "")
    if record is None:
        yield from (f"{_NOT_RUN[0].upper()}{_NOT_RUN[1:]}.", "")
        return
    numbers = record["numbers"]
    present = [
        name
        for name in _COLUMNS
        if any(name in numbers_of_file for numbers_of_file in numbers.values())
    ]
    yield from (f"{_of(record).capitalize()}.", "")
    yield f"| | {' | '.join(_COLUMNS[name][0] for name in present)} |"
    yield f"|---|{'---|' * len(present)}"
    for name, numbers_of_file in numbers.items():
        cells = [_cell(number, numbers_of_file) for number in present]
        yield f"| {name} | {' | '.join(cells)} |"
    yield ""


def _cell(number: str, numbers_of_file: Mapping[str, Sequence[float]]) -> str:
    if number not in numbers_of_file:
        return "–"
    form = _COLUMNS[number][1]
    mean, spread = numbers_of_file[number]
    return form(mean) + (f" ± {form(spread)}" if spread else "")
