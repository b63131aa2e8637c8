"""What `mdgan plan` says of padding: how much each processor wastes, and what wastes less."""

from mdgan.data.dataset_file import DatasetFile
from mdgan.engine.settings import RunSettings
from mdgan.launch.models import models_of
from mdgan.models.registry import architecture
from mdgan.models.settings import FILE
from mdgan.plan.multiplications import multiplications
from mdgan.plan.padding import PROCESSORS, Multiplication, near_multiples, waste, worst_layer
from mdgan.plan.words import Part

_SIZES, _WIDTHS = (8, 16, 32, 64), (16, 64)
_WORTH_IT = 0.05


def padding_part(settings: RunSettings, dataset: DatasetFile) -> Part:
    """Processor, share of wasted work, and the layer that wastes most with what would waste less.

    Args:
        settings: of the planned run.
        dataset: its dataset file.

    Returns:
        A heading, and a row a processor; none if the models cannot run without numbers.
    """
    sizes = near_multiples(settings.training.batch_size, _SIZES)
    found = multiplications(models_of(settings, dataset), [settings.training.batch_size, *sizes])
    title = "multiplications of padding"
    if found is None:
        return title, []
    now = found[settings.training.batch_size]
    others = [(f"--batch-size {size}", found[size]) for size in sizes]
    others += _other_widths(settings, dataset)
    rows = []
    for processor in PROCESSORS:
        wasted = waste(now, processor)
        better = [
            (waste(found, processor), text)
            for text, found in others
            if waste(found, processor) < wasted - _WORTH_IT
        ]
        worst = worst_layer(now, processor)
        parts = [f"most in {worst}"] if worst else []
        if better:
            least, text = min(better)
            parts.append(f"with {text} {least:.0%}")
        rows.append((processor.name, f"{wasted:.0%}", "; ".join(parts)))
    return title, rows


def _other_widths(
    settings: RunSettings, dataset: DatasetFile
) -> list[tuple[str, list[Multiplication]]]:
    """Other widths of an architecture: the flag, and what would then be multiplied."""
    if settings.models.architecture == FILE:
        return []
    width, b = (
        settings.models.width or architecture(settings.models.architecture).width,
        settings.training.batch_size,
    )
    tried = (
        (size, multiplications(models_of(settings.but(width=size), dataset), [b]))
        for size in near_multiples(width, _WIDTHS)
    )
    return [(f"--width {size}", found[b]) for size, found in tried if found]
