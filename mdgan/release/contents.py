"""Makes the files of a bundle from its source, for the server and again for a reader.

Equal machines with equal programs make equal bytes. Other processors may round the last digits of
samples differently.
"""

import io
import logging
from collections.abc import Mapping

import safetensors.torch
import torch
from torch import Tensor, nn
from torch.export import Dim, export, save

from mdgan.errors import BadInput
from mdgan.gan.labels import call, inputs
from mdgan.gan.randomness import generator_for
from mdgan.gan.sampling import draw_samples
from mdgan.records.release_policy import decide
from mdgan.records.run_directory import ENCODING_FILE
from mdgan.release.card import Card
from mdgan.release.croissant import croissant_of
from mdgan.release.source import GENERATOR_FILE, Source

_log = logging.getLogger(__name__)

POLICY_FILE = "policy.toml"
CARD_FILE, PAGE_FILE, CROISSANT_FILE = "card.md", "card.html", "croissant.json"
PROGRAM_FILE = "generator.pt2"
_AT_ONCE = 256
_COMPARED = _AT_ONCE + 44
_CLASSES_KEPT = 65_536
_TOLD = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node")
"""Notes of torch about the origin of each operation, which hold paths of this machine."""
_SAMPLES = "samples"
_SEED = 0
_IN_PICTURE = 100


def made_files(source: Source, *, has_generator: bool = True) -> tuple[dict[str, bytes], list[str]]:
    """The files of the generator and its samples; and a line for each that cannot be made."""
    files, missing = dict(source.dataset.keeps), list[str]()
    if source.counts is not None:
        files[ENCODING_FILE] = safetensors.torch.save({"counts": source.counts})
    if has_generator:
        state = source.generator.state_dict()
        files[GENERATOR_FILE] = safetensors.torch.save(
            {name: weights.contiguous() for name, weights in state.items()}
        )
        program = export_program(source)
        if isinstance(program, str):
            missing.append(f"no {PROGRAM_FILE}: {program}")
        else:
            files[PROGRAM_FILE] = program
    if num_samples := source.evidence.num_samples:
        labels = source.labels(num_samples)
        made = draw_samples(
            source.generator, num_samples, source.models.z_dim, seed=_SEED, labels=labels
        )
        writers = source.dataset.kind.writers()
        for ending, write in writers.items():
            if ending == ".npz" and ".csv" in writers:
                continue  # readers cannot use encoded rows
            some = slice(0, _IN_PICTURE if ending == ".png" else num_samples)
            try:
                classes = None if labels is None else labels[some]
                files[f"{_SAMPLES}{ending}"] = write(made[some], classes)
            except BadInput as error:  # of a command, which is nothing to a reader of the card
                _log.warning("%s%s: %s", _SAMPLES, ending, error)
                missing.append(f"no {_SAMPLES}{ending}: it could not be made")
    return files, missing


def described(source: Source, policy: str, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The cards of a bundle, in several forms; `files` are those of `made_files`."""
    evidence = source.evidence
    verdicts = decide(evidence.rules(policy, POLICY_FILE), evidence.figures)
    lines = sampling_lines(source) if PROGRAM_FILE in files else ""
    card = Card(source, verdicts, lines)
    text, page = card.written(files.get(f"{_SAMPLES}.png"))
    return {CARD_FILE: text, PAGE_FILE: page, CROISSANT_FILE: croissant_of(card, files)}


# The generator as a program that torch runs alone, and the ten lines that sample from it.


class _Alone(nn.Module):
    """A generator and, if it is conditional, the classes that samples are of, one after the other.

    Args:
        classes: int64 [65,536]; see `even_labels`.
    """

    classes: Tensor

    def __init__(self, generator: nn.Module, classes: Tensor | None) -> None:
        super().__init__()
        self.generator = generator
        if classes is not None:
            self.register_buffer("classes", classes)

    def forward(self, z: Tensor, y: Tensor | None = None) -> Tensor:
        """Samples, float32 [n, *shape]."""
        made: Tensor = call(self.generator, z, y)
        return made.float()


def export_program(source: Source) -> bytes | str:
    """Exports a generator in evaluation mode and compares its samples with those of mdgan.

    Returns:
        The file, the same for the same version of torch; or in a line why there is none.
    """
    generator, z_dim = source.generator.eval(), source.models.z_dim
    classes = source.labels(_CLASSES_KEPT)
    alone = _Alone(generator, classes).eval()
    two = inputs(torch.randn(2, z_dim), None if classes is None else classes[:2])
    n = Dim("n", min=1, max=_AT_ONCE)
    shapes = {name: {0: n} for name in ("z", "y")[: len(two)]}
    try:
        program = export(alone, two, dynamic_shapes=shapes)
        for node in program.graph.nodes:
            for note in _TOLD:
                node.meta.pop(note, None)
        program._example_inputs = None  # pickled values that samplers do not need
        buffer = io.BytesIO()
        save(program, buffer)
        again = torch.export.load(io.BytesIO(buffer.getvalue())).module()
        labels = None if classes is None else classes[:_COMPARED]
        made = _drawn(again, z_dim, labels)
    except Exception as error:  # the generator may be any code, and so may what torch raises
        return f"torch.export cannot write this generator ({type(error).__name__})"
    if not torch.equal(made, draw_samples(generator, _COMPARED, z_dim, seed=0, labels=labels)):
        return "torch.export gives other bits than mdgan"
    return buffer.getvalue()


@torch.no_grad()
def _drawn(program: nn.Module, z_dim: int, labels: Tensor | None) -> Tensor:
    """Samples as `sampling_lines` draw them."""
    noise = generator_for(0, "samples")
    z = torch.stack([torch.randn(z_dim, generator=noise) for _ in range(_COMPARED)])
    pieces = zip(*(torch.split(part, _AT_ONCE) for part in inputs(z, labels)), strict=True)
    return torch.cat([program(*piece) for piece in pieces])


def sampling_lines(source: Source) -> str:
    """Python that draws the first samples of a bundle."""
    parts, called, z_dim = "z.split(256)", "part", source.models.z_dim
    if source.labels(1) is not None:
        parts = "zip(z.split(256), generator.classes[:n].split(256))"
        called = "*part"
    return f"""\
import hashlib, torch

n, seed = 300, 0
generator = torch.export.load("{PROGRAM_FILE}").module()
digest = hashlib.sha256(f"{{seed}}/samples".encode()).digest()
noise = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
z = torch.stack([torch.randn({z_dim}, generator=noise) for _ in range(n)])
with torch.no_grad():
    samples = torch.cat([generator({called}) for part in {parts}])
"""
