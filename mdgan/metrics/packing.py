"""How the server's extractor reaches the workers, so that all ranks compute the same features.

The classifier is sent, since its architecture is part of mdgan. Code is not sent: for Inception and
for a user's own file only the SHA-256 is, and every machine must have the file. A machine whose
user has named such a file uses no other network, whatever the server sends.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from mdgan.errors import BadInput, reason_of
from mdgan.metrics import classifier
from mdgan.metrics.extractor import Extractor
from mdgan.metrics.network_files import digest, from_file, inception, shortened


def pack(extractor: Extractor) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """An extractor as JSON fields and, if weights are sent, tensors on the CPU for `unpack`."""
    fields: dict[str, Any] = {
        "kind": extractor.kind,
        "name": extractor.name,
        "sha256": extractor.sha256,
        "shape": None if extractor.shape is None else list(extractor.shape),
    }
    if extractor.kind != "classifier":
        return fields, {}
    fields["architecture"] = classifier.ARCHITECTURE
    fields["classes"] = extractor.num_classes
    fields["accuracy"] = extractor.accuracy
    state = extractor.network.state_dict()
    return fields, {name: tensor.detach().cpu() for name, tensor in state.items()}


def unpack(
    fields: Mapping[str, Any], tensors: Mapping[str, Tensor], own_file: Path | None
) -> Extractor:
    """The extractor that was packed, on the CPU.

    Args:
        own_file: this machine's `--inception-weights` or `--extractor`, for an extractor that is
            not sent; None if its user agreed to the data set's classifier.
    """
    if fields["kind"] == "classifier":
        if own_file is not None:
            raise BadInput(
                f"the server sends the {fields['name']}, but --extractor here names {own_file}; "
                "give every rank the same extractor"
            )
        return _unpack_classifier(fields, tensors)
    if fields["kind"] not in ("inception", "file"):
        raise BadInput(
            f"the server's extractor is of kind {fields['kind']!r}, unknown here; install the "
            "same version of mdgan on every machine"
        )
    wanted = fields["sha256"]
    if own_file is None:
        flags = "--extractor FILE"
        if fields["kind"] == "inception":
            flags = "--extractor inception --inception-weights FILE"
        raise BadInput(
            f"the server's extractor {fields['name']} (SHA-256 {shortened(wanted)}) does not "
            f"travel; copy its file to this machine and name it with {flags}"
        )
    if fields["kind"] == "inception":
        return inception(own_file, wanted)
    found = digest(own_file)
    if found != wanted:
        raise BadInput(
            f"--extractor {own_file}: SHA-256 is {shortened(found)}, the server's is "
            f"{shortened(wanted)}; copy the server's file to this machine"
        )
    channels, height, width = fields["shape"]
    return from_file(own_file, (channels, height, width))


def _unpack_classifier(fields: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Extractor:
    if fields["architecture"] != classifier.ARCHITECTURE:
        raise BadInput(
            f"the server's classifier has architecture {fields['architecture']}, here it is "
            f"{classifier.ARCHITECTURE}; install the same version of mdgan on every machine"
        )
    channels, height, width = fields["shape"]
    name = fields["name"].removeprefix("classifier of ")
    try:
        extractor = classifier.assemble(
            name, (channels, height, width), fields["classes"], fields["accuracy"], tensors
        )
    except RuntimeError as error:
        raise BadInput(
            f"the {fields['name']} that arrived does not fit its architecture "
            f"({reason_of(error)}); install the same version of mdgan on every machine"
        ) from error
    if extractor.sha256 != fields["sha256"]:
        raise BadInput(
            f"the {fields['name']} that arrived has SHA-256 {shortened(extractor.sha256)}, the "
            f"server's has {shortened(fields['sha256'])}; start again"
        )
    return extractor
