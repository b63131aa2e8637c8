"""Recognises files in a folder of pictures, by one table of endings, first bytes and ways out."""

import importlib
import re
from contextlib import suppress
from functools import cache
from pathlib import Path, PurePath
from typing import NamedTuple

from PIL import Image, features

from mdgan.spelling import flag


class FileKind(NamedTuple):
    """A kind of file."""

    name: str
    endings: str
    pil: str = ""  # Pillow's name of the format; empty if Pillow cannot read it
    way_out: str = ""  # how the user makes samples of such a file
    begins: tuple[bytes, ...] = ()  # such a file has one of these
    at: int = 0  # at this position

    @property
    def is_read(self) -> bool:
        """Whether this machine can read pictures of this kind."""
        return self.pil in readable_formats()


_SAVE = "save it as PNG"
_HEIC = b"ftyphei", b"ftyphev", b"ftypmif1", b"ftypmsf1"
_RAW = ".raw .cr2 .cr3 .nef .arw .dng .orf .rw2 .raf .exr .svs .ndpi .mrxs .scn .czi .lif .nd2 .vsi"
_VOLUMES = f"{flag('dataset', 'volumes')} reads it"
_KINDS = (
    FileKind("PNG", ".png .apng", "PNG", begins=(b"\x89PNG\r\n",)),
    FileKind("JPEG", ".jpg .jpeg .jpe .jfif", "JPEG", begins=(b"\xff\xd8\xff",)),
    FileKind("GIF", ".gif", "GIF", begins=(b"GIF8",)),
    FileKind("TIFF", ".tif .tiff", "TIFF", begins=(b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")),
    FileKind("WebP", ".webp", "WEBP", "", (b"WEBPVP8",), 8),
    FileKind("BMP", ".bmp .dib", "BMP"),
    FileKind("PPM", ".ppm .pgm .pbm .pnm", "PPM"),
    FileKind("HEIC", ".heic .heif .hif", "HEIF", "pip install pillow-heif", _HEIC, 4),
    FileKind("AVIF", ".avif", "AVIF", "pip install 'pillow>=11.3'", (b"ftypavi",), 4),
    FileKind("JPEG 2000", ".jp2 .j2k .j2c .jpf .jpx", "JPEG2000", _SAVE, (b"jP  \r\n",), 4),
    FileKind("JPEG XL", ".jxl", "", _SAVE, (b"\xff\x0a", b"\0\0\0\x0cJXL")),
    FileKind("DICOM", ".dcm .dicom .ima", "", _VOLUMES, (b"DICM",), 128),
    FileKind("NIfTI", ".nii .nii.gz", "", _VOLUMES),
    FileKind("volume", ".mha .mhd .nrrd .mgz", "", "save it as NIfTI"),
    FileKind("raw picture", _RAW, "", _SAVE),
    FileKind("drawing", ".svg .eps .ai .psd .xcf .ico .tga", "", _SAVE, (b"<svg", b"8BPS")),
    FileKind("PDF", ".pdf", "", "save its pages as PNG", (b"%PDF",)),
    FileKind("film", ".mp4 .mov .avi .mkv .mpg .webm", "", "save pictures of it", (b"ftyp",), 4),
    FileKind("archive", ".zip .gz .tar .tgz .7z .rar", "", "unpack it", (b"PK\3\4",)),
    FileKind("array", ".npy .npz .mat .h5", "", "mdgan.Data takes it", (b"\x93NUMPY", b"\x89HDF")),
    FileKind("pointer of Git LFS", "", "", "git lfs pull", (b"version https://git-lfs",)),
    FileKind("web page", "", "", "download it again", (b"<!DOCTYPE", b"<html")),
)
OF_PAGES = ("GIF", "TIFF", "WEBP", "PNG", "AVIF")
"""Formats with several pictures; in other formats of PIL, further pictures are previews."""
_BY_ENDING = {ending: kind for kind in _KINDS for ending in kind.endings.split()}
ENDINGS = tuple(ending for ending, kind in _BY_ENDING.items() if kind.pil)
"""Endings of pictures that mdgan can read, some of them only with a further package."""
_OF_MACHINES = re.compile(
    r"\..*|@eadir|@tmp|[@#]recycle|#snapshot|__macosx|\$recycle\.bin|lost\+found|(eh)?thumbs\.db|"
    r"desktop\.ini|icon\r|__pycache__|system volume information",
    re.IGNORECASE | re.DOTALL,
)
_BUILT = {"AVIF": "avif", "JPEG2000": "jpg_2000"}
"""Formats that Pillow may be built without, and Pillow's names of these features."""


@cache
def readable_formats() -> tuple[str, ...]:
    """The formats that this machine reads, by PIL's names; the rest of PIL's start programs."""
    Image.init()
    with suppress(ImportError):
        importlib.import_module("pillow_heif").register_heif_opener()
    known = [kind.pil for kind in _KINDS if kind.pil in Image.OPEN]
    return tuple(name for name in known if name not in _BUILT or features.check(_BUILT[name]))


def is_of_machine(name: str) -> bool:
    """Whether a file or folder is hidden, or made by a machine beside people's files."""
    return _OF_MACHINES.fullmatch(name) is not None


def ending_of(name: str) -> str:
    """The ending of a name in small letters; empty if there is none, or a number as in series."""
    small = name.lower().rstrip()
    ending = ".nii.gz" if small.endswith(".nii.gz") else PurePath(small).suffix
    return "" if ending[1:].isdigit() else ending


def kind_of_file(path: Path) -> FileKind | None:
    """The kind of a file by its ending, or else by its content; None if unknown."""
    ending = ending_of(path.name)
    kind = _BY_ENDING.get(ending)
    if (ending and kind is None) or (kind and (kind.is_read or not kind.begins)):
        return kind
    return kind_of_content(path) or kind


def kind_of_content(path: Path) -> FileKind | None:
    """The kind of a file by its first bytes; None if unknown."""
    with suppress(OSError), path.open("rb") as file:
        start = file.read(256)
        return next((kind for kind in _KINDS if start.startswith(kind.begins, kind.at)), None)
    return None
