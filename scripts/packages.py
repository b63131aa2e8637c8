"""Compares a wheel and a source archive with what git keeps: `python -m scripts.packages FILE …`.

`make packages` does so. A file that git does not know would be a secret or a left-over; one that is
missing would break an installed mdgan.
"""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
_METADATA = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
_SHIPPED = {"mdgan/": "mdgan/", "datasets/": "mdgan/shipped_datasets/"}


def differences(package: Path, kept: set[str]) -> list[str]:
    """What a wheel or a source archive (.tar.gz) lacks or should not hold, a line each.

    Args:
        kept: the names of all files that git keeps.
    """
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as wheel:
            held = set(wheel.namelist())
        folder = "-".join(package.name.split("-")[:2]) + ".dist-info"
        wanted = {f"{folder}/{name}" for name in _METADATA} | {
            inside + name.removeprefix(beside)
            for beside, inside in _SHIPPED.items()
            for name in kept
            if name.startswith(beside)
        }
    else:
        with tarfile.open(package) as archive:
            held = {name.partition("/")[2] for name in archive.getnames()}
        wanted = kept | {"PKG-INFO"}
    return [f"{package.name} lacks {name}" for name in sorted(wanted - held)] + [
        f"{package.name} holds {name}, which is no file of git" for name in sorted(held - wanted)
    ]


def files_of_git() -> set[str]:
    """The names of all files that git keeps."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, check=True, capture_output=True, text=True
    )
    return set(filter(None, listed.stdout.split("\0")))


def main(packages: list[str]) -> str:
    """Returns what is wrong with the packages, a line each; empty if nothing is."""
    kept = files_of_git()
    wrong = [line for package in packages for line in differences(Path(package), kept)]
    return "\n".join(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) or None)
