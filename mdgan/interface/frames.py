"""DataFrames of a program as files of rows, with a schema that is drafted from them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mdgan.errors import BadInput


def is_frame(part: object) -> bool:
    """Whether something is a pandas DataFrame, or writes itself like one."""
    return hasattr(part, "columns") and hasattr(part, "to_csv")


class Frames:
    """Rows of tables that lie in a folder, as `--dataset table` reads them.

    Args:
        parts: `train`, and `held_out` if there is one.
        target: the column that rows are asked for by, if the frames have it.

    Raises:
        BadInput: no column is left for a schema, or the frames differ in their columns.
    """

    def __init__(self, parts: Mapping[str, Any], target: str, folder: Path) -> None:
        from mdgan.inspect.schema_draft import draft
        from mdgan.samples.table.schema import schema_text

        train = parts["train"]
        for what, part in parts.items():
            if not is_frame(part) or list(part.columns) != list(train.columns):
                raise BadInput(f"{what}: must be a DataFrame with the columns of train")
        self.target = target if target in train.columns else None
        self._files = {what: folder / f"{what}.csv" for what in parts}
        train.to_csv(self._files["train"], index=False)
        found = draft(self._files["train"])
        self.schema = folder / "schema.json"
        self.schema.write_text(schema_text(found.schema), encoding="utf-8")
        names = [*found.schema.names, *([found.schema.person] if found.schema.person else [])]
        for what, part in parts.items():
            part[names].to_csv(self._files[what], index=False)
        left_out = [line.partition(":")[0] for line in found.left_out]
        rows = " and ".join(f"{len(part):,}" for part in parts.values())
        self.about = f"{rows} rows of a table with {len(names)} columns"
        self.about += f", {self.target} to be predicted" if self.target else ""
        self.about += f"; left out: {', '.join(left_out)}" if left_out else ""

    @property
    def places(self) -> dict[str, Any]:
        """The settings that say where the rows lie."""
        flags = {"train": "data_dir", "held_out": "held_out"}
        return {flags[what]: str(file) for what, file in self._files.items()}

    @property
    def settings(self) -> dict[str, Any]:
        """The settings with which a run trains on the rows."""
        told = {} if self.target is None else {"target": self.target}
        return {"dataset": "table", "schema": str(self.schema), **told, **self.places}
