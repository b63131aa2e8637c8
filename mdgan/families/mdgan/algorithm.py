"""MD-GAN: Algorithm 1 of Hardy et al. 2019, line by line, for the server and for a worker.

    SERVER, rank 0: owns G with weights w         WORKER n: owns D_n with weights θ_n, and its data
    ─────────────────────────────────────         ─────────────────────────────────────────────────
    1. X = G(z), κ batches of b samples
    2. X^(g) = X^(n mod κ),                ──►    3. L local steps of D_n, each on
       X^(d) = X^((n+1) mod κ)                       J_disc = Ã(own samples) + B̃(X^(d))
    5. C^(j) = 1/N Σ F_n : n judged j      ◄──    4. F_n = ∂J_gen(D_n(X^(g))) / ∂X^(g)
       ∂w = ∂X/∂w · C, one backward pass;
       one step of the optimizer of G
    6. every S iterations pairs swap D     ◄─►    6. D_n ← the D of its partner

`server_iteration` and `WorkerSide.iteration` carry out these steps. The server generates m batches:
κ, or more with `--step-samples`. Both sides minimize: J_disc is minus the paper's. The server draws
the pairs (Darmanger and Gombas 2024, section 5.3). `variants/` holds the iterations of other flags.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from typing_extensions import override

from mdgan.engine.answers import Answers
from mdgan.engine.parts import Advance
from mdgan.engine.server.engine import Engine
from mdgan.engine.server.hosts import Hosts, workers_of
from mdgan.engine.stages.contract import AskedHosts
from mdgan.families.mdgan.batches import BatchPlan
from mdgan.gan.arithmetic import finite_or_zero
from mdgan.gan.discriminator_learner import DiscriminatorLearner, Stage, unobserved
from mdgan.gan.exact_sum import PartialSum, put_together
from mdgan.gan.generator import Generator
from mdgan.gan.labels import Samples
from mdgan.gan.optimizer_settings import Policy
from mdgan.gan.randomness import RandomState

if TYPE_CHECKING:
    from mdgan.families.mdgan.server import MDGANServer


class Assignment(NamedTuple):
    """The numbers of two batches: the worker judges one, X^(g), and trains on the other, X^(d)."""

    judge: int
    train: int


Assignments = Mapping[int, Assignment]  # by worker
Feedbacks = Mapping[int, Tensor]  # F_n by worker, [b, C, H, W] each


def assign(workers: Sequence[int], kappa: int) -> dict[int, Assignment]:
    """Gives each of the live workers, in increasing order, its two batches (section IV-B1)."""
    return {worker: Assignment(n % kappa, (n + 1) % kappa) for n, worker in enumerate(workers)}


# ── The server ──────────────────────────────────────────────────────────────────────────────────


class Sent(NamedTuple):
    """The batches X, [m, b, C, H, W], that the server has sent, and which worker got which."""

    plan: BatchPlan
    assignment: Assignments
    generated: Tensor
    asked: AskedHosts  # the hosts whose answers the server awaits


def server_iteration(i: int, server: "MDGANServer", engine: Engine) -> Advance | None:
    """One global iteration; None if the server can use no answer, and must repeat the iteration."""
    hosts = server.judges(server.await_hosts(i, engine))
    sent = ask(i, server, hosts, engine)
    answers = server.path.collect(i, sent.asked, engine)  # 3, 4: `WorkerSide.iteration` of each
    return finish(i, server, sent, answers, engine)


def ask(i: int, server: "MDGANServer", hosts: Hosts, engine: Engine) -> Sent:
    """Steps 1 and 2: the server generates the batches, and sends two of κ to every worker."""
    engine.at(i)
    hosts = server.hosts_to_ask(hosts, engine)  # all hosts, unless they mask their answers
    plan = server.plan(hosts, engine)
    with engine.span("generate"):
        batches = server.learner.generate(plan.generated)
    assignment = assign(workers_of(hosts), plan.judged)
    asked = server.send(i, batches, assignment, hosts, engine)
    return Sent(plan, assignment, batches.images, asked=asked)


def finish(
    i: int, server: "MDGANServer", sent: Sent, answers: Answers, engine: Engine
) -> Advance | None:
    """Steps 5 and 6: G learns from the feedback of all but suspected attackers; pairs may swap."""
    if not answers.losses:
        return server.without_answers(i, answers)
    judged, swaps = sent.asked.groups, server.swap_follows(i)
    scores = server.suspects.score(sent.generated, judged, answers, engine, swap_follows=swaps)
    with engine.span("aggregate"):
        if server.aggregation.is_mean:
            gradient = mean_feedback(
                answers.singles, sent.assignment, sent.plan.generated, sums=answers.sums
            )
            server.learner.backward(gradient)
        else:
            server.follow_rule(sent, answers)  # another rule than the paper's: `--aggregation`
    with engine.span("step"):
        server.learner.at(i)
        server.learner.step()
    if swaps:
        server.swap(i, engine)
    return Advance(i, answers.mean_losses(), sorted(answers.losses), measures=scores)


def mean_feedback(
    feedbacks: Feedbacks, assignment: Assignments, num_batches: int, sums: Sequence[PartialSum] = ()
) -> Tensor:
    """C^(j) = (1/N) Σ_{n : n judged j} F_n, [m, b, C, H, W]: the gradient of the mean loss in X.

    N workers answered. Its bits depend neither on the order in which answers arrive nor on which
    hosts add up the feedback of their workers.

    Args:
        num_batches: m, how many batches the server generated; workers judged κ of these.
        sums: of the feedback of several workers on one batch, as their hosts sent them.
    """
    example = next(iter(feedbacks.values())) if feedbacks else sums[0].total.float()
    num_answers = len(feedbacks) + sum(len(part.workers) for part in sums)
    total = example.new_zeros((num_batches, *example.shape))
    for batch in range(num_batches):
        feedback = put_together(
            (feedbacks[n] for n in sorted(feedbacks) if assignment[n].judge == batch),
            (part.total for part in sums if assignment[part.workers[0]].judge == batch),
        )
        if feedback is not None:
            total[batch] = feedback.div_(num_answers)
    return total


class Graph(NamedTuple):
    """X, [m, b, C, H, W], with the autograd graph that leads to w, and that w."""

    generated: Tensor
    weights: Sequence[Tensor]


class GeneratorLearner(Generator):
    """G at the server: it generates X, and learns from the gradient of the loss in X."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        z_dim: int,
        batch_size: int,
        noise: torch.Generator,
        random_state: RandomState,
        loss_scale: float = 1.0,
        policy: Policy | None = None,
    ) -> None:
        super().__init__(
            model, optimizer, z_dim=z_dim, noise=noise, random_state=random_state, policy=policy
        )
        self._batch_size = batch_size
        self._loss_scale = loss_scale
        self._graph: Graph | None = None

    def generate(self, num_batches: int) -> Samples:
        """X = G(z), z ~ N(0, I), [m, b, C, H, W], by one forward pass; keeps its graph."""
        samples = self.draw(num_batches * self._batch_size)
        self._graph = Graph(self.in_batches(samples.images), self.parameters)
        return self.without_graph(samples)

    def backward(self, output_gradient: Tensor) -> None:
        """∂w = ∂X/∂w · C, by one backward pass whatever N is; `step` comes next."""
        self.put_gradients(self.gradients(output_gradient))

    def gradients(self, output_gradient: Tensor, *, keep_graph: bool = False) -> list[Tensor]:
        """Returns ∂X/∂w · C, one tensor for each parameter; `output_gradient` is C of step 5."""
        graph = self.take_graph(keep=keep_graph)
        gradients = torch.autograd.grad(
            graph.generated,
            graph.weights,
            grad_outputs=output_gradient * self._loss_scale,
            retain_graph=keep_graph,
        )
        finite_or_zero(gradients, self._loss_scale)
        return list(gradients)

    def take_graph(self, *, keep: bool) -> Graph:
        """Returns the graph of the batches that the workers judged, and drops it unless `keep`."""
        assert self._graph is not None, "feedback comes after generate()"
        graph = self._graph
        if not keep:
            self.forget()
        return graph

    def forget(self) -> None:
        """Drops the generated batches; G learns nothing from them."""
        self._graph = None

    def in_batches(self, samples: Tensor) -> Tensor:
        """Reshapes [m·b, …] to [m, b, …]."""
        return samples.view(-1, self._batch_size, *samples.shape[1:])

    def without_graph(self, samples: Samples) -> Samples:
        """The samples as the server sends them: in batches, [m, b, …], without their graph."""
        labels = None if samples.labels is None else self.in_batches(samples.labels)
        return Samples(self.in_batches(samples.images).detach(), labels)

    @override
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        super().load_state(state)
        self.forget()


# ── A worker ────────────────────────────────────────────────────────────────────────────────────


class Judgement(NamedTuple):
    """How D_n judges X^(g): F_n, [b, C, H, W]; J_gen, a scalar; and the logits D_n(x), [b]."""

    feedback: Tensor
    loss: Tensor
    outputs: Tensor


class WorkerSide(DiscriminatorLearner):
    """D_n with its private data. `learn` takes L steps of the optimizer of θ_n on J_disc."""

    def iteration(
        self, train: Samples, judged: Samples, stage: Stage = unobserved
    ) -> tuple[Tensor, Judgement]:
        """Steps 3 and 4 (WORKER, lines 4-9): D_n learns from X^(d), and then judges X^(g).

        Returns J_disc of the last local step, before D_n takes it, and the judgement.
        """
        loss = self.learn(train, stage)
        with stage("feedback"):
            return loss, self.feedback(judged)

    def feedback(self, judged: Samples) -> Judgement:
        """F_n = ∂J_gen(D_n(X^(g)))/∂X^(g) (line 9); computes no gradient in θ_n."""
        images = judged.images.detach().requires_grad_()
        with self.random_state.in_place():
            verdict = self.judge(judged.of(images))
            logits = verdict.logits  # [b], or [b, 1] and the like
            loss = self.rules.loss(self.rules.generator_loss, verdict, judged.labels)
            (gradient,) = torch.autograd.grad(self.rules.scaled(loss), images)
        return Judgement(gradient / self.rules.loss_scale, loss.detach(), logits.detach().flatten())
