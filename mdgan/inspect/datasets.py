"""Lists dataset files, and draws samples of one and which worker would hold which classes."""

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
_MOST_NUMBERS = 400
_MOST_OF_NAME = 60
_MOST_CLASSES_SEEN, _SEEN_OF_CLASS = 12, 12


def list_datasets(datasets_dir: str | None) -> str:
    """A table of the dataset files found."""
    rows, problems = [], []
    for name, path in sorted(find_all(datasets_dir).items()):
        try:
            rows.append(_row(load_path(path)))
        except BadInput as error:
            problems.append(f"{name}: {error}")
    return "\n".join([text_table(rows, _HEADINGS), *problems])


def _row(dataset: DatasetFile) -> tuple[str, ...]:
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
    """Draws samples as the networks see them, and who would hold how many of which class."""
    data = DataSettings.read({"partition": scheme, "data_dir": data_dir})
    if not data.partition.divides:
        raise BadInput(spelling.flag("partition", "none"), "divides nothing", "name another scheme")
    if output.suffix.lower() not in (".png", ".svg"):
        raise BadInput(spelling.output(output), "must end in .png or .svg")
    dataset = load(name, datasets_dir)
    if dataset.usual_size is not None:
        folder = data.data_folder(name, 1)
        data = data.but(image_size=dataset.usual_size(folder))
        bits, said = dataset.prepared(data).found_bits([folder], everywhere=True)
        if bits is not None:
            data = data.but(picture_bits=bits)
            _log.info("%s: %s", folder, said)
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
    held = len(torch.unique(torch.cat(parts)))
    samples = f"{held:,}" if held == len(source) else f"{held:,} of {len(source):,}"
    title = f"{name}, {scheme}: {samples} samples over {num_workers} workers"
    names = source.class_names or [str(c) for c in range(num_classes)]
    names = [printable(name, _MOST_OF_NAME) for name in names]
    seen = _seen(dataset, source, names) if dataset.kind.is_seen else None
    picture = _picture(counts, names, title, seen=seen, file_format=output.suffix[1:].lower())
    write_output(output, picture)


def _seen(
    dataset: DatasetFile, source: Partitioner, names: Sequence[str]
) -> tuple[bytes, list[str], str]:
    """Samples with a row for each class as PNG, the names of the rows, and a heading."""
    classes = torch.unique(source.labels).tolist()[:_MOST_CLASSES_SEEN]
    chosen = [(source.labels == c).nonzero().flatten()[:_SEEN_OF_CLASS] for c in classes]
    some = torch.cat(chosen)
    drawn = dataset.kind.class_png(source.images(some), source.labels[some])
    shape = "×".join(map(str, dataset.shape))
    return drawn, [names[c] for c in classes], f"samples as the networks see them, {shape}"


def _draw_seen(axes: Any, seen: tuple[bytes, list[str], str]) -> None:
    from PIL import Image

    drawn, names, heading = seen
    with Image.open(io.BytesIO(drawn)) as picture:
        height = picture.height / len(names)
        axes.imshow(picture.convert("RGB"))
    axes.set_xticks([])
    axes.set_yticks([height * (row + 0.5) for row in range(len(names))], names)
    axes.set_title(heading)


def _picture(
    counts: Tensor,
    class_names: Sequence[str],
    title: str,
    seen: tuple[bytes, list[str], str] | None,
    file_format: str,
) -> bytes:
    """Draws a heat map, workers against classes, with numbers; `seen` samples stand below."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        what = "pictures of partitions need matplotlib"
        raise BadInput(what, "pip install 'mdgan[plots]'") from error
    num_workers, num_classes = counts.shape
    width, height = 2.5 + 0.55 * min(num_classes, 40), 1.6 + 0.32 * min(num_workers, 60)
    below = 0.0 if seen is None else 0.6 + 0.4 * len(seen[1])
    figure = Figure(figsize=(width if seen is None else max(width, 6), height + below))
    figure.set_layout_engine("constrained")
    rows = figure.add_gridspec(
        1 if seen is None else 2, 1, height_ratios=(height, below)[: 1 + bool(seen)]
    )
    axes = figure.add_subplot(rows[0])
    if seen is not None:
        _draw_seen(figure.add_subplot(rows[1]), seen)
    image = axes.imshow(counts.numpy(), cmap="cividis", aspect="auto", vmin=0)
    axes.set(xlabel="class", ylabel="worker", title=title)
    axes.set_xticks(range(num_classes), class_names)
    if any(not name.isdecimal() for name in class_names):
        axes.tick_params(axis="x", rotation=45)
    step = max(1, num_workers // 40)
    axes.set_yticks(range(0, num_workers, step), [str(n + 1) for n in range(0, num_workers, step)])
    figure.colorbar(image, ax=axes, label="samples")
    if counts.numel() <= _MOST_NUMBERS:
        middle = counts.max().item() / 2
        for n, row in enumerate(counts.tolist()):
            for c, count in enumerate(row):
                colour = "black" if count > middle else "white"
                axes.text(c, n, str(count), ha="center", va="center", color=colour, fontsize=8)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=file_format, dpi=150)
    return buffer.getvalue()
