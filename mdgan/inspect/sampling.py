"""Writes samples of a run's newest generator, for `mdgan sample`."""

import logging
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from mdgan import spelling
from mdgan.errors import BadInput
from mdgan.gan.randomness import derive_seed
from mdgan.gan.sampling import draw_samples
from mdgan.inspect.trained import Label, TrainedRun, load_trained
from mdgan.observe.progress import LOG_SECONDS, duration
from mdgan.samples.kinds import usual_picture
from mdgan.storage.whole_file import write_output

_NUM_SAMPLES = 64
_PIECE = 4096  # samples that are drawn at once
_TRIAL = 16 * _PIECE  # draws after which mdgan forecasts the rest, or gives up

_log = logging.getLogger(__name__)


def sample_run(
    path: Path,
    num_samples: int | None,
    seed: int,
    output: Path | None,
    *,
    raw: bool = False,
    label: Label = None,
    where: Sequence[str] = (),
) -> tuple[Path, int, int]:
    """Writes samples of a finished or running run, the same for the same seed.

    Args:
        num_samples: n; None for 64, or for the picture of all classes that training draws.
        output: the file to write, whose ending names the format; None for `samples` with the usual
            ending of the kind of sample.
        raw: draws from the generator itself, though the run has averaged it.
        label: the class that all samples are of; None for all classes.
        where: conditions that all samples fulfil, such as `sex=F`.

    Returns:
        The file, the iteration after which the generator was saved, and n.
    """
    trained = load_trained(path, raw=raw)
    kind, z_dim = trained.dataset.kind, trained.models.z_dim
    writers = kind.writers()
    output = output or Path(f"samples{next(iter(writers))}")
    ending = output.suffix.lower()
    if ending not in writers:
        endings = " or ".join(writers)
        raise BadInput(spelling.output(output), f"{kind.name} are written as {endings}")
    if num_samples is None and label is None and not where and ending == ".png":
        data, num_samples = usual_picture(kind, trained.generator, z_dim, seed=seed)
        write_output(output, data or b"")
        return output, trained.iteration, num_samples
    num_samples = num_samples or _NUM_SAMPLES
    if where:
        samples, labels = _draw_where(trained, num_samples, seed, label=label, conditions=where)
    else:
        labels = trained.labels(num_samples, label)
        if labels is not None and ending == ".png":
            labels = labels.sort().values  # a picture has a row for each class
        samples = draw_samples(trained.generator, num_samples, z_dim, seed=seed, labels=labels)
    write_output(output, writers[ending](samples, labels))
    return output, trained.iteration, num_samples


def _draw_where(
    trained: TrainedRun, num_samples: int, seed: int, label: Label, conditions: Sequence[str]
) -> tuple[Tensor, Tensor | None]:
    """Draws until n samples fulfil all conditions.

    Logs after the first 65,536 draws how long the rest will take. Uses memory for n samples. The
    class is `label`, or else that in `conditions`, or else each class in turn.

    Returns:
        The samples, float32 [n, *shape], and their classes, int64 [n].

    Raises:
        BadInput: none of the first 65,536 samples fulfils all conditions.
    """
    where = trained.dataset.kind.where(conditions)
    wanted = where.label if label is None else label
    mention = spelling.flag("where", " --where ".join(conditions))
    result = torch.empty(num_samples, *trained.models.shape)
    classes = torch.empty(num_samples, dtype=torch.int64)
    kept = drawn = 0
    begin = logged = time.monotonic()
    while kept < num_samples:
        labels = trained.labels(_PIECE, wanted)
        piece_seed = derive_seed(seed, "where", drawn)
        z_dim = trained.models.z_dim
        samples = draw_samples(trained.generator, _PIECE, z_dim, seed=piece_seed, labels=labels)
        indices = where.keeps(samples, labels).nonzero().flatten()[: num_samples - kept]
        rows = slice(kept, kept + len(indices))
        result[rows] = samples[indices]
        if labels is not None:
            classes[rows] = labels[indices]
        drawn, kept, now = drawn + _PIECE, rows.stop, time.monotonic()
        if not kept and drawn == _TRIAL:
            shares = where.real_shares and f"; {where.real_shares}"
            why = f"holds for none of {drawn:,} samples{shares}"
            way_out = "ask for less, such as a wider range or one condition fewer"
            raise BadInput(mention, why, way_out)
        is_first = drawn == _TRIAL
        if kept < num_samples and (is_first or (drawn > _TRIAL and now - logged >= LOG_SECONDS)):
            logged, remaining = now, duration((now - begin) * (num_samples / kept - 1))
            progress = f"holds for {kept:,} of {drawn:,} draws, about 1 of {round(drawn / kept):,}"
            forecast = f"{num_samples:,} take {drawn * num_samples // kept:,}, {remaining} from now"
            way_out = "to wait less, ask for fewer with -n, or for less"
            extra = {"shown": "note" if is_first else "live"}
            _log.info("%s: %s; %s; %s", mention, progress, forecast, way_out, extra=extra)
    return result, None if labels is None else classes
