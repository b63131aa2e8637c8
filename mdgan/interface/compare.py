"""`mdgan.compare`."""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mdgan.errors import BadInput
from mdgan.interface.child import command, new_folder, plain, scratch, write_settings
from mdgan.interface.run import Run
from mdgan.interface.train import Z_DIM, place

if TYPE_CHECKING:
    from mdgan.interface.data import Data, Model


@dataclass(frozen=True)
class Comparison:
    """What `compare` returns.

    Attributes:
        table: of each configuration the numbers in `comparison.json`.
        runs: of each configuration a run a seed.
    """

    path: Path
    page: Path
    table: dict[str, Any]
    runs: dict[str, list[Run]]


def compare(
    configurations: Mapping[str, Mapping[str, Any]],
    *,
    seeds: Sequence[int] = (0, 1, 2),
    dataset: "str | Data" = "digits",
    generator: "Model | None" = None,
    discriminator: "Model | None" = None,
    z_dim: int = Z_DIM,
    jobs: int = 1,
    quiet: bool = False,
    **settings: Any,
) -> Comparison:
    """Trains several configurations with the same data and seeds, as `mdgan compare` does.

    Args:
        configurations: of each name the settings that it alone has.
        seeds: every configuration is trained once with each.
        dataset, generator, discriminator, z_dim, quiet: as for `train`.
        settings: that hold for all; those of a configuration win.

    Raises:
        BadInput, RunFailed, KeyboardInterrupt: as `train`; every run is saved.
    """
    shared = plain(settings)
    out = shared.pop("out", None)
    for name in configurations:
        if not name or Path(name).name != name:
            raise BadInput(f"{name!r}: a configuration's name becomes that of a folder")
    with scratch() as folder, ExitStack() as made:
        others = [plain(own) for own in configurations.values()]
        shared |= place(folder, shared, dataset, generator, discriminator, z_dim, others)
        configs = folder / "configs"
        configs.mkdir()
        files = [
            write_settings(configs / f"{name}.json", {**shared, **plain(own)})
            for name, own in configurations.items()
        ]
        path = made.enter_context(new_folder("compare")) if out is None else Path(out)
        said = ("--seeds", ",".join(map(str, seeds)), "--out", str(path), "--jobs", str(jobs))
        try:
            command("compare", *said, *files, quiet=quiet)
        except BadInput as error:
            raise BadInput(str(error).replace(f"{configs}/", "")) from error
    data = None if isinstance(dataset, str) else dataset
    table = json.loads((path / "comparison.json").read_bytes())["configurations"]
    runs = {
        name: [Run.open(path / f"{name}-seed{seed}", data) for seed in dict.fromkeys(seeds)]
        for name in configurations
    }
    return Comparison(path, path / "report.html", table, runs)
