"""Attacks a finished run, and writes the results into its folder (`mdgan audit`)."""

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from msgspec import to_builtins
from msgspec.structs import replace
from torch import Tensor

from mdgan.audit.answers import invert_all
from mdgan.audit.bound import bound_of_run
from mdgan.audit.distances import Space, copied_share, copying, most_suspicious
from mdgan.audit.membership import judge_all, together
from mdgan.audit.target import Target, load_target
from mdgan.errors import BadInput, writing
from mdgan.gan.sampling import sample_pieces
from mdgan.inspect.evaluate import extractor_of
from mdgan.launch import machine
from mdgan.metrics.extractor import Extractor
from mdgan.privacy.canaries import CANARIES
from mdgan.records.audit import AUDIT_FILE, NEIGHBOURS, PICTURES, Audit, Bound, Copying, Inversion
from mdgan.storage.whole_file import OWNER_ALONE, make_private_folder, write_whole

_log = logging.getLogger(__name__)

_SHOWN = 10
FEATURES, PIXELS, VALUES = "features", "pixels", "values"
_LOWER_BOUND = "lower bound on ε"
_NO_STATES = (
    "no state of a worker lies in {path}/checkpoints; train with "
    "--set checkpoint_to_server=true, or copy the checkpoints of its hosts there"
)
_NO_DISCRIMINATORS = "workers have no discriminator, and tell one sum alone"


def audit_run(
    path: Path, num_samples: int, seed: int | None, steps: int, changes: Mapping[str, str]
) -> Audit:
    """Attacks a finished run; writes `audit.json` and pictures into its folder.

    `steps` of gradient descent rebuild images from each single answer; 0 leaves that out.
    """
    _tell("reading the run and its data")
    target = load_target(path, changes)
    torch.set_num_threads(machine.num_threads(target.trained.settings()[1]))
    seed = target.settings.training.seed if seed is None else seed
    left_out: dict[str, str] = {}
    if not target.discriminators:
        left_out["discriminators, updates and feedback"] = (
            _NO_DISCRIMINATORS if target.settings.tells_once else _NO_STATES.format(path=path)
        )
    _tell("attacking discriminators")
    judged = judge_all(target, left_out)
    extractor = _extractor(target, changes, left_out)
    generator, pictures = _attack_generator(
        target, extractor, num_samples, seed=seed, left_out=left_out
    )
    inversions: list[Inversion] = []
    if not steps:
        left_out["updates and feedback"] = "--steps 0"
    elif target.settings.privacy.has_dp:
        left_out["updates and feedback"] = (
            "the noise on them is made of a secret that the run does not have"
        )
    elif target.discriminators:
        for inversion, shown in invert_all(target, seed, steps, left_out=left_out, tell=_tell):
            inversions.append(inversion)
            if target.trained.dataset.kind.is_seen:
                pictures[inversion.picture] = target.trained.dataset.kind.png(
                    shown, len(shown) // 2
                )
    audit = Audit(
        iteration=target.trained.iteration,
        checkpoint=target.checkpoint,
        seed=seed,
        num_generated=num_samples,
        extractor="" if extractor is None else extractor.name,
        discriminators=judged,
        generator=generator,
        inversions=inversions,
        epsilon=target.recorded.state.epsilon,
        bound=_bound(path, target, left_out),
        left_out=left_out,
        compared=True,
    )
    with writing(path):
        _write(path, audit, pictures)
    return audit


def _extractor(
    target: Target, changes: Mapping[str, str], left_out: dict[str, str]
) -> Extractor | None:
    """The run's feature extractor; None, with the reason in `left_out`, if it cannot be used."""
    if target.trained.dataset.kind.judges:
        return None
    try:
        return extractor_of(target.trained, target.settings, changes)
    except BadInput as error:
        left_out["generator, by features"] = str(error)
        return None


def _bound(path: Path, target: Target, left_out: dict[str, str]) -> Bound | None:
    settings = target.settings
    if settings.privacy.dp_delta is None:
        return None
    stated = settings.privacy.dp_epsilon or max(
        target.recorded.state.epsilon.values(), default=None
    )
    if stated is None:
        left_out[_LOWER_BOUND] = "the run has told no ε that could be compared"
        return None
    bound = bound_of_run(path, settings.privacy.dp_delta, stated)
    if bound is None:
        left_out[_LOWER_BOUND] = (
            f"no canaries lie in {path / CANARIES}; train with --audit-canaries, or copy the files "
            "of its hosts there"
        )
    elif bound.contradicts:
        _log.warning("warning: %s: the stated ε is wrong: %s", path, bound)
    return bound


def _tell(what: str) -> None:
    _log.info("%s …", what, extra={"shown": "doing"})


def _write(path: Path, audit: Audit, pictures: Mapping[str, bytes]) -> None:
    """Writes `audit.json` last, since it names the pictures."""
    make_private_folder(path / PICTURES)
    for name, png in pictures.items():
        write_whole(path / PICTURES / name, png, OWNER_ALONE)
    write_whole(path / AUDIT_FILE, (json.dumps(to_builtins(audit), indent=2) + "\n").encode())


def _attack_generator(
    target: Target,
    extractor: Extractor | None,
    num_samples: int,
    seed: int,
    left_out: dict[str, str],
) -> tuple[list[Copying], dict[str, bytes]]:
    trained = target.trained
    _tell(f"drawing {num_samples:,} samples")
    labels = trained.labels(num_samples)
    pieces = sample_pieces(
        trained.generator, num_samples, trained.models.z_dim, seed=seed, labels=labels
    )
    generated = torch.cat(list(pieces))
    real = together([target.samples_of(worker) for worker in target.holdings])
    kind = trained.dataset.kind
    images = kind.as_written(generated), real.images, target.held_out.images
    classes, other_classes = real.labels, target.held_out.labels
    assert classes is not None
    assert other_classes is not None

    def space(name: str, points: Callable[[Tensor], Tensor]) -> Space:
        made, trained_on, held_out = map(points, images)
        return Space(
            name, made, trained_on, held_out=held_out, classes=classes, other_classes=other_classes
        )

    spaces = [space(PIXELS if kind.is_seen else VALUES, lambda x: x.flatten(1).double())]
    if extractor is not None:
        spaces.insert(0, space(FEATURES, lambda x: extractor(x).values))
    _tell("looking for copies")
    attacks = [attack for space in spaces if (attack := copying(space, seed)) is not None]
    if attacks:
        by_value = spaces[-1]
        pieces = (piece.flatten(1).double() for piece in target.pieces())
        share = copied_share(by_value.generated, by_value.held_out, pieces)
        attacks[-1] = replace(attacks[-1], copied=share)
    else:
        left_out["generator"] = "no held-out sample is of the classes that it was trained on"
    chosen = most_suspicious(spaces[0], _SHOWN)
    if not kind.is_seen:
        return attacks, {}
    rows: list[Tensor] = [part[places] for part, places in zip(images, chosen, strict=True)]
    return attacks, {NEIGHBOURS: kind.png(torch.cat(rows), len(chosen[0]))}
