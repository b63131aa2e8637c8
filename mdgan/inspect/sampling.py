"""Writes samples of a run's newest generator, all of them or those that fulfil conditions."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from mdgan.errors import BadInput
from mdgan.gan.randomness import derive_seed
from mdgan.gan.sampling import draw_samples
from mdgan.inspect.trained import TrainedRun, load_trained
from mdgan.samples.kinds import usual_picture
from mdgan.storage.whole_file import write_output

_NUM_SAMPLES = 64
_AT_ONCE = 4096
_MOST_DRAWN = 1_000_000


def sample_run(
    path: Path,
    num_samples: int | None,
    seed: int,
    output: Path | None,
    *,
    raw: bool = False,
    label: int | None = None,
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
        raise BadInput(f"-o {output}: {kind.name} are written as {' or '.join(writers)}")
    if num_samples is None and label is None and not where and ending == ".png":
        data, num_samples = usual_picture(kind, trained.generator, z_dim, seed)
        write_output("-o", output, data or b"")
        return output, trained.iteration, num_samples
    num_samples = num_samples or _NUM_SAMPLES
    if where:
        samples, labels = _draw_where(trained, num_samples, seed, label, where)
    else:
        labels = trained.labels(num_samples, label)
        if labels is not None and ending == ".png":
            labels = labels.sort().values  # as the rows of the picture are filled
        samples = draw_samples(trained.generator, num_samples, z_dim, seed, labels)
    write_output("-o", output, writers[ending](samples, labels))
    return output, trained.iteration, num_samples


def _draw_where(
    trained: TrainedRun, num_samples: int, seed: int, label: int | None, conditions: Sequence[str]
) -> tuple[Tensor, Tensor | None]:
    """Samples that fulfil all conditions, float32 [n, *shape], and their classes, int64 [n].

    Args:
        label: of all of them; None for the class that conditions name, or else for all.

    Raises:
        BadInput: of a million samples, or of 100 times as many as are asked for, too few fulfil
            them.
    """
    where = trained.dataset.kind.where(conditions)
    wanted = where.label if label is None else label
    found: list[tuple[Tensor, Tensor | None]] = []
    drawn = kept = 0
    while kept < num_samples:
        if drawn >= max(_MOST_DRAWN, 100 * num_samples):
            raise BadInput(
                f"--where {' --where '.join(conditions)}: holds for {kept:,} of {drawn:,} samples; "
                "ask for fewer with -n, or for less"
            )
        labels = trained.labels(_AT_ONCE, wanted)
        of_piece = derive_seed(seed, "where", drawn)
        samples = draw_samples(trained.generator, _AT_ONCE, trained.models.z_dim, of_piece, labels)
        places = where.keeps(samples, labels).nonzero().flatten()
        found.append((samples[places], None if labels is None else labels[places]))
        drawn += _AT_ONCE
        kept += len(places)
    labels_kept = [own for _, own in found if own is not None]
    classes = torch.cat(labels_kept)[:num_samples] if labels_kept else None
    return torch.cat([samples for samples, _ in found])[:num_samples], classes
