"""What `mdgan datasets` tells and draws."""

from pathlib import Path

import torch

from mdgan.data.dataset_file import (
    DatasetFile,
    check_models,
    find_all,
    load,
    load_path,
    num_parameters,
)
from mdgan.data.partition import partition
from mdgan.data.settings import DataSettings
from mdgan.errors import BadInput
from mdgan.inspect.partition_picture import partition_picture
from mdgan.storage.whole_file import write_whole


def list_datasets(datasets_dir: str | None) -> str:
    """A table of the dataset files found.

    Returns:
        Lines without a last line break; a file that cannot be used says why in its own line.
    """
    rows = [("name", "shape", "z", "G parameters", "D parameters", "file")]
    problems = []
    for name, path in sorted(find_all(datasets_dir).items()):
        try:
            rows.append(_row(load_path(path)))
        except BadInput as error:
            problems.append(f"{name}: {error}")
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join(lines + problems)


def _row(dataset: DatasetFile) -> tuple[str, str, str, str, str, str]:
    check_models(dataset)
    return (
        dataset.name,
        "×".join(map(str, dataset.shape)),
        str(dataset.z_dim),
        f"{num_parameters(dataset.generator()):,}",
        f"{num_parameters(dataset.discriminator()):,}",
        str(dataset.path),
    )


def draw_partition(
    name: str,
    datasets_dir: str | None,
    data_dir: str | None,
    scheme: str,
    num_workers: int,
    seed: int,
    output: Path,
) -> None:
    """Draws who would hold which classes.

    Raises:
        BadInput: the data set, the scheme or the output cannot be used.
    """
    data = DataSettings.read({"partition": scheme, "data_dir": data_dir})
    if not data.partition.divides:
        raise BadInput("--partition none: divides nothing; name another scheme")
    if output.suffix not in (".png", ".svg"):
        raise BadInput(f"-o {output}: must end in .png or .svg")
    dataset = load(name, datasets_dir)
    source = dataset.open(data.data_folder(name, 1))
    parts = partition(source.labels, data.partition, num_workers, seed)
    num_classes = int(source.labels.max()) + 1
    counts = torch.stack(
        [torch.bincount(source.labels[part], minlength=num_classes) for part in parts]
    )
    held = len(torch.unique(torch.cat(parts)))
    samples = f"{held:,}" if held == len(source) else f"{held:,} of {len(source):,}"
    title = f"{name}, {scheme}: {samples} samples over {num_workers} workers"
    picture = partition_picture(counts, source.class_names, title, output.suffix[1:])
    try:
        write_whole(output, picture)
    except OSError as error:
        raise BadInput(f"-o {output}: cannot write it ({error.strerror})") from error
