"""What a machine checks and opens for differential privacy, before its workers train."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import nn

from mdgan.data.partition import lets_workers_share
from mdgan.data.shard import Shard
from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput, reason_of
from mdgan.gan.build import Models, build_model, num_parameters
from mdgan.gan.discriminator_learner import Rules
from mdgan.gan.labels import Samples, num_classes_of
from mdgan.gan.losses import DISCRIMINATOR_LOSSES, GENERATOR_LOSSES
from mdgan.gan.randomness import RandomState
from mdgan.models.check import compares_samples
from mdgan.models.minibatch_discrimination import MinibatchDiscrimination
from mdgan.privacy.accountant import check_installed, epsilon_of
from mdgan.privacy.budget import Budget, Schedule, clients_ledger, open_budget, plan_of
from mdgan.privacy.canaries import most_canaries
from mdgan.privacy.ledger import Content, fingerprint, ledger_folder, read
from mdgan.privacy.per_sample import per_sample_gradients, still
from mdgan.privacy.settings import TELLABLE, PrivacySettings

CLASSES, FEATURES = TELLABLE[:2]
"""What hosts tell outside of training."""
_MIXING: dict[type[nn.Module], str] = {
    nn.modules.batchnorm._BatchNorm: "give --norm group",
    MinibatchDiscrimination: "use an architecture without, such as acgan",
}
"""Layers that judge a sample by the others of its batch, and the way out."""
_NUM_TRIED = 3
_CLOSE = 1e-4


def has_budgets(settings: RunSettings) -> bool:
    """Whether differential privacy is asked for."""
    return isinstance(settings, PrivacySettings) and settings.has_dp


def tells(settings: RunSettings, what: str) -> bool:
    """Whether workers tell something of their data; see `PrivacySettings.tells`."""
    return not isinstance(settings, PrivacySettings) or settings.tells(what)


def rehearsed(settings: RunSettings) -> RunSettings:
    """The settings of a short run on noise, which spends nothing."""
    if not isinstance(settings, PrivacySettings) or not settings.has_dp:
        return settings
    return replace(settings, **{"dp_repeatable": True, "audit_canaries": 0})  # type: ignore[arg-type] # by name


def why_untold(settings: RunSettings) -> str:
    """What a host answers that is asked to describe its data; empty if it describes them."""
    if tells(settings, FEATURES):
        return ""
    return "it tells nothing of its samples that no noise covers (--dp-tell features would)"


def open_budgets(settings: RunSettings, shards: Mapping[int, Shard]) -> dict[int, Budget]:
    """The budgets of workers, by rank; empty without noise.

    Args:
        settings: of the run.
        shards: by rank.

    Raises:
        BadInput: one is too small for a step, or its ledger cannot be had.
    """
    if not isinstance(settings, PrivacySettings) or not settings.hides_samples:
        return {}
    folder, budgets = ledger_folder(settings), dict[int, Budget]()
    try:
        for rank, shard in shards.items():
            if (budget := open_budget(shard, rank, settings, folder)) is not None:
                budgets[rank] = budget
    except BaseException:
        for budget in budgets.values():
            budget.close()
        raise
    return budgets


def check_budgets(settings: RunSettings, shards: Mapping[int, Shard], *, serves: bool) -> list[str]:
    """Checks that those who spend on this machine may take a step; writes nothing.

    Args:
        settings: of the run.
        shards: by rank.
        serves: whether the server is here.

    Returns:
        Warnings, one line each.

    Raises:
        BadInput: they may not, or Opacus is not there.
    """
    if not isinstance(settings, PrivacySettings) or not settings.has_dp:
        return []
    if settings.keeps_ledger and settings.num_roaming is None:
        _check_distinct(settings, shards)
    if not (serves if settings.hides_clients else shards):
        return []
    if settings.dp_noise == 0:
        return ["--dp-noise 0: without noise nothing is private"]
    check_installed(settings.dp_flag)
    warnings = []
    if settings.dp_repeatable:
        warnings.append(
            "--dp-repeatable: the noise comes from --seed, which the server knows, so nothing is "
            "private; for tests and data that are public"
        )
    if settings.hides_clients:
        return warnings + _check_clients(settings)
    return warnings + _check_samples(settings, shards)


def _check_distinct(settings: RunSettings, shards: Mapping[int, Shard]) -> None:
    """Checks that no two workers here hold the same samples."""
    assert isinstance(settings, PrivacySettings)
    if lets_workers_share(settings.partition):
        raise BadInput(
            f"--partition {settings.partition}: with {settings.dp_flag} no two workers may hold "
            "the same sample, which would lose what both spend; use another scheme"
        )
    holders: dict[str, int] = {}
    for rank, shard in shards.items():
        if (other := holders.setdefault(fingerprint(shard), rank)) != rank:
            raise BadInput(
                f"{settings.dp_flag}: ranks {other} and {rank} hold the same samples, which would "
                "lose twice as much; give each worker samples of its own"
            )


def _check_samples(settings: PrivacySettings, shards: Mapping[int, Shard]) -> list[str]:
    warnings = _large_delta(settings.dp_delta or 0.0, shards)
    for rank, shard in shards.items():
        schedule = Schedule.of_samples(rank, len(shard), settings)
        path = ledger_folder(settings) / f"{fingerprint(shard)}.json"
        if settings.dp_repeatable:
            plan_of(settings, schedule, None, path)
            continue
        content = read(path)
        plan = plan_of(settings, schedule, content, path)
        if spent := _spent_before(settings, schedule, content):
            left = plan.until - (content.taken if content else 0)
            warnings.append(f"{spent}; {left:,} steps with noise {plan.noise:.3g} are left")
    return warnings


def _large_delta(delta: float, shards: Mapping[int, Shard]) -> list[str]:
    """A warning if δ lets a worker give away whole samples; it names the one with most of them."""
    many = {rank: len(shard) for rank, shard in shards.items() if delta * len(shard) >= 1}
    if not many:
        return []
    rank = max(many, key=lambda n: many[n])
    others = f" (and {len(many) - 1} more)" if len(many) > 1 else ""
    return [
        f"--dp-delta {delta:g}: with that, rank {rank}{others} may give away one of its "
        f"{many[rank]:,} samples and still keep to it; below {0.1 / many[rank]:.1g} is usual"
    ]


def _check_clients(settings: PrivacySettings) -> list[str]:
    """As `_check_samples`; how many rounds there will be is not known yet."""
    assert isinstance(settings, RunSettings)
    schedule = Schedule.of_clients(settings.dataset, settings.participation, 1)
    path, warnings = clients_ledger(settings, schedule), []
    content = None if settings.dp_repeatable else read(path)
    plan_of(settings, schedule, content, path)
    number = settings.num_roaming or settings.num_workers
    if settings.dp_delta is not None and settings.dp_delta * number >= 1:
        warnings.append(
            f"--dp-delta {settings.dp_delta:g}: with that, the run may give away one of {number:,} "
            f"clients and still keep to it; below {0.1 / number:.1g} is usual"
        )
    if spent := _spent_before(settings, schedule, content):
        warnings.append(f"{spent}; ledger {path}")
    return warnings


def _spent_before(settings: PrivacySettings, schedule: Schedule, content: Content | None) -> str:
    """What the user should know of earlier runs; empty if there were none."""
    if content is None or not content.taken:
        return ""
    delta = settings.dp_delta or 0.0
    spent = epsilon_of(content.charges, delta, settings.dp_accountant)
    return f"{settings.dp_flag}: {schedule.whose} have spent {spent:.3g} before"


def check_discriminator(settings: RunSettings, models: Models) -> None:
    """Checks that D judges each sample by itself, and that its gradient can be taken alone.

    Raises:
        BadInput: it does not, or cannot; the text names the layer.
    """
    if not isinstance(settings, PrivacySettings) or not settings.draws_poisson:
        return
    asked = settings.poisson_flag
    model, source = build_model(models.discriminator, 0), models.source
    for name, layer in model.named_modules():
        for kind, way_out in _MIXING.items():
            if isinstance(layer, kind):
                raise BadInput(
                    f"{asked}: layer {name} ({type(layer).__name__}) of the discriminator of "
                    f"{source} judges a sample by the others of its batch; {way_out}"
                )
    if compares_samples(models):
        raise BadInput(
            f"{asked}: the discriminator of {source} judges a sample by the others of its batch; "
            "replace the layer that does"
        )
    _check_gradients(asked, settings, model, models)
    most = most_canaries(num_weights := num_parameters(model))
    if settings.audit_canaries > most:
        raise BadInput(
            f"--audit-canaries {settings.audit_canaries}: the discriminator of {source} has "
            f"{num_weights:,} weights, enough for {most:,}; give at most that"
        )


def _check_gradients(
    asked: str, settings: PrivacySettings, model: nn.Module, models: Models
) -> None:
    """Takes gradients of single samples: their mean must be that of the batch."""
    rules = Rules(
        _NUM_TRIED,
        1,
        DISCRIMINATOR_LOSSES[settings.discriminator_loss],
        GENERATOR_LOSSES[settings.generator_loss],
        r1=settings.r1 or 0.0,
    )
    num_classes = num_classes_of(model)
    labels = None if num_classes is None else torch.arange(_NUM_TRIED) % num_classes
    with RandomState(0, torch.device("cpu")).in_place():
        real = Samples(torch.rand(_NUM_TRIED, *models.shape) * 2 - 1, labels)
        try:
            with still(model):
                before = {name: buffer.clone() for name, buffer in model.named_buffers()}
                per_sample_gradients(model, rules, real)
                model(real.images, *(() if labels is None else (labels,)))
        except Exception as error:  # the user's own code may raise anything
            raise BadInput(
                f"{asked}: the discriminator of {models.source} has no gradients of single "
                f"samples by torch.func: {type(error).__name__}: {reason_of(error)}"
            ) from error
    for name, buffer in model.named_buffers():
        if not torch.equal(buffer, before[name]):
            raise BadInput(
                f"{asked}: buffer {name} of the discriminator of {models.source} changes with the "
                "samples that it sees, and would travel without noise; replace the layer"
            )
    _check_mean(asked, settings)


def _check_mean(asked: str, settings: PrivacySettings) -> None:
    """The loss of real samples must be a mean over them; a comparing one has no single terms."""
    term = DISCRIMINATOR_LOSSES[settings.discriminator_loss].real
    logits = torch.tensor([-1.0, 0.5, 2.0])
    alone = torch.stack([term(logit.view(1)) for logit in logits]).mean()
    if not torch.allclose(term(logits), alone, atol=_CLOSE):
        raise BadInput(
            f"{asked}: --discriminator-loss {settings.discriminator_loss} compares the samples of "
            "a batch; use one that is a mean over them, such as bce"
        )
