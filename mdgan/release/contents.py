"""The files of a bundle, from what they are made of: the same bytes at the server and at a reader.

They are the same on the same machine with the same programs. Other processors may round the last
digits of samples otherwise.
"""

from collections.abc import Mapping

from safetensors.torch import save

from mdgan.errors import BadInput
from mdgan.gan.sampling import draw_samples
from mdgan.records.release_policy import decide
from mdgan.records.run_directory import ENCODING_FILE
from mdgan.release.card import Card
from mdgan.release.croissant import croissant_of
from mdgan.release.exported import PROGRAM_FILE, export_program, sampling_lines
from mdgan.release.source import GENERATOR_FILE, Source

POLICY_FILE = "policy.toml"
CARD_FILE, PAGE_FILE, CROISSANT_FILE = "card.md", "card.html", "croissant.json"
_SAMPLES = "samples"
_SEED = 0
_IN_PICTURE = 100


def made_files(source: Source, *, has_generator: bool = True) -> tuple[dict[str, bytes], list[str]]:
    """The generator and its samples, and what is missing and why, a line each."""
    files, missing = dict(source.dataset.keeps), list[str]()
    if source.counts is not None:
        files[ENCODING_FILE] = save({"counts": source.counts})
    if has_generator:
        state = source.generator.state_dict()
        files[GENERATOR_FILE] = save({name: each.contiguous() for name, each in state.items()})
        program = export_program(source)
        if isinstance(program, str):
            missing.append(f"no {PROGRAM_FILE}: {program}")
        else:
            files[PROGRAM_FILE] = program
    if num_samples := source.evidence.num_samples:
        labels = source.labels(num_samples)
        made = draw_samples(source.generator, num_samples, source.models.z_dim, _SEED, labels)
        writers = source.dataset.kind.writers()
        for ending, write in writers.items():
            if ending == ".npz" and ".csv" in writers:
                continue  # encoded rows say nothing to readers
            some = slice(0, _IN_PICTURE if ending == ".png" else num_samples)
            try:
                own = None if labels is None else labels[some]
                files[f"{_SAMPLES}{ending}"] = write(made[some], own)
            except BadInput as error:
                missing.append(f"no {_SAMPLES}{ending}: {error}")
    return files, missing


def described(source: Source, policy: str, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The cards, in several forms, of a bundle with some files that were made."""
    evidence = source.evidence
    verdicts = decide(evidence.rules(policy, POLICY_FILE), evidence.figures)
    lines = sampling_lines(source) if PROGRAM_FILE in files else ""
    card = Card(source, verdicts, lines)
    text, page = card.written(files.get(f"{_SAMPLES}.png"))
    return {CARD_FILE: text, PAGE_FILE: page, CROISSANT_FILE: croissant_of(card, files)}
