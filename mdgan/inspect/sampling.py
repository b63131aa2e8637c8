"""Writes samples of a run's newest generator."""

from collections.abc import Sequence
from pathlib import Path

from mdgan.errors import BadInput
from mdgan.gan.sampling import draw_samples
from mdgan.inspect.trained import load_trained
from mdgan.inspect.where import draw_where
from mdgan.samples.shown import usual_picture
from mdgan.storage.whole_file import write_output

_NUM_SAMPLES = 64


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
        samples, labels = draw_where(trained, num_samples, seed, label, where)
    else:
        labels = trained.labels(num_samples, label)
        if labels is not None and ending == ".png":
            labels = labels.sort().values  # as the rows of the picture are filled
        samples = draw_samples(trained.generator, num_samples, z_dim, seed, labels)
    write_output("-o", output, writers[ending](samples, labels))
    return output, trained.iteration, num_samples
