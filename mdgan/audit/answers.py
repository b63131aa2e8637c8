"""Replays single answers of a worker from its stored state, and attacks the batches behind them.

Shapes are written [b, C, H, W]: b samples.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from msgspec import structs
from torch import Tensor

from mdgan.audit import inversion
from mdgan.audit.inversion import Attacked, Evidence, Explains
from mdgan.audit.separation import separate
from mdgan.audit.target import FEWEST_HELD_OUT, Target
from mdgan.data.shard import Shard
from mdgan.families import registry
from mdgan.gan.build import make_discriminator_learner
from mdgan.gan.discriminator_learner import DiscriminatorLearner
from mdgan.gan.labels import Samples
from mdgan.gan.randomness import derive_seed, generator_for
from mdgan.gan.sampling import draw_samples
from mdgan.records.audit import Inversion
from mdgan.records.values import chosen_evenly

UPDATE, FEEDBACK = "update", "feedback"
_SMALL = (1, 4)
_CANDIDATES = 128
_MOST_ANSWERS, _LEAST_IN_BATCHES = 16, 32
_MOST_NUMBERS = 1 << 26
_SHOWN = 8
_LEAST_INVERTED = 4


class _RememberingShard(Shard):
    """A shard that remembers the positions of the samples that it has drawn."""

    places = torch.empty(0, dtype=torch.int64)
    ever: set[int]

    @property
    def drawn(self) -> Samples:
        return self.taken(self.places)

    def next_batch(self, batch_size: int) -> Samples:
        self.places = self.next_positions(batch_size)
        self.ever.update(self.places.tolist())
        return self.drawn


class Answer(NamedTuple):
    """An answer of a worker, and the real batch behind it, [b, C, H, W]."""

    real: Samples
    seen: Evidence


class ReplayedWorker:
    """A worker that goes on from the end of its run."""

    def __init__(self, target: Target, worker: int) -> None:
        settings = target.settings
        self.target = target
        # The worker whose samples it has. It also has that worker's discriminator, or with 0 the
        # server's and the samples of the first worker.
        self.worker = worker or next(iter(target.holdings))
        random = generator_for(settings.training.seed, "shard", self.worker)
        self._shard = _RememberingShard(*target.holdings[self.worker], random)
        self.learner = make_discriminator_learner(
            DiscriminatorLearner,
            worker,
            target.trained.models.discriminator,
            settings=settings.training.but(compile=False, channels_last=False),
            batches=self._shard,
            device=torch.device("cpu"),
        )
        self.learner.discriminator.model.load_state_dict(dict(target.discriminators[worker]))

    def num_answers(self, batch_size: int) -> int:
        """How many answers to attack: enough samples, at most half the shard, as memory allows."""
        self._shard.ever = set()
        weights = sum(p.numel() for p in self.learner.discriminator.parameters)
        of_shard = len(self._shard) // 2 // batch_size
        wanted = min(_MOST_ANSWERS, -(-_LEAST_IN_BATCHES // batch_size))
        return max(1, min(wanted, of_shard, _MOST_NUMBERS // weights))

    def strangers(self) -> Samples:
        """Samples of the shard that were in no batch; held-out ones if all were."""
        unseen = [place for place in range(len(self._shard)) if place not in self._shard.ever]
        if unseen:
            return self._shard.taken(torch.tensor(chosen_evenly(unseen, _CANDIDATES)))
        return self.target.held_out[list(range(FEWEST_HELD_OUT))]

    def attacked(self) -> Attacked:
        """D as an attacker knows it that got it before the step."""
        model = self.target.trained.models.discriminator()
        model.load_state_dict(self.learner.discriminator.model.state_dict())
        rules = self.learner.rules
        terms = rules.discriminator_loss
        judged = rules.generator_loss
        weight = rules.class_weight
        return Attacked(model.eval(), terms.real, terms.fake, judged=judged, class_weight=weight)

    def update(self, batch_size: int) -> Answer:
        """The gradient of D on a real batch, with dropout and augmentation as in training."""
        learner, rules = self.learner, self.learner.rules
        learner.rules = replace(rules, batch_size=batch_size)
        real = learner.draw_real()
        learner.rules = rules
        with learner.random_state.in_place():
            verdict = learner.judge(real)
            loss = rules.loss(rules.discriminator_loss.real, verdict, real.labels)
            of = [p for p in learner.discriminator.parameters if p.requires_grad]
            seen = torch.autograd.grad(loss, of, materialize_grads=True)
        return Answer(self._shard.drawn, list(seen))

    def feedback(self, batch_size: int, judged: Samples, fake: Samples) -> tuple[Answer, Tensor]:
        """The feedback on X^(g) after D has learnt from a real batch and generated samples.

        Returns:
            How the feedback differs from that of D before the step, which D is set back to; and
            the feedback itself, [b, C, H, W].
        """
        learner, rules = self.learner, self.learner.rules
        before = learner.discriminator.state()
        learner.rules = replace(rules, batch_size=batch_size, local_steps=1)
        learner.learn(fake)
        learner.rules = rules
        images = judged.images.detach().requires_grad_()
        with learner.random_state.in_place():
            verdict = learner.judge(judged.of(images))
            loss = rules.loss(rules.generator_loss, verdict, judged.labels)
            (feedback,) = torch.autograd.grad(loss, images)
        learner.discriminator.load_state(before)
        of_old = inversion.feedback_of(self.attacked(), judged)
        return Answer(self._shard.drawn, [feedback - of_old]), feedback


def invert_all(
    target: Target, seed: int, steps: int, left_out: dict[str, str], tell: Callable[[str], None]
) -> Iterator[tuple[Inversion, Tensor]]:
    """Attacks single answers of a run's first worker whose discriminator is here.

    Yields:
        The numbers of an attack; and n ≤ 8 real samples, then their reconstructions, [2 n, …].
    """
    worker = next((n for n in target.discriminators if n in target.holdings), None)
    if worker is None and 0 not in target.discriminators:
        return
    played = ReplayedWorker(target, worker or 0)
    sizes = sorted({*_SMALL, target.settings.num_reals})
    for size in sizes:
        tell(f"inverting updates of batches of {size}")
        answers = [played.update(size) for _ in range(played.num_answers(size))]
        explain = inversion.of_update(played.attacked())
        yield _attack(UPDATE, played, explain, answers=answers, seed=seed, steps=steps)
    if FEEDBACK not in registry.algorithm(target.settings.algorithm).host_phases:
        left_out[FEEDBACK] = f"workers of {target.settings.algorithm} send none"
        return
    try:
        played.learner.load_state(target.states[worker or 0])
    except (KeyError, RuntimeError):
        left_out[FEEDBACK] = f"the checkpoint has no whole state of worker {worker}"
        return
    for size in sizes:
        tell(f"inverting feedback after batches of {size}")
        yield _of_feedback(played, size, seed, steps=steps)


def _of_feedback(
    played: ReplayedWorker, size: int, seed: int, steps: int
) -> tuple[Inversion, Tensor]:
    target = played.target
    batch_size = target.settings.training.batch_size
    judged = _generated(target, batch_size, derive_seed(seed, "judged"))
    learnt = target.settings.num_fakes
    num_fakes = learnt if learnt > batch_size else size
    fake = _generated(target, num_fakes, derive_seed(seed, "fake"))
    both = [played.feedback(size, judged, fake) for _ in range(played.num_answers(size))]
    rate = target.settings.training.policy("discriminator").learning_rate
    explain = inversion.of_feedback(played.attacked(), fake, judged, rate=rate)
    answers = [answer for answer, _ in both]
    attack, shown = _attack(FEEDBACK, played, explain, answers=answers, seed=seed, steps=steps)
    toward = torch.stack([feedback for _, feedback in both]).mean(0)
    candidates = target.samples_of(played.worker), target.held_out
    blind = separate(*(_along(toward, judged, samples) for samples in candidates))
    return structs.replace(attack, blind=blind), shown


def _attack(
    kind: str,
    played: ReplayedWorker,
    explain: Explains,
    answers: Sequence[Answer],
    seed: int,
    steps: int,
) -> tuple[Inversion, Tensor]:
    size, strangers = len(answers[0].real), played.strangers()
    random = generator_for(seed, kind, size)
    of_batches, of_strangers = look_up(explain, answers, strangers)
    originals, made, psnr, control = [], [], [], []
    for answer in answers[: max(1, _LEAST_INVERTED // size)]:
        images = inversion.reconstruct(
            explain, answer.seen, answer.real, random=random, steps=steps
        )
        of_each, places = inversion.likeness(answer.real.images, images)
        psnr.append(of_each)
        control.append(inversion.likeness(strangers.images[:size], images)[0])
        originals.append(answer.real.images)
        made.append(images[places])
    before, after, of_all = torch.cat(originals), torch.cat(made), torch.cat(psnr)
    shown = of_all.argsort(descending=True, stable=True)[:_SHOWN]
    inverted = Inversion(
        answer=kind,
        batch_size=size,
        found=separate(of_batches, of_strangers),
        psnr=float(of_all.mean()),
        ssim=inversion.mean_ssim(before, after),
        best_psnr=float(of_all.max()),
        control_psnr=float(torch.cat(control).mean()),
    )
    return inverted, torch.cat([before[shown], after[shown]])


def look_up(
    explain: Explains, answers: Sequence[Answer], strangers: Samples
) -> tuple[Tensor, Tensor]:
    """Alignments of each sample with its batch's answer, and of strangers with all answers."""
    of_batches = [
        inversion.alignment(explain(answer.real[place : place + 1]), answer.seen)
        for answer in answers
        for place in range(len(answer.real))
    ]
    of_strangers = []
    for place in range(len(strangers)):
        one = explain(strangers[place : place + 1])
        of_strangers += [inversion.alignment(one, answer.seen) for answer in answers]
    return torch.stack(of_batches).detach(), torch.stack(of_strangers).detach()


def _along(toward: Tensor, judged: Samples, candidates: Samples) -> Tensor:
    """The mean cosine between −F, for feedback F on X^(g), and the way to each candidate, [n]."""
    away = candidates.images.flatten(1)[:, None] - judged.images.flatten(1)[None]
    return torch.cosine_similarity(away, -toward.flatten(1)[None], dim=2).mean(1)


def _generated(target: Target, number: int, seed: int) -> Samples:
    trained = target.trained
    labels = trained.labels(number)
    z_dim = trained.models.z_dim
    images = draw_samples(trained.generator, number, z_dim, seed=seed, labels=labels)
    return Samples(images, labels)
