"""`croissant.json`: describes a bundle for search engines for data sets.

It is Croissant 1.0 (Akhtar et al. 2024) with its RAI part; MLCommons wrote both and the context.
"""

import hashlib
import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from mdgan.release.card import LIMITS, Card

_TYPES = {
    ".csv": "text/csv",
    ".parquet": "application/vnd.apache.parquet",
    ".png": "image/png",
    ".npz": "application/zip",
    ".json": "application/json",
    ".safetensors": "application/octet-stream",
    ".pt2": "application/zip",
}
_VALUES = {"number": "sc:Float", "whole": "sc:Integer", "date": "sc:Date", "time": "sc:DateTime"}
_ABOUT = "http://mlcommons.org/croissant"


def croissant_of(card: Card, contents: Mapping[str, bytes]) -> bytes:
    """Describes the files of a bundle, `contents` by name."""
    context = files("mdgan.release") / "templates" / "croissant-context.json"
    described: dict[str, Any] = {
        "@context": json.loads(context.read_text()),
        "@type": "sc:Dataset",
        "conformsTo": [f"{_ABOUT}/1.0", f"{_ABOUT}/RAI/1.0"],
        "name": "".join(c if c.isalnum() else "-" for c in card.title.lower()).strip("-"),
        "description": f"{card.title}. {card.purpose}",
        "datePublished": card.evidence.made[:10],
        "version": "1.0.0",
        "distribution": [_file(name, data) for name, data in sorted(contents.items())],
        "recordSet": _record_sets(card) if "samples.csv" in contents else [],
        "rai:dataCollection": card.made,
        "rai:dataUseCases": card.purpose,
        "rai:dataBiases": LIMITS[0],
        "rai:dataLimitations": " ".join(LIMITS),
        "rai:personalSensitiveInformation": card.privacy,
    }
    return (json.dumps(described, indent=1, ensure_ascii=False) + "\n").encode()


def _file(name: str, data: bytes) -> dict[str, str]:
    return {
        "@type": "cr:FileObject",
        "@id": name,
        "name": name,
        "contentUrl": name,
        "encodingFormat": _TYPES[name[name.rindex(".") :]],
        "contentSize": f"{len(data)} B",
        "sha256": hashlib.sha256(data).hexdigest(),
    }


def _record_sets(card: Card) -> list[dict[str, Any]]:
    """The columns of a table; pictures and tensors are described by the card."""
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"rows/{name}",
            "name": name,
            "dataType": _VALUES.get(kind, "sc:Text"),
            "source": {"fileObject": {"@id": "samples.csv"}, "extract": {"column": name}},
        }
        for name, kind in card.kind.columns().items()
    ]
    return [{"@type": "cr:RecordSet", "@id": "rows", "name": "rows", "field": fields}]
