"""Draws a run in the terminal for `mdgan watch`: its progress, its curves and its workers."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import isfinite, nan
from pathlib import Path
from textwrap import wrap
from typing import TypeVar

import numpy as np
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.constrain import Constrain
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mdgan.errors import printable
from mdgan.observe.progress import duration
from mdgan.observe.watch import WatchedRun, WorkerRow
from mdgan.records.happenings import JOINED, LOST, RESUMED, SHUT_OUT
from mdgan.records.rows import ScoresRow, WorkerNumbers
from mdgan.records.score_names import BEST_IS_LEAST, SCORE_NAMES, main_score
from mdgan.records.values import brief_seconds, brief_size, number, said_list
from mdgan.spelling import count, spelled

_WIDTH, _MOST_OF_PATH = 100, 4096
_MOST_WORKERS = 30
_LEAST_WORKERS = 3
_MOST_NEWS = 3
_OTHER_LINES = 14  # lines of a frame besides workers and news, with the cursor's line
_QUIET_SECONDS = 30.0
_UNKNOWN = "–"
_CURVE_WORDS = 46  # characters beside a curve
_BLOCKS = "▁▂▃▄▅▆▇█"
_LEVEL = _BLOCKS[len(_BLOCKS) // 2 - 1]
_NOT_FINITE = "×"
_NOTHING = " "

_COLUMNS: tuple[tuple[str, JustifyMethod, int], ...] = (
    ("rank", "right", 0),
    ("host", "left", 13),
    ("state", "left", 20),
    ("iteration", "right", 31),
    ("step", "right", 40),
    ("in/s", "right", 49),
    ("out/s", "right", 58),
    ("last swap", "right", 71),
    ("holds", "right", 78),
)
"""Title, alignment, and how wide a terminal must be for this column and those before it."""
_DECLARED_WIDTH = 12  # how much wider it must be for each column that a family declares

_TITLES_OF_ROUNDS = {"step": "a round", "last swap": "rounds"}

# The named colours follow the terminal's own theme; black and white would vanish on some.
_STATE_STYLES = {
    "running": "bold green",
    "finished": "bold green",
    "stopped": "bold yellow",
    "failed": "bold red",
    "alive": "green",
    "late": "bold yellow",
    "lost": "bold red",
    "left": "dim",
    "out": "bold red",
    "done": "dim",
}
Number = TypeVar("Number", int, float)

_NEWS_STYLES = {LOST: "bold red", SHUT_OUT: "bold red", JOINED: "bold green"}


def follow(
    path: Path, interval_seconds: float, declared: Sequence[WorkerNumbers] = (), *, once: bool
) -> None:
    """Shows a run until it ends: in place on a terminal; elsewhere a new frame for each change."""
    run = WatchedRun(path)
    plain = not sys.stdout.isatty()
    console = Console(
        color_system=None if plain else "auto",
        force_terminal=False if plain else None,
        markup=False,
        emoji=False,
    )
    if once:
        console.print(_frame(console, run, declared))
    elif plain or console.is_dumb_terminal:
        shown = ""
        for _ in _looks(run, interval_seconds):
            with console.capture() as capture:
                console.print(_frame(console, run, declared))
            if capture.get() != shown:
                console.out("\n" * bool(shown) + capture.get(), end="", highlight=False)
                shown = capture.get()
    else:
        with Live(console=console, auto_refresh=False) as display:
            for _ in _looks(run, interval_seconds):
                display.update(_frame(console, run, declared), refresh=True)


def _looks(run: WatchedRun, interval_seconds: float) -> Iterator[None]:
    """Yields whenever the run may have changed, and once more after its end, for late records."""
    yield
    while not run.ended:
        time.sleep(interval_seconds)
        run.update()
        yield
        if run.ended:
            time.sleep(interval_seconds)
            run.update()
            yield


def _frame(console: Console, run: WatchedRun, declared: Sequence[WorkerNumbers]) -> RenderableType:
    width = min(console.width, _WIDTH)
    workers, news = run.workers(), _news(run, width)
    parts: list[RenderableType] = [_headline(run, width), _summary(run, workers)]
    parts.append(_progress(run, width))
    if run.state.losses or run.state.scores:
        parts += ["", _curves(run, width)]
    if workers:
        most = _MOST_WORKERS
        if console.is_terminal:
            fitting = console.height - _OTHER_LINES - len(news)
            most = min(most, max(_LEAST_WORKERS, fitting))
        shown = _most_telling(workers, most)
        parts += ["", _table(shown, width, declared, in_rounds=run.in_rounds)]
        if len(workers) > most:
            parts.append(Text(f"      … and {len(workers) - most} more", style="dim"))
    parts += ["", *news] if news else []
    return Constrain(Group(*parts), width)


def _headline(run: WatchedRun, width: int) -> Text:
    """The line with the run's folder, cut at its beginning if it is long, and the run's state."""
    room = width - len(run.stage) - 2
    folder = printable(str(run.path), _MOST_OF_PATH)
    if len(folder) > room:
        folder = "…" + folder[len(folder) - room + 1 :]
    line = Text(folder.ljust(room + 2), style="bold", no_wrap=True)
    return line.append(run.stage, style=_STATE_STYLES.get(run.stage, "bold"))


def _summary(run: WatchedRun, workers: list[WorkerRow]) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"{run.config.get('algorithm')} on {run.config.get('dataset')}")
    if workers:
        unit = "worker"
        if run.num_clients:
            unit = "host"
            line.append(f" · {run.num_clients:,} clients")
        line.append(f" · {len(workers)} {unit}{'s' * (len(workers) != 1)}: ")
        counts = Counter(row.state for row in workers)
        present = [
            state for state in ("alive", "done", "late", "lost", "left", "out") if counts[state]
        ]
        parts = [Text(f"{counts[state]} {state}", _STATE_STYLES[state]) for state in present]
        line.append_text(Text(", ").join(parts))
    if run.state.epsilon:
        bound = "as told" if run.state.untold else "at most"
        line.append(f" · ε {max(run.state.epsilon.values()):.2f} {bound}")
    if not run.ended and run.quiet_seconds >= _QUIET_SECONDS:
        # The time is coarse, so that a new frame is rarely needed.
        quiet = f"{run.quiet_seconds // 60:.0f} min" if run.quiet_seconds >= 60 else "30 s"
        line.append(" · ").append(f"nothing new for {quiet}", style="bold yellow")
    return line


def _progress(run: WatchedRun, width: int) -> Text:
    done, total, pace = run.iteration, run.iterations, run.iterations_per_second
    facts = [f"{done:,}/{total:,}"]
    if run.in_rounds:
        facts[:0] = [count(run.state.num_rounds, "round")]
    if pace > 0:
        facts.append(f"{pace:.1f} it/s" if pace >= 1 else f"{1 / pace:.1f} s/it")
    if run.ended:
        facts.append(f"in {duration(run.seconds)}")
    elif pace > 0:
        facts.append(f"{duration((total - done) / pace)} left")
    text = "   ".join(facts)
    length = max(0, width - len(text) - 3)
    filled = min(length, length * done // total) if total else 0
    line = Text(no_wrap=True, overflow="ellipsis").append("━" * filled, style="green")
    return line.append("─" * (length - filled), style="dim").append(f"   {text}", style="bold")


def _curves(run: WatchedRun, width: int) -> Table:
    table = Table.grid(padding=(0, 2), pad_edge=False)
    for style in ("", "", "bold", "dim"):
        table.add_column(justify="right" if style == "bold" else "left", style=style, no_wrap=True)
    length = max(1, width - _CURVE_WORDS)
    for place, (name, style) in enumerate((("G loss", "cyan"), ("D loss", "magenta")), start=1):
        points = [(row[0], number(row[place])) for row in run.state.losses]
        values = [value for _, value in points if value is not None]
        if not values and any(number(row[1]) is not None for row in run.state.losses):
            continue  # there is no discriminator
        line = Text(sparkline(points, length, run.iteration), style=style)
        between = f"{_number(min(values))} … {_number(max(values))}" if values else ""
        table.add_row(name, line, _number(points[-1][1] if points else None), between)
    if run.state.scores:
        _add_scores(table, run.state.scores, length, end=run.iteration)
    return table


def _add_scores(table: Table, scores: Sequence[ScoresRow], length: int, end: int) -> None:
    """Adds the curve of the main score, with its best value and that of real samples."""
    name = main_score(scores[-1].scores)
    points = [(row.iteration, value) for row in scores if (value := number(row.scores.get(name)))]
    if not points:
        return
    is_fid = name == "fid"
    values = [value for _, value in points]
    notes = [f"best {_number((min if name in BEST_IS_LEAST else max)(values))}"]
    real = [value for row in scores if (value := number(row.real.get(name))) is not None]
    notes += [f"real data {_number(real[-1])}"] if real else []
    line = Text(sparkline(points, length, end, logarithmic=is_fid), style="green")
    table.add_row(SCORE_NAMES[name], line, _number(values[-1]), ", ".join(notes))


def _most_telling(workers: list[WorkerRow], most: int) -> list[WorkerRow]:
    """The workers to show: all by rank, or of too many first the late, the lost, the slowest."""
    if len(workers) <= most:
        return workers
    urgency = {"late": 0, "lost": 1, "out": 1}
    return sorted(
        workers, key=lambda row: (urgency.get(row.state, 2), -(row.step_seconds or 0.0), row.rank)
    )[:most]


def _table(
    rows: list[WorkerRow], width: int, declared: Sequence[WorkerNumbers], in_rounds: bool
) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for title, justify, needed in _COLUMNS:
        if needed <= width:
            title = _TITLES_OF_ROUNDS.get(title, title) if in_rounds else title
            table.add_column(title, justify=justify, no_wrap=True)
    further = [
        numbers
        for numbers in declared
        if numbers.column and any(numbers.key in row.recorded.numbers for row in rows)
    ]
    for numbers in further[: max(0, (width - _COLUMNS[-1][2]) // _DECLARED_WIDTH)]:
        table.add_column(numbers.column, justify="right", no_wrap=True)
    digits = len(str(max(row.rank for row in rows)))
    shown_roles: set[str] = set()
    for row in rows:
        # A process counts the bytes of all its workers together, so the first row shows them.
        again = row.role in shown_roles
        shown_roles |= {row.role} if row.role else set()
        moved = (row.received_per_second, row.sent_per_second)
        cells: list[RenderableType] = [
            str(row.rank),
            row.role or _UNKNOWN,
            Text(row.state, style=_STATE_STYLES[row.state]),
            _known(row.iteration, "{:,}".format),
            _known(row.step_seconds, brief_seconds),
            *("″" if again else _known(rate, brief_size) for rate in moved),
            _known(row.rounds, "{:,}".format) if in_rounds else _swap(row, digits),
            _known(row.samples, "{:,}".format),
            *(_declared(row.recorded.numbers.get(numbers.key), numbers) for numbers in further),
        ]
        table.add_row(*cells[: len(table.columns)])
    return table


def _news(run: WatchedRun, width: int) -> list[Text]:
    """Lines with the diagnosis, and with the last workers that came or went, and why."""
    lines = []
    if (finding := run.finding) is not None:
        text = spelled(f"It looks as if {finding}.")
        wrapped = wrap(text, max(1, width), break_on_hyphens=False)
        lines += [Text(line, "bold yellow") for line in wrapped]
    for happening in list(run.state.news)[-_MOST_NEWS:]:
        ranks = "" if happening.kind == RESUMED else f" {said_list(happening.workers)}"
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append(f"{happening.kind}{ranks}", style=_NEWS_STYLES.get(happening.kind, "bold"))
        line.append(f" at iteration {happening.iteration:,}")
        lines.append(line.append(f": {happening.reason}" if happening.reason else ""))
    return lines


def _swap(row: WorkerRow, digits: int) -> str:
    swap = row.recorded.swap
    if swap is None:
        return _UNKNOWN
    return f"{swap.iteration:,} {'↔' if swap.mutual else '←'} {swap.partner:>{digits}}"


def _declared(value: float | None, numbers: WorkerNumbers) -> Text:
    """Formats a number that a family records, in red if it is alarming."""
    alarming = value is not None and value >= numbers.alarm
    return Text(_known(value, "{:.1f}".format), style="bold red" if alarming else "")


def _known(value: Number | None, said: Callable[[Number], str]) -> str:
    return _UNKNOWN if value is None else said(value)


def _number(value: float | None) -> str:
    if value is None:
        return "not finite"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.4g}"


def sparkline(
    points: Sequence[tuple[int, float | None]], width: int, until: int, *, logarithmic: bool = False
) -> str:
    """Draws a curve: each character is a mean over an equal part of the iterations to `until`.

    A part without a point looks like the one before it; × means that a value was not finite.
    """
    values = np.array([nan if value is None else value for _, value in points], float)
    places = (np.array([i for i, _ in points], np.int64) - 1) * width // max(1, until)
    places = np.clip(places, 0, width - 1)
    finite = np.isfinite(values)
    sums = np.bincount(places[finite], values[finite], minlength=width)
    counts = np.bincount(places[finite], minlength=width)
    means = np.divide(sums, counts, out=np.full(width, nan), where=counts > 0)
    if logarithmic and (means[counts > 0] > 0).all():
        means = np.log(means)
    means /= 2  # so that the difference of any two is finite
    finite_means = means[np.isfinite(means)]
    low, high = finite_means.min(initial=np.inf), finite_means.max(initial=-np.inf)
    line = ""
    for mean, num_points in zip(means, np.bincount(places, minlength=width), strict=True):
        if not num_points:
            line += line[-1:] or _NOTHING
        elif not isfinite(mean):
            line += _NOT_FINITE
        elif high <= low:
            line += _LEVEL
        else:
            line += _BLOCKS[round((mean - low) / (high - low) * (len(_BLOCKS) - 1))]
    return line
