"""Writes and reads tensors: states of checkpoints with size and SHA-256, and files with fields."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from msgspec import Meta, Struct, ValidationError, convert
from msgspec.structs import asdict
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from mdgan.errors import BadInput
from mdgan.storage.budget import check_whole
from mdgan.storage.foreign_file import MOST_DOCUMENT_BYTES, open_regular
from mdgan.storage.whole_file import OWNER_ALONE, make_private_folder, whole_file, write_whole

# Names in safetensors of the types of tensors in models, optimizers and random states.
_TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}

_LENGTH_BYTES = 8


class Damaged(Exception):
    """A file does not hold what mdgan wrote into it. The text is one line."""

    def __init__(self, text: str) -> None:
        super().__init__(" ".join(text.splitlines()))


class StoredFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A file as it was written to disk.

    Attributes:
        sha256: of the whole file, in hexadecimal.
    """

    name: Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}\Z")]
    sha256: Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    num_bytes: Annotated[int, Meta(ge=0)]

    def as_record(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: object) -> "StoredFile":
        """Reads what `as_record` returned, and checks all of it.

        Raises:
            Damaged: the record is malformed, or its name leads out of the folder.
        """
        try:
            return convert(record, cls)
        except ValidationError as error:
            raise Damaged(f"not the record of a stored file: {error!s:.99}") from error


def write_state(folder: Path, name: str, state: Mapping[str, Tensor]) -> StoredFile:
    """Writes a state completely or not at all; a written state survives a loss of power.

    Only this user can read the file, as weights can reveal samples. At most one tensor at a time
    is copied in memory, or two if tensors are on a GPU.
    """
    make_private_folder(folder)
    digest, num_bytes = hashlib.sha256(), 0
    with whole_file(folder / name, OWNER_ALONE) as file:
        for piece in _pieces(state):
            file.write(piece)
            digest.update(piece)
            num_bytes += len(piece)
    return StoredFile(name, digest.hexdigest(), num_bytes)


def read_state(folder: Path, stored: StoredFile) -> dict[str, Tensor]:
    """Checks the size and SHA-256 of a state's file and reads it; raises as `check_file`."""
    check_file(folder, stored)
    try:
        return load_tensors(folder / stored.name)
    except Exception as error:  # a parser may raise anything on foreign bytes
        raise Damaged(f"{stored.name}: not a safetensors file ({error})") from error


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Reads all tensors of a file that may not be a safetensors file.

    Raises:
        OSError, SafetensorError, ValueError: it cannot be read, or is no safetensors file.
    """
    check_tensors(path)
    return load_file(path)


def check_tensors(path: Path) -> None:
    """Raises OSError or ValueError unless a file is regular and fits memory, as does its header."""
    with open_regular(path) as file:
        header_bytes = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if header_bytes > MOST_DOCUMENT_BYTES:
            raise ValueError(f"a header of {header_bytes:,} bytes")
        check_whole(path)


def check_file(folder: Path, stored: StoredFile) -> None:
    """Compares a file's size and SHA-256 with the record, without loading all of it into memory.

    Raises:
        Damaged: the file is missing, or differs from the record.
    """
    try:
        with open_regular(folder / stored.name) as file:
            num_bytes = file.seek(0, 2)
            if num_bytes != stored.num_bytes:
                raise Damaged(f"{stored.name}: {num_bytes} bytes instead of {stored.num_bytes}")
            file.seek(0)
            if hashlib.file_digest(file, "sha256").hexdigest() != stored.sha256:
                raise Damaged(f"{stored.name}: its checksum is wrong")
    except FileNotFoundError as error:
        raise Damaged(f"{stored.name}: is not there") from error
    except OSError as error:
        raise Damaged(f"{stored.name}: cannot be read ({error.strerror})") from error


def _pieces(state: Mapping[str, Tensor]) -> Iterator[memoryview | bytes]:
    """A safetensors file in pieces: the header's size, the header, and every tensor's bytes."""
    # The widest types come first, so that every tensor begins at a multiple of its element's size.
    names = sorted(state.keys(), key=lambda name: (-state[name].element_size(), name))
    header, end = {}, 0
    for name in names:
        begin, end = end, end + state[name].nbytes
        header[name] = {
            "dtype": _TYPES[state[name].dtype],
            "shape": list(state[name].shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for raw in bytes_on_host([state[name] for name in names]):
        yield np.asarray(raw).data


def bytes_on_host(tensors: Sequence[Tensor]) -> Iterator[Tensor]:
    """Copies tensors into this machine's memory, those on a GPU without delaying training.

    ParaGAN (section 4.1) streams checkpoints out instead of waiting for them. On a GPU a plain copy
    would queue among the kernels of training and delay them. Here a second CUDA stream copies one
    tensor into page-locked memory while the caller writes the tensor before.

    Args:
        tensors: on any devices; the caller may not write to them meanwhile.

    Yields:
        uint8 [n] on the CPU, the bytes of a tensor; valid until the caller takes the next.
    """
    on_gpu = [tensor for tensor in tensors if tensor.is_cuda]
    if not on_gpu:
        for tensor in tensors:
            yield _flat(tensor.detach().cpu())
        return
    device, most_bytes = on_gpu[0].device, max(tensor.nbytes for tensor in on_gpu)
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call] # torch leaves it unannotated
    # The stream of training may not have finished computing the tensors.
    stream.wait_stream(torch.cuda.default_stream(device))
    buffers = [page_locked(most_bytes), page_locked(most_bytes)]  # used by turns

    def begin(tensor: Tensor) -> tuple[Tensor, torch.cuda.Event | None]:
        if not tensor.is_cuda:
            return _flat(tensor.detach()), None
        buffers.reverse()
        with torch.cuda.stream(stream):
            copy = buffers[0][: tensor.nbytes]
            copy.copy_(_flat(tensor.detach()), non_blocking=True)
            done = torch.cuda.Event()  # type: ignore[no-untyped-call] # as above
            done.record(stream)
        return copy, done

    ahead = begin(tensors[0])
    for following in [*tensors[1:], None]:
        copy, done = ahead
        if following is not None:
            ahead = begin(following)
        if done is not None:
            done.synchronize()
        yield copy


def page_locked(num_bytes: int) -> Tensor:
    """Allocates page-locked memory, to which a GPU can write by itself; uint8 [n]."""
    return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True)


def _flat(tensor: Tensor) -> Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], fields: Mapping[str, Any]) -> None:
    """Writes tensors, with JSON values beside them, completely or not at all."""
    whole = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    write_whole(path, save(whole, metadata={"fields": json.dumps(fields)}))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Reads what `write_tensors` wrote.

    Raises:
        BadInput: the file is missing or damaged.
    """
    try:
        check_tensors(path)
        with safe_open(path, framework="pt") as file:
            fields: dict[str, Any] = json.loads(file.metadata()["fields"])
            if not isinstance(fields, dict):
                raise TypeError("no JSON object beside the tensors")
            names = file.keys()
            return {name: file.get_tensor(name) for name in names}, fields
    except FileNotFoundError as error:
        raise BadInput(path, "is missing") from error
    except OSError as error:
        raise BadInput(path, f"damaged ({error.strerror or error})") from error
    except (SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise BadInput(path, f"damaged ({error})") from error
