"""What follows from the workers' folders: who holds what of one, and how large its pictures are.

Only where all ranks run here: else every machine has data of its own, of which the others know
nothing, and settings must be equal on all.
"""

from dataclasses import replace
from typing import Any

from mdgan.data.dataset_file import load
from mdgan.families import registry
from mdgan.launch.models import default_settings
from mdgan.launch.ranks import local_ranks
from mdgan.launch.resolve import Resolved


def with_folder(resolved: Resolved) -> tuple[Resolved, list[str]]:
    """Adds to the settings what follows; returns them, and what the user is told of them."""
    found, notes = settings_of_folder(resolved)
    layers = (*resolved.layers, found)
    return replace(resolved, layers=layers, settings=registry.read_settings(layers)), notes


def settings_of_folder(resolved: Resolved) -> tuple[dict[str, Any], list[str]]:
    """The settings that follow, and what the user is told of them."""
    settings, own = resolved.settings, resolved.settings.data
    if resolved.ray is not None or not settings.num_workers:
        return {}, []
    ranks = local_ranks(settings, resolved.launch, resolved.task)
    dataset = load(own.dataset, own.datasets_dir)
    found, notes = dict[str, Any](), list[str]()
    folders = [own.data_folder(own.dataset, rank) for rank in ranks.workers() or (1,)]
    named = {n for layer in resolved.layers for n, value in layer.items() if value is not None}
    has_own = default_settings(resolved.layers, dataset).get("partition") == "none"
    if ranks.complete and has_own and "partition" not in named and len(folders) > len(set(folders)):
        found["partition"] = "iid"
        notes.append(
            f"--data-dir {folders[0]}: one folder, so its samples are divided among the workers "
            "(iid); --partition none gives each of them all"
        )
    if dataset.usual_size is not None and own.image_size is None and ranks.workers():
        side = dataset.usual_size(folders[0])
        if ranks.complete:
            found["image_size"] = side
        if side < dataset.shape[-1]:
            what = "are trained on as" if ranks.complete else "could be trained on as"
            how = "takes another size" if ranks.complete else "on every machine does that"
            notes.append(
                f"--data-dir {folders[0]}: pictures {what} {side}×{side}; "
                f"--set image_size={'N' if ranks.complete else side} {how}"
            )
    return found, notes
