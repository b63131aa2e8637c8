"""Finds dataset files; this module imports fast, as it needs no torch."""

from pathlib import Path

from mdgan.errors import BadInput
from mdgan.spelling import flag


def shipped_folder() -> Path:
    """The folder of the dataset files that come with mdgan."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "shipped_datasets"
    return installed if installed.is_dir() else package.parent / "datasets"


def find_all(datasets_dir: str | None) -> dict[str, Path]:
    """All dataset files by name; a file in the user's folder hides a shipped one of that name."""
    folders = [shipped_folder()]
    if datasets_dir is not None:
        if not Path(datasets_dir).is_dir():
            raise BadInput(flag("datasets_dir", datasets_dir), "no such folder")
        folders.append(Path(datasets_dir))
    return {
        path.stem: path.resolve()
        for folder in folders
        for path in sorted(folder.glob("*.py"))
        if not path.stem.startswith("_")
    }
