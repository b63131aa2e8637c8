"""Scores a run's newest generator for `mdgan evaluate`, with what training kept in its folder.

Training keeps a network and sums of its features over real samples. Without them, or for another
network, this machine must have real samples: those of the workers, or held-out ones. With
differential privacy they must be held-out ones, unless the workers have disclosed their sums.
"""

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from mdgan.data.shard import Shard
from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.gan.randomness import generator_for
from mdgan.inspect.trained import TrainedRun, load_trained
from mdgan.launch import machine
from mdgan.metrics import chosen
from mdgan.metrics.extractor import Extractor, Features
from mdgan.metrics.real_statistics import RealStatistics, describe_all, describe_held_out
from mdgan.metrics.scores import judge_generator, judged_record, score_generator
from mdgan.observe.text_table import text_table
from mdgan.privacy.settings import FEATURES
from mdgan.records.recorded_run import RecordedRun
from mdgan.records.rows import ScoresRow, typed
from mdgan.records.run_directory import AVERAGE_FILE, EXTRACTOR_FILE, REAL_FILE
from mdgan.records.score_names import SCORE_NAMES
from mdgan.records.values import said_left_out
from mdgan.spelling import flag

CHANGES = ("extractor", "inception_weights", "data_dir", "held_out", "device")
"""Settings of a run that the user may change for an evaluation."""

_MOST_RARE_SHOWN = 20

_log = logging.getLogger(__name__)


def evaluate_run(
    path: Path, num_samples: int, seed: int | None, changes: Mapping[str, str], *, raw: bool = False
) -> dict[str, Any]:
    """Scores a run, adds the scores to its `metrics.jsonl`, and returns that record.

    Args:
        changes: values for settings of `CHANGES`.
        raw: scores the generator itself, though the run has averaged it.
    """
    trained = load_trained(path, raw=raw)
    _, launch = trained.settings()
    changed_settings: dict[str, Any] = {name: v for name, v in changes.items() if name != "device"}
    if "inception_weights" in changed_settings:
        changed_settings.setdefault("extractor", "inception")
    elif changed_settings.get("extractor", "inception") != "inception":
        changed_settings["inception_weights"] = None
    settings = trained.changed_settings(changed_settings)
    device = machine.resolve_device(changes.get("device", launch.device), 0)
    torch.set_num_threads(machine.num_threads(launch))
    begin = time.monotonic()
    draws: dict[str, Any] = {
        "z_dim": trained.models.z_dim,
        "num_samples": num_samples,
        "seed": settings.training.seed if seed is None else seed,
        "held": trained.held_counts() if settings.training.label_prior == "data" else (),
    }
    source = trained.held_out(settings)
    if trained.dataset.kind.judges:  # rows of a table, judged on the CPU
        judge = trained.dataset.kind.judge(None if source is None else chosen.all_of(source))
        judged = judge_generator(trained.generator, judge, **draws)
        scores = judged_record(judged, num_samples)
    else:
        extractor = extractor_of(trained, settings, changes).to(device)
        held_out = None if source is None else chosen.features_of(source, extractor)
        real = _real_statistics(trained, settings, changes, extractor=extractor, held_out=held_out)
        generator = trained.generator.to(device)
        scores = score_generator(generator, extractor, real, held_out=held_out, **draws).as_record()
    record = {
        "event": "scores",
        "iteration": trained.iteration,
        "by": "evaluate",
        "seconds": None,
        "scoring_seconds": round(time.monotonic() - begin, 3),
        **scores,
    }
    if record.get("rare") and settings.privacy.covers_samples:
        record["warnings"].append("rows that are expected of rare values are counted with noise")
    record["warnings"] += _warn_unlike_training(path, record, raw=raw)
    try:
        trained.run.append_metrics(record)
    except OSError as error:
        _log.warning("warning: %s: not recorded there (%s)", path, error.strerror)
    return record


def _warn_unlike_training(path: Path, record: Mapping[str, Any], *, raw: bool) -> list[str]:
    """Warns if these scores cannot be compared with those that training recorded, and says why."""
    rows = RecordedRun.read(path).of(ScoresRow)
    recorded = [row for row in rows if row.by is None and row.scores]
    if not recorded:
        return []
    before, now = _measurement(recorded[-1]), _measurement(typed(record, ScoresRow))
    differing = [what for what, value in now.items() if value != before[what]]
    if raw and (path / AVERAGE_FILE).exists():
        differing.append("generator (the average, not itself)")
    if not differing:
        return []
    return [f"these scores do not compare with those of training: other {', '.join(differing)}"]


def _measurement(scores: ScoresRow) -> dict[str, object]:
    return {
        "network": scores.extractor and scores.extractor.sha256,
        "number of samples": scores.n,
        "real samples": (scores.n_real, scores.real_class_histogram),
        "held-out samples": scores.n_held_out,
    }


def extractor_of(
    trained: TrainedRun, settings: RunSettings, changes: Mapping[str, str]
) -> Extractor:
    """Loads the network that training kept in the run's folder, or the one that the user names."""
    deciding = {"extractor", "inception_weights", "data_dir"}
    if settings.privacy.has_dp and chosen.trains_on_held_out(settings, trained.dataset):
        deciding.add("held_out")  # the kept network may have learnt from them
    if not deciding & changes.keys() and (trained.run.path / EXTRACTOR_FILE).exists():
        tensors, fields = trained.run.read_tensors(EXTRACTOR_FILE)
        return chosen.unpack(fields, tensors, chosen.own_file(settings.scores))
    folder = settings.data.data_folder(trained.dataset.name, 1)
    return chosen.make_extractor(
        settings,
        trained.dataset,
        lambda: trained.dataset.open(folder),
        held_out=lambda: chosen.open_held_out(settings, trained.dataset, folder),
    )


def _real_statistics(
    trained: TrainedRun,
    settings: RunSettings,
    changes: Mapping[str, str],
    extractor: Extractor,
    held_out: Features | None,
) -> RealStatistics:
    """Reads the sums that training kept by this extractor, or sums over this machine's data."""
    if not settings.privacy.discloses(FEATURES):
        return describe_held_out(held_out, extractor)
    if "data_dir" not in changes and (trained.run.path / REAL_FILE).exists():
        tensors, described = trained.run.read_tensors(REAL_FILE)
        # Older runs have sums over halves of the samples, without a total.
        if described.get("sha256") == extractor.sha256 and "total" in tensors:
            return RealStatistics.from_tensors(tensors)
    has_hosts = registry.algorithm(settings.algorithm).has_hosts
    ranks = range(1, settings.world_size) if has_hosts else [1]
    folders = {settings.data.data_folder(trained.dataset.name, rank) for rank in ranks}
    try:
        sources = [trained.dataset.open(folder) for folder in sorted(folders)]
    except BadInput as error:
        if held_out is None:
            way_out = f"or compare with {flag('held_out', 'DIR')}"
            raise BadInput(error.marked, way_out=way_out) from error
        return describe_held_out(held_out, extractor)
    shards = [Shard(source, torch.arange(len(source)), generator_for(0)) for source in sources]
    return describe_all(shards, extractor)


def scores_in_words(record: Mapping[str, Any]) -> str:
    """Writes the scores of a record as a table, without a last line break."""
    of_rows = "extractor" not in record
    lines, rows = _row_scores(record) if of_rows else _feature_scores(record)
    lines.append(text_table(rows, right=(1,), indent=2))
    for rule in record.get("rules", ()):
        real = (
            "" if rule["real"] is None else f", {rule['real']:,} of {record['n_held_out']:,} real"
        )
        lines.append(f"  {rule['rule']}: {rule['made']:,} of {record['n']:,} rows keep it{real}")
    if rare := record.get("rare"):
        heading = ("of less than 1 % of rows", "expected", "generated")
        rare_rows = [
            (f"{r['column']} = {r['value']}", f"{r['expected']:,.1f}", f"{r['generated']:,}")
            for r in rare[:_MOST_RARE_SHOWN]
        ]
        lines.append(text_table(rare_rows, heading, right=(1, 2), indent=2))
    names_shown = SCORE_NAMES if of_rows else None
    lines += [f"  {line}" for line in said_left_out(record["left_out"], names_shown)]
    lines += [f"  warning: {warning}" for warning in record["warnings"]]
    return "\n".join(lines)


_Rows = list[tuple[str, str, str]]


def _feature_scores(record: Mapping[str, Any]) -> tuple[list[str], _Rows]:
    scores, extractor = record["scores"], record["extractor"]
    real = record.get("real", {})
    accuracy = extractor.get("accuracy")
    measured = "" if accuracy is None else f", {100 * accuracy:.1f} % right on test samples"
    lines = [
        f"iteration {record['iteration']}: {record['n']:,} generated samples against "
        f"{record['n_real']:,} real ones",
        f"features of {extractor['name']} ({extractor['sha256'][:12]}{measured})",
    ]
    rows = [
        ("FID", _number(scores.get("fid")), f"real data {_number(real.get('fid'))}"),
        ("KID", _number(scores.get("kid"), 5), f"± {_number(scores.get('kid_std'), 5)}"),
        ("score", _number(scores.get("inception_score"), 3),
         f"Inception-style; real data {_number(real.get('inception_score'), 3)}"),
        *((name, _number(scores.get(name), 3), "") for name in
          ("precision", "recall", "density", "coverage")),
        ("classes covered", str(scores.get("classes_covered", "-")), f"of {real.get('classes')}"),
        ("KL of classes", _number(scores.get("class_kl"), 4), "nats, generated against real"),
        ("right class", _number(scores.get("label_accuracy"), 3), "share; " + _worst_class(record)),
        ("intra FID", _number(scores.get("intra_fid")), "mean of the FIDs of classes"),
    ]  # fmt: skip
    return lines, [row for row in rows if row[1] != "-"]


def _row_scores(record: Mapping[str, Any]) -> tuple[list[str], _Rows]:
    scores, real = record["scores"], record["real"]
    held_out = record["n_held_out"]
    against = f" and {held_out:,} held-out ones" if held_out else ""
    lines = [
        f"iteration {record['iteration']}: {record['n']:,} generated rows against the counts of "
        f"all sites{against}"
    ]
    rows = [
        (SCORE_NAMES[name], _number(scores[name], 3),
         f"real rows {_number(real[name], 3)}" if name in real else "")
        for name in SCORE_NAMES if name in scores
    ]  # fmt: skip
    return lines, rows


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _worst_class(record: Mapping[str, Any]) -> str:
    """Names the class that the extractor recognises least."""
    shares = record.get("by_class", {}).get("right", [])
    recognised = [(share, c) for c, share in enumerate(shares) if share is not None]
    if not recognised:
        return ""
    share, c = min(recognised)
    return f"least of class {c}: {_number(share, 3)}"
