"""What cannot be a beginning is refused in one line that names the tensor."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from mdgan.data.dataset_file import DatasetFile, load
from mdgan.errors import BadInput
from mdgan.launch.beginning import read_beginning

DIGITS = load("digits", None)
State = dict[str, Tensor]


def state_of(dataset: DatasetFile = DIGITS) -> State:
    return {
        name: tensor.clone() for name, tensor in dataset.models.generator().state_dict().items()
    }


def test_the_file_of_a_generator_is_taken_as_it_is(tmp_path: Path) -> None:
    given = state_of()
    save_file(given, tmp_path / "g.safetensors")
    found = read_beginning(str(tmp_path / "g.safetensors"), DIGITS.models)
    assert found.generator.keys() == given.keys()
    assert all(torch.equal(found.generator[name], tensor) for name, tensor in given.items())
    assert found.discriminators == {}


def cut(state: State, name: str) -> None:
    state[name] = state[name][1:].clone()


def spoil(state: State, name: str) -> None:
    state[name].view(-1)[3] = torch.nan


def halve(state: State, name: str) -> None:
    state[name] = state[name].half()


def test_the_first_tensor_that_does_not_fit_is_named(tmp_path: Path) -> None:
    name = next(iter(state_of()))
    for damage, says in (
        (cut, f"{name} is float32 ["),
        (spoil, f"{name} holds NaN or Inf"),
        (halve, f"{name} is float16 ["),
        (State.pop, f"{name} is missing"),
        (lambda state, _: state.update(more=torch.zeros(2)), "more is not a tensor of that model"),
    ):
        state = state_of()
        damage(state, name)
        save_file(state, tmp_path / "g.safetensors")
        with pytest.raises(BadInput, match=r"does not fit the generator of .*digits\.py: ") as why:
            read_beginning(str(tmp_path / "g.safetensors"), DIGITS.models)
        assert says in str(why.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read (No such file or directory)"),
        (b"", "cannot be read (Error while deserializing header"),
        (b"hello, this is no tensor", "cannot be read (Error while deserializing header"),
        (b"\xff" * 8 + b"{}", "cannot be read (Error while deserializing header"),
        (bytes(1 << 24), "is larger than the generator"),
    ],
)
def test_what_is_no_file_of_tensors_is_refused(
    tmp_path: Path, content: bytes | None, says: str
) -> None:
    path = tmp_path / "g.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadInput) as why:
        read_beginning(str(path), DIGITS.models)
    assert says in str(why.value)
    assert str(why.value).startswith(f"--init-from {path}: ")


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not a run"):
        read_beginning(str(tmp_path), DIGITS.models)
