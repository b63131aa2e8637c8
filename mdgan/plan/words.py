"""A forecast in words."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from mdgan.observe.progress import duration
from mdgan.plan.measurement import Measured
from mdgan.plan.phases import MESSAGES
from mdgan.plan.prediction import Forecast, Question
from mdgan.records.values import brief_seconds, brief_size
from mdgan.settings.declare import flag

Lines = tuple[str, str, str]
"""A name, a value, and what stands beside it."""
Section = tuple[str, Sequence[Lines]]
"""A heading and what stands below it."""


class Page(NamedTuple):
    """Everything that is known before the run."""

    unit: str
    title: str
    iterations: int
    question: Question
    measured: Measured
    more: Sequence[Section] = ()

    @property
    def a_step(self) -> str:
        """An iteration, a round."""
        return f"{'an' if self.unit[0] in 'aeiou' else 'a'} {self.unit}"


def in_words(page: Page) -> str:
    """The page as lines, without a last line break."""
    forecast, planning = page.question.answer(), page.question.planning
    sections: list[Section] = [
        (page.a_step, list(_step(page, forecast))),
        ("seconds of each", list(_stages(page))),
        (f"bytes of {page.a_step}", _bytes(page)),
        *_exchange(page, forecast),
        ("memory, without the data", list(_memory(page))),
        *page.more,
    ]
    lines = [page.title]
    for title, rows in sections:
        lines.append(title)
        for name, value, own_note in rows:
            note, num_bytes = planning.notes.get(name, (own_note, 0.0))
            lines.append(f"  {name:28} {value:>12}   {note.format(brief_size(num_bytes))}".rstrip())
    return "\n".join([*lines, _bottleneck(page, forecast)])


def _step(page: Page, forecast: Forecast) -> Iterator[Lines]:
    cores, a_step = page.question.layout.cores, page.question.planning.iterations
    times = [
        ("all of it", forecast.step, f"{1 / forecast.step:.3g} {page.unit}s/s"),
        ("the server", forecast.server, "its arithmetic and messages"),
        ("the workers", forecast.workers, "theirs, the last to be ready"),
        ("the cores", forecast.work, f"the work of all processes over {cores} core(s)"),
        ("the server's link, out", forecast.out, ""),
        ("the server's link, back", forecast.back, "partly at the same time"),
        ("latency", forecast.latency, "there and back"),
    ]
    yield from ((name, brief_seconds(time), note) for name, time, note in times if time)
    seconds = page.iterations / a_step * forecast.step
    without = "without scores, pictures and checkpoints"
    yield f"{page.iterations:,} iterations", duration(seconds), without


def _stages(page: Page) -> Iterator[Lines]:
    labels, measured = page.question.planning.labels, page.measured
    for name, seconds in _by_label(measured.server, labels).items():
        yield f"server: {name}", brief_seconds(seconds), ""
    yield "server: messages", _messages(measured.server), f"{len(page.question.asked.hosts)} hosts"
    for name, seconds in _by_label(measured.worker.ahead, {}).items():
        yield f"worker: {name}", brief_seconds(seconds), "while it would wait"
    for name, seconds in _by_label(measured.worker.asked, labels).items():
        yield f"worker: {name}", brief_seconds(seconds), ""
    yield "host: messages", _messages(measured.worker.asked), ""


def _messages(stages: Mapping[str, float]) -> str:
    return brief_seconds(sum(stages.get(phase, 0.0) for phase in MESSAGES))


def _by_label(stages: Mapping[str, float], labels: Mapping[str, str]) -> dict[str, float]:
    """Seconds by what people call a stage, without messages."""
    sums: dict[str, float] = {}
    for phase in [phase for phase in stages if phase not in MESSAGES]:
        label = labels.get(phase, phase.replace("-", " "))
        sums[label] = sums.get(label, 0.0) + stages[phase]
    return sums


def _bytes(page: Page) -> list[Lines]:
    out, back = page.question.traffic.out, page.question.traffic.back
    return [
        ("server sends", brief_size(sum(out)), ""),
        ("server receives", brief_size(sum(back)), ""),
        ("host receives", brief_size(max(out)), ""),
        ("host sends", brief_size(max(back)), ""),
    ]


def _exchange(page: Page, forecast: Forecast) -> Iterator[Section]:
    exchange = page.question.planning.exchange
    if exchange is None:
        return
    every = ("every", "never", "")
    if exchange.every is None:
        every = ("every", "?", f"not part of the time above; say {exchange.remedy}")
    elif exchange.every:
        every = ("every", f"{exchange.every:,}", f"{page.unit}s, part of the time above")
    thing = f"a {exchange.thing}", brief_size(page.question.traffic.thing), ""
    yield f"a {exchange.name}", [thing, ("time", brief_seconds(forecast.exchange), ""), every]


def _memory(page: Page) -> Iterator[Lines]:
    layout, measured = page.question.layout, page.measured
    shared, each = measured.shared_bytes, measured.worker_bytes
    yield "the server's process", brief_size(shared + measured.server_bytes), ""
    if page.question.planning.placing is not None:
        yield "a host's process", brief_size(shared + measured.host_bytes), ""
        yield "each of its slots", brief_size(each), ""
        return
    own = [measured.host_bytes + (n - 1) * each for n in layout.sizes]
    yield "a host's process", brief_size(shared + max(own)), f"{max(layout.sizes)} worker(s)"
    yield "a further worker in it", brief_size(each), ""
    if layout.shared:
        everything = shared + measured.server_bytes + sum(own)
        yield "all together", brief_size(everything), "shared libraries counted once"


def _bottleneck(page: Page, forecast: Forecast) -> str:
    question, kind = page.question, forecast.bottleneck
    what, seconds = {
        "cores": (f"the {question.layout.cores} core(s) that all processes share", forecast.work),
        "server": ("the server's arithmetic and messages", forecast.server),
        "workers": ("the workers' arithmetic and messages", forecast.workers),
        "link": ("the server's link, out and back,", forecast.out + forecast.back),
        "latency": ("latency", forecast.latency),
    }[kind]
    line = f"bottleneck: {what} take {brief_seconds(seconds)} {page.a_step}"
    changes = [
        change for each in question.planning.remedies.get(kind, ()) for change in each.items()
    ]
    flags = dict.fromkeys(f"{flag(name)} {value}" for name, value in changes)
    return f"{line}; what may help: {', '.join(flags)}" if flags else line
