"""The server's share of MD-GAN: it generates, assigns batches, learns from feedback, swaps."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mdgan.engine.parts import Advance, AwaitHosts, Hosts, ServerSurroundings
from mdgan.families.mdgan.aggregation import Aggregation
from mdgan.families.mdgan.aggregation_rules import parse_aggregation
from mdgan.families.mdgan.algorithm import Assignment, GeneratorLearner, assign, resolve_kappa
from mdgan.families.mdgan.messages import batches
from mdgan.families.mdgan.participation import Holders
from mdgan.gan.model_state import part_of, under

_AGGREGATION = "aggregation."
_HOLDERS = "holders"


class _Sent(NamedTuple):
    """The batches of one iteration are with the workers."""

    hosts: Mapping[int, Collection[int]]
    assignment: Mapping[int, Assignment]
    kappa: int


class MDGANServer:
    """The server's side of Algorithm 1 (Hardy et al. 2019), with server-drawn swaps.

    Args:
        learner: G.
        around: what the server lends.
    """

    def __init__(self, learner: GeneratorLearner, around: ServerSurroundings) -> None:
        experiment = around.experiment
        self._learner = learner
        self._around = around
        self._experiment = experiment
        rule = parse_aggregation(experiment.aggregation, experiment.num_workers)
        self._aggregation = Aggregation(rule)
        self._holders = Holders(experiment.participation or 1.0, experiment.seed)
        self._swap_every = 0
        self._ahead: _Sent | None = None

    @property
    def generator(self) -> nn.Module:
        """See `ServerPart`."""
        return self._learner.generator

    def begin(self) -> None:
        """See `ServerPart`."""
        if not self._swap_every:
            self._swap_every = self._experiment.swap_every(self._around.roster.mean_shard_size)

    def advance(self, done: int, await_hosts: AwaitHosts) -> Advance | None:
        """One global iteration."""
        i, span = done + 1, self._around.observer.tracer.span
        traffic = self._around.transport.traffic
        # 1, 2. Generate κ batches and send every worker its two.
        sent = self._ahead or self._send_batches(i, self._chosen(await_hosts()))
        self._ahead = self._send_ahead(i + 1) if self._may_run_ahead(i) else None

        # 3, 4. Workers train and answer.
        self._at(i)
        with span("wait") as waiting:
            before = traffic.received.total()
            answers = self._around.collector.collect(i, sent.hosts)
            waiting.num_bytes = traffic.received.total() - before
        if not answers.losses:  # everybody was lost: the same iteration, with whoever comes
            self._ahead = None
            self._learner.forget()
            return None

        # 5. One optimizer step from all feedback, as a rule after one backward pass.
        with span("aggregate"):
            self._aggregation.update_gradient(
                self._learner,
                answers.feedbacks,
                sent.assignment,
                sent.kappa,
                answers.sums,
                answers.verdicts,
            )
        with span("step"):
            self._learner.step()

        # 6. Swap.
        if self._swap_follows(i):
            with span("swap"):
                moves = self._around.swapping.order(i, self._holders.now)
                self._holders.move(moves)
        return Advance(i, torch.stack([answers.losses[n] for n in sorted(answers.losses)]))

    def rhythm(self) -> tuple[int, int]:
        """See `ServerPart`."""
        return self._around.swapping.num_swaps, self._swap_every

    def go_on(self, num_swaps: int, swap_every: int | None) -> None:
        """See `ServerPart`."""
        self._around.swapping.num_swaps = num_swaps
        self._swap_every = swap_every or 0

    def state(self) -> dict[str, Tensor]:
        """See `ServerPart`."""
        return {
            **self._learner.state(),
            **under(_AGGREGATION, self._aggregation.state()),
            **under(_HOLDERS, self._holders.state()),
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """See `ServerPart`."""
        others = (_AGGREGATION, _HOLDERS)
        self._learner.load_state({n: t for n, t in state.items() if not n.startswith(others)})
        self._aggregation.load_state(part_of(state, _AGGREGATION))
        self._holders.load_state(part_of(state, _HOLDERS))

    def _chosen(self, hosts: Hosts) -> Hosts:
        """Of these workers, those that hold a discriminator."""
        holders = self._holders.among(worker for carried in hosts.values() for worker in carried)
        if holders is None:
            return hosts
        chosen = {host: [n for n in carried if n in holders] for host, carried in hosts.items()}
        return {host: carried for host, carried in chosen.items() if carried}

    def _send_batches(self, i: int, hosts: Hosts) -> _Sent:
        """Steps 1 and 2: X = G(z) in one forward pass, and each host what its workers use of it."""
        tracer = self._around.observer.tracer
        self._at(i)
        workers = sorted(worker for carried in hosts.values() for worker in carried)
        kappa = resolve_kappa(self._experiment.kappa, len(workers))
        with tracer.span("generate"):
            generated = self._learner.generate(kappa)
        assignment = assign(workers, kappa)
        with tracer.span("send") as sending:
            for host, carried in hosts.items():
                message = batches(
                    i,
                    generated,
                    {worker: assignment[worker] for worker in carried},
                    swap_follows=self._swap_follows(i),
                    last=i == self._experiment.iterations,
                    codec=self._around.form.images,
                )
                sending.num_bytes += self._around.transport.send(host, message)
        self._around.roster.owe(hosts, i)
        return _Sent(hosts, assignment, kappa)

    def _at(self, i: int) -> None:
        """Everybody is told that this is iteration i."""
        self._around.roster.iteration = self._around.observer.tracer.iteration = i

    def _swap_follows(self, i: int) -> bool:
        """Nobody swaps after the last iteration."""
        due = self._swap_every > 0 and i % self._swap_every == 0
        return due and i != self._experiment.iterations

    def _may_run_ahead(self, i: int) -> bool:
        """Whether the batches after i may leave now; not past a swap, a checkpoint or the end."""
        stands_between = self._swap_follows(i) or self._around.saving.due(i - 1, i)
        return (
            bool(self._experiment.stale) and not stands_between and i < self._experiment.iterations
        )

    def _send_ahead(self, i: int) -> _Sent | None:
        """Sends batches to those who may still owe an answer to the iteration before."""
        roster = self._around.roster
        hosts = roster.free(besides=i - 1)
        num_live = sum(map(len, roster.taking_part().values()))
        enough = self._around.collector.is_enough(sum(map(len, hosts.values())), num_live)
        return self._send_batches(i, self._chosen(hosts)) if enough else None
