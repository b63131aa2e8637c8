"""Tensors with JSON values beside them, in one safetensors file."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from mdgan.errors import BadInput
from mdgan.storage.whole_file import write_whole


def write_tensors(path: Path, tensors: Mapping[str, Tensor], fields: Mapping[str, Any]) -> None:
    """Writes a file completely or not at all."""
    whole = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    write_whole(path, save(whole, metadata={"fields": json.dumps(fields)}))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Reads what `write_tensors` wrote.

    Raises:
        BadInput: it is not there, or damaged.
    """
    try:
        with safe_open(path, framework="pt") as file:
            fields: dict[str, Any] = json.loads(file.metadata()["fields"])
            names = file.keys()
            return {name: file.get_tensor(name) for name in names}, fields
    except FileNotFoundError as error:
        raise BadInput(f"{path}: is missing") from error
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{path}: damaged ({error})") from error
