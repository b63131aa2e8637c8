"""`croissant.json`: what is in a bundle, as search engines for data sets read it.

Croissant 1.0 (Akhtar et al. 2024) with its RAI part, of MLCommons.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from mdgan.release.card import Card

_TYPES = {
    ".csv": "text/csv",
    ".parquet": "application/vnd.apache.parquet",
    ".png": "image/png",
    ".npz": "application/zip",
    ".safetensors": "application/octet-stream",
    ".pt2": "application/zip",
}
_VALUES = {"number": "sc:Float", "whole": "sc:Integer", "date": "sc:Date", "time": "sc:DateTime"}
_TERMS = {
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileProperty": "cr:fileProperty",
    "fileObject": "cr:fileObject",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}


def croissant_of(card: Card, files: Mapping[str, bytes]) -> bytes:
    """Describes the files of a bundle that hold what the run made."""
    texts = {section.title: " ".join(section.texts) for section in card.sections}
    content: dict[str, Any] = {
        "@context": {"@language": "en", "@vocab": "https://schema.org/", **_TERMS},
        "@type": "sc:Dataset",
        "conformsTo": [
            "http://mlcommons.org/croissant/1.0",
            "http://mlcommons.org/croissant/RAI/1.0",
        ],
        "name": "".join(c if c.isalnum() else "-" for c in card.title.lower()).strip("-"),
        "description": f"{card.title}. {card.about}",
        "datePublished": card.evidence.made[:10],
        "version": "1.0.0",
        "distribution": [_file(name, files[name]) for name in card.files],
        "recordSet": _record_sets(card),
        "rai:dataCollection": texts["How it was made"],
        "rai:dataUseCases": texts["Purpose"],
        "rai:dataLimitations": texts["Limits"],
        "rai:dataBiases": card.sections[-1].texts[0],
        "rai:personalSensitiveInformation": texts["What it may tell of people"],
    }
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()


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
    if "samples.csv" not in card.files:
        return []
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
