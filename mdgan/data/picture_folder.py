"""Finds the pictures in a user's folder, class by class; counts and names all other files.

It follows links to files anywhere and to the folder of a class, but not to folders below that.
"""

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from mdgan.data.partitioner import ImageFilesPartitioner
from mdgan.data.readable import refuse, shown
from mdgan.errors import BadInput, warn_once
from mdgan.samples.pictures.files import ENDINGS, ending_of, is_of_machine, kind_of_file
from mdgan.samples.pictures.reading import PictureShape
from mdgan.spelling import flag

_MOST_NAMED = 5
_EXPECTED = "a folder of pictures (.png .jpg .tif .webp …), or of one subfolder a class"
_MADE = r"(?:masks?|segs?|segmentations?|labels?|gt|annotations?|thumbs?|thumbnails?)"
_MADE_OF = re.compile(rf"(.+?)[ _.-]*{_MADE}[ _.-]?\d*|{_MADE}[ _.-]+(.*)", re.IGNORECASE)
"""The name of a mask or thumbnail; one of the groups is the name of its picture."""
_NO_CLASS = re.compile(rf"{_MADE}|images?|train(ing)?|val(id(ation)?)?|test(ing)?", re.IGNORECASE)


class PictureFolder(ImageFilesPartitioner):
    """Pictures and their classes: each subfolder of the data folder is one, in sorted order.

    Pictures that lie directly in the data folder are a class of their own, the first, named after
    it. Subfolders without pictures do not count.
    """

    def __init__(self, data_dir: Path, shape: PictureShape) -> None:
        self.shape = shape
        super().__init__(data_dir)

    def find(self, data_dir: Path) -> tuple[list[Path], Tensor]:
        """Lists the pictures of a worker's folder, class by class, sorted by path.

        Returns:
            The n paths; labels, int64 [n], from 0 to the number of classes in this folder.

        Raises:
            BadInput: the folder is missing, has no picture, or most of its files cannot be read.
        """
        where = flag("data_dir", data_dir)
        if not data_dir.is_dir():
            why = "is a file" if data_dir.exists() else "no such folder"
            raise BadInput(where, why, f"expected {_EXPECTED}")
        files = _FolderFiles(data_dir)
        classes = [(name, pictures) for name, pictures in files.classes if pictures]
        number, skipped = sum(len(pictures) for _, pictures in classes), files.skipped_files()
        if files.num_lost > number:
            why = f"most of it cannot be read: {skipped}; {number:,} would be left"
            raise BadInput(where, why, "make them readable, or move them out of the folder")
        if not classes:
            why = "no picture in it" + (skipped and f", but {skipped}")
            raise BadInput(where, why, f"expected {_EXPECTED}")
        if skipped:
            warn_once(f"{data_dir}: not read: {skipped}")
        if peculiarities := files.peculiarities():
            warn_once(f"{data_dir}: {'; '.join(peculiarities)}")
        self.class_names = tuple(name for name, _ in classes)
        sizes = torch.tensor([len(pictures) for _, pictures in classes])
        labels = torch.arange(len(classes)).repeat_interleave(sizes)
        return [path for _, pictures in classes for path in pictures], labels


class _FolderFiles:
    """The files in a folder: pictures by class, and all others.

    Attributes:
        classes: the name and the pictures of each class; the class of loose pictures is the first.
        num_lost: the number of files that may hold samples in a format that mdgan does not read.
    """

    def __init__(self, data_dir: Path) -> None:
        self._skipped: Counter[str] = Counter()
        self._of_machines: list[str] = []
        self.num_lost = 0
        root = data_dir.resolve()
        _, folders, names = next(os.walk(data_dir, onerror=refuse))
        self.classes = [(root.name, sorted(self._pictures(data_dir, names)))]
        for folder in sorted(data_dir / name for name in self._of_people(folders)):
            place = folder.resolve()
            is_here = root in (place, *place.parents) or place in root.parents
            if folder.is_symlink() and is_here:
                self._skipped["link(s) to a folder in it"] += 1
            else:
                self.classes.append((folder.name, sorted(self._below(folder))))

    def _below(self, folder: Path) -> Iterator[Path]:
        for parent, folders, names in os.walk(folder, onerror=refuse):
            folders[:] = self._of_people(folders)
            links = sum(Path(parent, name).is_symlink() for name in folders)
            self._skipped["link(s) to a folder below a class"] += links
            yield from self._pictures(Path(parent), names)

    def _of_people(self, names: list[str]) -> list[str]:
        """The names without hidden files and files of machines, which it remembers."""
        self._of_machines += filter(is_of_machine, names)
        return [name for name in names if not is_of_machine(name)]

    def _pictures(self, folder: Path, names: list[str]) -> list[Path]:
        return [folder / name for name in self._of_people(names) if self._is_picture(folder / name)]

    def _is_picture(self, path: Path) -> bool:
        """Whether mdgan reads a file as a picture; counts the file if not."""
        ending, kind = ending_of(path.name), None
        if not path.is_file():
            self.num_lost += ending in ENDINGS
            reason = "link(s) that lead nowhere" if path.is_symlink() else "pipe(s) or sockets"
        else:
            kind = kind_of_file(path)
            if kind is not None and kind.is_read:
                return True
            self.num_lost += kind is not None
            reason = shown(ending[:20]) or "without an ending"
        self._skipped[reason + (f" ({kind.name}: {kind.way_out})" if kind else "")] += 1
        return False

    def skipped_files(self) -> str:
        """Describes the files that mdgan skips, by kind, and how to make them readable."""
        kinds = (+self._skipped).most_common()
        parts = [f"{count:,} {kind}" for kind, count in kinds[:_MOST_NAMED]]
        if num_others := sum(count for _, count in kinds[_MOST_NAMED:]):
            parts.append(f"{num_others:,} others")
        if names := self._of_machines:
            parts.append(f"{len(names):,} hidden or of machines ({_first_of({*names})})")
        return ", ".join(parts)

    def peculiarities(self) -> list[str]:
        """Warnings about names and places of the pictures."""
        (_, loose), *folders = self.classes
        pictures = [path for _, paths in self.classes for path in paths]
        classes = [name for name, paths in folders if paths]
        stems = {(path.parent, path.stem.lower()) for path in pictures}
        masks = [
            path.name
            for path in pictures
            if (match := _MADE_OF.fullmatch(path.stem))
            and (path.parent, (match[1] or match[2] or "").lower()) in stems
        ]
        spelt = [unicodedata.normalize("NFC", name).casefold().strip() for name in classes]
        alike = [name for name, key in zip(classes, spelt, strict=True) if spelt.count(key) > 1]
        names_by_text = {
            "classes whose names differ by case, spaces or the coding of accents alone": alike,
            "picture(s) beside the class folders are a class": [p.name for p in loose if classes],
            "class folder(s) without a picture": [name for name, paths in folders if not paths],
            "look like parts of data, not like classes": [*filter(_NO_CLASS.fullmatch, classes)],
            "look like masks or thumbnails beside their pictures, and are trained on": masks,
        }
        return [f"{len(n):,} {text} ({_first_of(n)})" for text, n in names_by_text.items() if n]


def _first_of(names: Iterable[str]) -> str:
    ordered = sorted(names)
    return ", ".join([*map(shown, ordered[:_MOST_NAMED]), *["…"][: len(ordered) > _MOST_NAMED]])
