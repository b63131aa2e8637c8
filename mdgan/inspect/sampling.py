"""Writes samples of a run's newest generator, all of them or those that fulfil conditions."""

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
_AT_ONCE = 4096
_MEASURED = 16 * _AT_ONCE

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
        num_samples: n; None for 64, or for the picture that training draws of all classes.
        output: its ending says what is written, as far as the kind of sample can be written so;
            None for what is usual.
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
            labels = labels.sort().values  # as the rows of the picture are filled
        samples = draw_samples(trained.generator, num_samples, z_dim, seed=seed, labels=labels)
    write_output(output, writers[ending](samples, labels))
    return output, trained.iteration, num_samples


def _draw_where(
    trained: TrainedRun, num_samples: int, seed: int, label: Label, conditions: Sequence[str]
) -> tuple[Tensor, Tensor | None]:
    """Samples that fulfil all conditions, float32 [n, *shape], and their classes, int64 [n].

    Says after the first 65,536 samples how long that will take. Memory is that of n samples.

    Args:
        label: of all of them; None for the class that conditions name, or else for all.

    Raises:
        BadInput: none of the first 65,536 samples fulfils them.
    """
    where = trained.dataset.kind.where(conditions)
    wanted = where.label if label is None else label
    asked = spelling.flag("where", " --where ".join(conditions))
    found = torch.empty(num_samples, *trained.models.shape)
    classes = torch.empty(num_samples, dtype=torch.int64)
    kept = drawn = 0
    begin = told = time.monotonic()
    while kept < num_samples:
        labels = trained.labels(_AT_ONCE, wanted)
        of_piece = derive_seed(seed, "where", drawn)
        samples = draw_samples(
            trained.generator, _AT_ONCE, trained.models.z_dim, seed=of_piece, labels=labels
        )
        places = where.keeps(samples, labels).nonzero().flatten()[: num_samples - kept]
        into = slice(kept, kept + len(places))
        found[into] = samples[places]
        if labels is not None:
            classes[into] = labels[places]
        drawn, kept, now = drawn + _AT_ONCE, into.stop, time.monotonic()
        if not kept and drawn == _MEASURED:
            why = f"holds for none of {drawn:,} samples{where.told and '; ' + where.told}"
            raise BadInput(asked, why, "ask for less, such as a wider range or one condition fewer")
        is_first = drawn == _MEASURED
        if kept < num_samples and (is_first or (drawn > _MEASURED and now - told >= LOG_SECONDS)):
            told, left = now, duration((now - begin) * (num_samples / kept - 1))
            said = f"holds for {kept:,} of {drawn:,} draws, about 1 of {round(drawn / kept):,}"
            takes = f"{num_samples:,} take {drawn * num_samples // kept:,}, {left} from now"
            way_out = "to wait less, ask for fewer with -n, or for less"
            extra = {"shown": "note" if is_first else "live"}
            _log.info("%s: %s; %s; %s", asked, said, takes, way_out, extra=extra)
    return found, None if labels is None else classes
