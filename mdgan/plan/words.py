"""A forecast in words."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mdgan.families.contract import Exchange
from mdgan.observe.progress import duration
from mdgan.plan.advice import Question
from mdgan.plan.measurement import Measured
from mdgan.plan.phases import MESSAGES
from mdgan.plan.prediction import Forecast
from mdgan.records.values import brief_seconds, brief_size

Row = tuple[str, str, str]
Part = tuple[str, Sequence[Row]]
"""A heading and what stands below it."""


class Page(NamedTuple):
    """Everything that is known before the run.

    Attributes:
        unit: what a step is, in one word: an iteration, a round.
        title: which run this is about, in one line.
        iterations: I.
        question: what was asked.
        forecast: the answer.
        measured: on this machine.
        remedy: what would help most, and the forecast for that; None if nothing does.
        more: parts that not every plan has.
    """

    unit: str
    title: str
    iterations: int
    question: Question
    forecast: Forecast
    measured: Measured
    remedy: tuple[str, Forecast] | None
    more: Sequence[Part] = ()

    @property
    def a_step(self) -> str:
        """An iteration, a round."""
        return f"{'an' if self.unit[0] in 'aeiou' else 'a'} {self.unit}"


def in_words(page: Page) -> str:
    """The page as lines, without a last line break."""
    planning = page.question.planning
    parts: list[Part] = [(page.a_step, _step(page)), ("seconds of each", _stages(page))]
    parts.append((f"bytes of {page.a_step}", _bytes(page)))
    if planning.exchange is not None:
        parts.append((f"a {planning.exchange.name}", _exchange(page, planning.exchange)))
    parts.append(("memory, without the data", _memory(page)))
    parts += [(title, rows) for title, rows in page.more if rows]
    lines = [page.title]
    for title, rows in parts:
        lines.append(title)
        for name, value, own_note in rows:
            note, num_bytes = planning.notes.get(name, (own_note, 0.0))
            lines.append(f"  {name:28} {value:>12}   {note.format(brief_size(num_bytes))}".rstrip())
    return "\n".join([*lines, f"bottleneck: {_bottleneck(page)}"])


def _step(page: Page) -> list[Row]:
    forecast, cores = page.forecast, page.question.layout.cores
    times = [
        ("all of it", forecast.step, f"{1 / forecast.step:.3g} {page.unit}s/s"),
        ("the server", forecast.server, "its arithmetic and messages"),
        ("the workers", forecast.workers, "theirs, the last to be ready"),
        ("the cores", forecast.work, f"the work of all processes over {cores} core(s)"),
        ("the server's link, out", forecast.out, ""),
        ("the server's link, back", forecast.back, "partly at the same time"),
        ("latency", forecast.latency, "there and back"),
    ]
    seconds = page.iterations / page.question.planning.iterations * forecast.step
    without = "without scores, pictures and checkpoints"
    rows = [(name, brief_seconds(time), note) for name, time, note in times if time]
    return [*rows, (f"{page.iterations:,} iterations", duration(seconds), without)]


def _stages(page: Page) -> list[Row]:
    labels, measured = page.question.planning.labels, page.measured
    server, hosts = _by_label(measured.server, labels), len(page.question.asked.hosts)
    rows = [(f"server: {name}", brief_seconds(seconds), "") for name, seconds in server.items()]
    rows.append(("server: messages", _messages(measured.server), f"{hosts} hosts"))
    for worker, stages in measured.workers.items():
        for labelled, note in (
            (_by_label(stages.ahead, {}), "while it would wait"),
            (_by_label(stages.asked, labels), ""),
        ):
            rows += [(f"{worker}: {n}", brief_seconds(s), note) for n, s in labelled.items()]
        host = worker.replace("worker", "host")
        rows.append((f"{host}: messages", _messages(stages.asked), ""))
    return rows


def _messages(stages: Mapping[str, float]) -> str:
    return brief_seconds(sum(stages.get(phase, 0.0) for phase in MESSAGES))


def _by_label(stages: Mapping[str, float], labels: Mapping[str, str]) -> dict[str, float]:
    """Seconds by what people call a stage, without messages."""
    found: dict[str, float] = {}
    for phase in [phase for phase in stages if phase not in MESSAGES]:
        label = labels.get(phase, phase.replace("-", " "))
        found[label] = found.get(label, 0.0) + stages[phase]
    return found


def _bytes(page: Page) -> list[Row]:
    out, back = page.question.traffic.out, page.question.traffic.back
    return [
        ("server sends", brief_size(sum(out)), ""),
        ("server receives", brief_size(sum(back)), ""),
        ("host receives", brief_size(max(out)), ""),
        ("host sends", brief_size(max(back)), ""),
    ]


def _exchange(page: Page, exchange: Exchange[Any]) -> list[Row]:
    every = ("every", "never", "")
    if exchange.every is None:
        every = ("every", "?", f"not part of the time above; say {exchange.remedy}")
    elif exchange.every:
        every = ("every", f"{exchange.every:,}", f"{page.unit}s, part of the time above")
    return [
        (f"a {exchange.thing}", brief_size(page.question.traffic.thing), ""),
        ("time", brief_seconds(page.forecast.exchange), ""),
        every,
    ]


def _memory(page: Page) -> list[Row]:
    layout, measured = page.question.layout, page.measured
    shared, each = measured.shared_bytes, measured.worker_bytes
    own = [measured.host_bytes + (n - 1) * each for n in layout.sizes]
    server = ("the server's process", brief_size(shared + measured.server_bytes), "")
    if page.question.planning.placing is not None:
        host = brief_size(shared + measured.host_bytes)
        return [server, ("a host's process", host, ""), ("each of its slots", brief_size(each), "")]
    rows = [
        server,
        ("a host's process", brief_size(shared + max(own)), f"{max(layout.sizes)} worker(s)"),
        ("a further worker in it", brief_size(each), ""),
    ]
    if layout.shared:
        everything = shared + measured.server_bytes + sum(own)
        rows.append(("all together", brief_size(everything), "shared libraries counted once"))
    return rows


def _bottleneck(page: Page) -> str:
    forecast = page.forecast
    seconds = {
        "server": ("the server's arithmetic and messages take", forecast.server),
        "workers": ("the workers' arithmetic and messages take", forecast.workers),
        "latency": ("latency takes", forecast.latency),
    }
    if forecast.bottleneck == "cores":
        what = _cores(page)
    elif forecast.bottleneck == "link":
        what = _link(page)
    else:
        text, taken = seconds[forecast.bottleneck]
        what = f"{text} {brief_seconds(taken)} {page.a_step}"
    if page.remedy is None:
        return what
    text, better = page.remedy
    return f"{what}; with {text} {page.a_step} would take {brief_seconds(better.step)}"


def _cores(page: Page) -> str:
    layout, work = page.question.asked, page.forecast.work
    part = 1 - page.question.costs.server_busy / (layout.cores * work)
    return (
        f"the {layout.cores} core(s) that all processes share take {brief_seconds(work)} "
        f"{page.a_step}, {part:.0%} of it for the workers"
    )


def _link(page: Page) -> str:
    moved = sum(page.question.traffic.out) + sum(page.question.traffic.back)
    rate = page.question.link.bits_per_second / 1e6
    return (
        f"the server's link: {brief_size(moved)} {page.a_step} at {rate:g} Mbit/s take "
        f"{brief_seconds(page.forecast.out)} out and {brief_seconds(page.forecast.back)} back"
    )
