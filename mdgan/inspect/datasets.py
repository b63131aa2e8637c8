"""`mdgan datasets`: lists dataset files, and draws how one of them would be divided."""

import io
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mdgan import spelling
from mdgan.data.dataset_file import DatasetFile, load, load_path
from mdgan.data.find import find_all
from mdgan.data.partition import partition
from mdgan.data.partitioner import Partitioner
from mdgan.data.settings import DataSettings
from mdgan.errors import BadInput, printable
from mdgan.gan.build import num_parameters
from mdgan.models.check import check_models
from mdgan.observe.text_table import text_table
from mdgan.storage.whole_file import write_output

_log = logging.getLogger(__name__)

_HEADINGS = ("name", "samples", "shape", "G parameters", "D parameters", "about")
_MOST_NUMBERED_CELLS = 400  # a heat map of more cells shows colours alone
_MOST_OF_NAME = 60
_MOST_CLASSES_SHOWN, _SAMPLES_OF_CLASS = 12, 12

_SampleRows = tuple[bytes, list[str], str]
"""A PNG with a row of samples for each class, the names of the rows, and a heading."""


def list_datasets(datasets_dir: str | None) -> str:
    """Lists all dataset files in a table, and adds a line for each that cannot be loaded."""
    rows, failures = [], []
    for name, path in sorted(find_all(datasets_dir).items()):
        try:
            rows.append(_describe_file(load_path(path)))
        except BadInput as error:
            failures.append(f"{name}: {error}")
    return "\n".join([text_table(rows, _HEADINGS), *failures])


def _describe_file(dataset: DatasetFile) -> tuple[str, ...]:
    sizes = ["-", "-"]
    if dataset.own_models is not None:
        check_models(dataset.own_models, dataset.num_classes)
        both = dataset.own_models.generator, dataset.own_models.discriminator
        sizes = [f"{num_parameters(make()):,}" for make in both]
    kind = "as its settings say" if dataset.prepare is not None else dataset.kind.name
    shape = "×".join(map(str, dataset.shape)) or "-"
    return (dataset.name, kind, shape, *sizes, dataset.about)


def draw_partition(
    name: str,
    datasets_dir: str | None,
    data_dir: str | None,
    scheme: str,
    num_workers: int,
    seed: int,
    output: Path,
) -> None:
    """Draws how many samples of each class every worker would hold, and some samples.

    Args:
        data_dir: the folder with the data; None for the usual one.
        scheme: how to divide, as for `--partition`.
        output: the picture to write, .png or .svg.
    """
    data = DataSettings.read({"partition": scheme, "data_dir": data_dir})
    if not data.partition.divides:
        raise BadInput(spelling.flag("partition", "none"), "divides nothing", "name another scheme")
    if output.suffix.lower() not in (".png", ".svg"):
        raise BadInput(spelling.output(output), "must end in .png or .svg")
    dataset = load(name, datasets_dir)
    if dataset.usual_size is not None:
        folder = data.data_folder(name, 1)
        data = data.but(image_size=dataset.usual_size(folder))
        bits, explanation = dataset.prepared(data).found_bits([folder], everywhere=True)
        if bits is not None:
            data = data.but(picture_bits=bits)
            _log.info("%s: %s", folder, explanation)
    dataset = dataset.prepared(data)
    dataset.check_folder("data_dir", data_dir)
    if dataset.own_models is not None:
        check_models(dataset.own_models, dataset.num_classes)
    source = dataset.open(data.data_folder(name, 1))
    parts = partition(source.labels, data.partition, num_workers, seed=seed, groups=source.groups)
    num_classes = int(source.labels.max()) + 1
    counts = torch.stack(
        [torch.bincount(source.labels[part], minlength=num_classes) for part in parts]
    )
    num_held = len(torch.unique(torch.cat(parts)))
    num_samples = f"{num_held:,}" if num_held == len(source) else f"{num_held:,} of {len(source):,}"
    title = f"{name}, {scheme}: {num_samples} samples over {num_workers} workers"
    names = source.class_names or [str(c) for c in range(num_classes)]
    names = [printable(name, _MOST_OF_NAME) for name in names]
    sample_rows = _sample_rows(dataset, source, names) if dataset.kind.is_seen else None
    file_format = output.suffix[1:].lower()
    picture = _heat_map(counts, names, title, sample_rows=sample_rows, file_format=file_format)
    write_output(output, picture)


def _sample_rows(dataset: DatasetFile, source: Partitioner, names: Sequence[str]) -> _SampleRows:
    classes = torch.unique(source.labels).tolist()[:_MOST_CLASSES_SHOWN]
    by_class = [(source.labels == c).nonzero().flatten()[:_SAMPLES_OF_CLASS] for c in classes]
    indices = torch.cat(by_class)
    png = dataset.kind.class_png(source.images(indices), source.labels[indices])
    shape = "×".join(map(str, dataset.shape))
    return png, [names[c] for c in classes], f"samples as the networks see them, {shape}"


def _draw_sample_rows(axes: Any, sample_rows: _SampleRows) -> None:
    from PIL import Image

    png, names, heading = sample_rows
    with Image.open(io.BytesIO(png)) as picture:
        height = picture.height / len(names)
        axes.imshow(picture.convert("RGB"))
    axes.set_xticks([])
    axes.set_yticks([height * (row + 0.5) for row in range(len(names))], names)
    axes.set_title(heading)


def _heat_map(
    counts: Tensor,
    class_names: Sequence[str],
    title: str,
    sample_rows: _SampleRows | None,
    file_format: str,
) -> bytes:
    """Draws `counts`, int64 [workers, classes], as a heat map with the samples below it."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        what = "pictures of partitions need matplotlib"
        raise BadInput(what, "pip install 'mdgan[plots]'") from error
    num_workers, num_classes = counts.shape
    width = max(2.5 + 0.55 * min(num_classes, 40), 0.1 * len(title))
    heights = [1.6 + 0.32 * min(num_workers, 60)]
    if sample_rows is not None:
        width, heights = max(width, 6), [*heights, 0.6 + 0.4 * len(sample_rows[1])]
    figure = Figure(figsize=(width, sum(heights)), layout="constrained")
    axes, *below = figure.subplots(len(heights), squeeze=False, height_ratios=heights).flat
    if sample_rows is not None:
        _draw_sample_rows(below[0], sample_rows)
    axes.set(xlabel="class", ylabel="worker")
    figure.suptitle(title, fontsize="large")
    axes.set_xticks(range(num_classes), class_names)
    axes.tick_params(axis="x", rotation=0 if all(map(str.isdecimal, class_names)) else 45)
    step = max(1, num_workers // 40)
    axes.set_yticks(range(0, num_workers, step), [str(n + 1) for n in range(0, num_workers, step)])
    cells = axes.imshow(counts.numpy(), cmap="cividis", aspect="auto", vmin=0)
    figure.colorbar(cells, ax=axes, label="samples")
    if counts.numel() <= _MOST_NUMBERED_CELLS:
        middle = counts.max().item() / 2
        for n, row in enumerate(counts.tolist()):
            for c, count in enumerate(row):
                colour = "black" if count > middle else "white"
                axes.text(c, n, str(count), ha="center", va="center", color=colour, fontsize=8)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=file_format, dpi=150)
    return buffer.getvalue()
