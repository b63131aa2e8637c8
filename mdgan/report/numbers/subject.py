"""The runs of one report: their labels, the settings that differ, and groups drawn as one."""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mdgan.families import registry
from mdgan.records.recorded_run import RecordedRun, Trace
from mdgan.records.roles import SCORER, is_alone, leader, num_workers
from mdgan.records.rows import RoundRow
from mdgan.records.run_directory import ENCODING_FILE
from mdgan.records.values import number_in, shown
from mdgan.report.numbers.attendance import Presence, presences
from mdgan.report.numbers.durations import iteration_durations, outlier_threshold, within_rounds
from mdgan.report.palette import ALGORITHMS, run_colour_name
from mdgan.spelling import count

NO_MATTER = {
    *("seed", "out", "ranks", "master_addr", "master_port", "network_interface", "listen"),
    *("credentials", "ca", "certificate", "key", "revoked", "insecure"),
}
"""The settings in which runs of one configuration differ: the seed, and where they ran."""
_UNTOLD = {
    *("data_dir", "datasets_dir", "connect_timeout", "liveness_timeout", "patience"),
    *("sample_interval", "log_interval", "eval_interval", "eval_samples", "held_out"),
    *("inception_weights", "tensorboard", "tracker"),
    *("checkpoint_interval", "checkpoint_keep", "checkpoint_to_server"),
    *("world_size", "clients"),
}
_MOST_PHRASES = 3
_LONGEST_LABEL = 42
_SEEDED = re.compile(r"(.+)-seed([0-9]+)")

MOST_RUNS = 8  # up to here each run has its own look; beyond, each configuration


@dataclass(frozen=True)
class Subject:
    """One run of a report."""

    position: int  # the place of its configuration, which decides its dashes and marker
    label: str
    run: RecordedRun
    nth: int = 0  # its place among the configurations of its algorithm, which decides its shade

    @cached_property
    def colour(self) -> str:
        """The name of its colour, which is that of its algorithm on every page."""
        known, name = registry.names(), self.run.config.get("algorithm")
        place = known.index(name) if name in known else len(ALGORITHMS) - 1
        return run_colour_name(place, self.nth)

    @cached_property
    def num_workers(self) -> int:
        """N at the start."""
        return num_workers(self.run.config) if self.has_workers() else 0

    @cached_property
    def done(self) -> int:
        """The last iteration that is known to be done; the status of a running run lags behind."""
        recorded = (iteration for iteration, *_ in self.run.state.losses)
        return max([self.run.status.get("iteration", 0), *recorded])

    @cached_property
    def presences(self) -> list[Presence]:
        """When each worker took part, by its number."""
        return presences(self.run, self.done) if self.has_workers() else []

    @cached_property
    def workers(self) -> list[int]:
        """The numbers of all workers that ever took part."""
        return [worker.worker for worker in self.presences]

    @cached_property
    def main_trace(self) -> Trace | None:
        """The trace of the role that owns the generator."""
        return self.run.traces.get(leader(self.run.traces) or "")

    @cached_property
    def round_numbers(self) -> dict[int, int]:
        """The iteration with which a round ends → its number, from 1; empty without rounds.

        Of several that end with the same iteration, the last: those before it were aborted.
        """
        return {one.iteration: n for n, one in enumerate(self.run.of(RoundRow), start=1)}

    @property
    def unit(self) -> str:
        """The unit of the run's progress: `round` or `iteration`."""
        return self.run.unit

    def has_rounds(self) -> bool:
        """Whether it has rounds; each is then recorded under its last iteration."""
        return self.unit != "iteration"

    def number_of(self, iteration: int) -> int:
        """The number of the round that ends with an iteration; without rounds, its own."""
        return self.round_numbers.get(iteration, iteration)

    def has_workers(self) -> bool:
        """Whether it has a server and workers; else one role does everything."""
        return not is_alone(self.run.traces)

    def has_columns(self) -> bool:
        """Whether its samples are rows of tables."""
        return (self.run.path / ENCODING_FILE).exists()

    def is_seen(self) -> bool:
        """Whether its samples can be drawn."""
        return not self.has_columns()

    def can_swap(self) -> bool:
        """Whether its algorithm has swaps, and two workers ever took part."""
        return "swap_interval" in self.run.config and max(self.num_workers, len(self.workers)) > 1

    @cached_property
    def hosts(self) -> list[Trace]:
        """The traces of its hosts; with rounds, without the time that they wait between them."""
        if not self.has_rounds() or not self.main_trace:
            return self.run.hosts
        return [within_rounds(host, self.main_trace) for host in self.run.hosts]

    @cached_property
    def durations(self) -> dict[int, float]:
        """Seconds by complete iteration, or by the last iteration of every complete round."""
        spans = self.main_trace.spans if self.main_trace else {}
        if self.has_rounds():
            spans = {i: done for i, done in spans.items() if i in self.round_numbers}
        return iteration_durations(spans)

    @cached_property
    def threshold(self) -> float:
        """Iterations that took more seconds than this are outliers."""
        return outlier_threshold(list(self.durations.values()))

    @cached_property
    def outliers(self) -> set[int]:
        """The iterations that took unusually long."""
        return {i for i, seconds in self.durations.items() if seconds > self.threshold}

    def durations_while_scoring(self) -> tuple[list[float], list[float]]:
        """Seconds of the ordinary iterations or rounds while a scorer ran, and of all others."""
        scorer = self.run.traces.get(SCORER)
        spans = [span for spans in scorer.spans.values() for span in spans] if scorer else []
        beside: list[float] = []
        alone: list[float] = []
        for i in self.ordinary:
            start = self.main_trace.spans[i][0].start if self.main_trace else 0.0
            end = start + self.durations[i]
            scored = any(start < span.end and end > span.start for span in spans)
            (beside if scored else alone).append(self.durations[i])
        return beside, alone

    @cached_property
    def ordinary(self) -> set[int]:
        """The complete iterations that are no outliers."""
        return self.durations.keys() - self.outliers


def subjects(runs: Sequence[RecordedRun]) -> list[Subject]:
    """Names the runs of a report."""
    few = len(runs) <= MOST_RUNS
    kinds = [str(n) if few else configuration(run) for n, run in enumerate(runs)]
    looks: dict[str, tuple[int, int]] = {}
    of_algorithm: Counter[str] = Counter()
    for kind, run in zip(kinds, runs, strict=True):
        if kind not in looks:
            algorithm = _as_text(run.config.get("algorithm"))
            looks[kind] = len(looks), of_algorithm[algorithm]
            of_algorithm[algorithm] += 1
    found = []
    for kind, label, run in zip(kinds, labels(runs), runs, strict=True):
        position, nth = looks[kind]
        found.append(Subject(position, label, run, nth=nth))
    return found


def configuration(run: RecordedRun) -> str:
    """A text that is equal for runs that differ only in the seed and in where they ran.

    A setting without a value counts as one that the run's version did not know.
    """
    return _as_text({k: v for k, v in run.config.items() if v is not None and k not in NO_MATTER})


def configuration_names(runs: Sequence[RecordedRun]) -> list[str]:
    """NAME of every run if all folders are called `NAME-seedS` as in a comparison, else nothing."""
    matches = [_SEEDED.fullmatch(run.path.name) for run in runs]
    names = [
        match[1]
        for match, run in zip(matches, runs, strict=True)
        if match and match[2] == str(run.config.get("seed"))
    ]
    return names if len(names) == len(runs) else []


def labels(runs: Sequence[RecordedRun]) -> list[str]:
    """A short name for every run: its folder's name, or the settings that distinguish it."""
    if names := configuration_names(runs):
        repeated = _repeated(names)
        found = [
            _shortened(name) + (f", seed {run.config.get('seed')}" if name in repeated else "")
            for name, run in zip(names, runs, strict=True)
        ]
        return _told_apart(found, lambda n: f"run {n + 1}")
    found = [_kind(run) for run in runs]
    for name in _repeated(found):
        same = [n for n, label in enumerate(found) if label == name]
        differing = differing_settings([runs[n].config for n in same])
        keys = [key for key in differing if key == "seed" or key not in NO_MATTER | _UNTOLD]
        for n in same:
            said = [_phrase(key, runs[n].config.get(key)) for key in keys[:_MOST_PHRASES]]
            found[n] = ", ".join(filter(None, [name, *said]))
    found = [_shortened(label) for label in found]
    found = _told_apart(found, lambda n: runs[n].path.name)
    return _told_apart(found, lambda n: f"run {n + 1}")


def differing_settings(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The settings that differ between these configurations, in order."""
    names = list(dict.fromkeys(name for config in configs for name in config))
    return [name for name in names if len({_as_text(config.get(name)) for config in configs}) > 1]


def _as_text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _kind(run: RecordedRun) -> str:
    if is_alone(run.traces):
        return shown(run.config.get("algorithm"))
    clients = int(number_in(run.config, "clients") or 0)
    workers = count(clients, "client") if clients else count(num_workers(run.config), "worker")
    return f"{shown(run.config.get('algorithm'))}, {workers}" if run.unit == "round" else workers


_NAMES = {"batch_size": "b =", "kappa": "κ =", "local_steps": "L =", "iterations": "I ="}
_PLAIN = frozenset(("algorithm", "dataset", "partition", "transport", "device", "aggregation"))
"""Settings whose value says enough."""


def _phrase(key: str, value: Any) -> str:
    if value is None:
        return ""
    if key == "swap_interval" and value == 0:
        return "no swap"
    name = "" if key in _PLAIN else _NAMES.get(key, key.replace("_", " "))
    return f"{name} {shown(value)}".strip()


def _shortened(text: str) -> str:
    line = " ".join(text.encode(errors="replace").decode().split())
    return line if len(line) <= _LONGEST_LABEL else line[: _LONGEST_LABEL - 1] + "…"


def _repeated(names: Sequence[str]) -> list[str]:
    return [name for name, times in Counter(names).items() if times > 1]


def _told_apart(names: Sequence[str], more: Callable[[int], str]) -> list[str]:
    repeated = set(_repeated(names))
    return [
        f"{name} ({_shortened(more(n))})" if name in repeated else name
        for n, name in enumerate(names)
    ]


@dataclass(frozen=True)
class Group:
    """The runs of one configuration; every configuration of the report has another label."""

    label: str
    members: tuple[Subject, ...]

    @property
    def first(self) -> Subject:
        """The run whose colour and marker stand for all of them."""
        return self.members[0]


def groups(subjects: Sequence[Subject]) -> list[Group]:
    """The configurations of a report, in the order of their first runs."""
    found: dict[tuple[str, str], list[Subject]] = {}
    names = configuration_names([subject.run for subject in subjects])
    for place, subject in enumerate(subjects):
        name = names[place] if names else ""
        found.setdefault((name, configuration(subject.run)), []).append(subject)
    members = list(found.values())
    if names:
        own = [name for name, _ in found]
        named = [
            name if own.count(name) == 1 else runs[0].label
            for name, runs in zip(own, members, strict=True)
        ]
    else:
        named = labels([runs[0].run for runs in members])
    return [Group(label, tuple(runs)) for label, runs in zip(named, members, strict=True)]


def said_bands(found: Sequence[Group]) -> str:
    """A sentence that explains the bands; empty without bands."""
    most = max((len(group.members) for group in found), default=0)
    if most < 2:
        return ""
    return f"Lines are means over up to {most} seeds, bands reach from the least to the greatest."
