"""The server's share of a federated algorithm: it chooses who trains, and averages their models."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from mdgan.engine.parts import Advance, AwaitHosts, Hosts, ServerSurroundings
from mdgan.engine.server.barrier import Answers
from mdgan.families.federated.fegan import Sampling, check_classes, participant_weights
from mdgan.families.federated.fl_gan import GlobalModels
from mdgan.families.federated.loads import Loads
from mdgan.families.federated.messages import order
from mdgan.families.federated.model_average import average
from mdgan.families.federated.training_load import Load, load_share
from mdgan.gan.model_state import part_of, under

_MODELS, _SAMPLING = "models.", "sampling."


class FederatedServer:
    """The server of FL-GAN and FeGAN (Guerraoui et al. 2020, section 3.2).

    Args:
        models: G and D.
        sampling: chooses who takes part in a round.
        loads: how much each is to train.
        aborts: whether a round that somebody is late for is begun anew with others; otherwise it is
            completed with those who answered.
        around: what the server lends.
    """

    def __init__(
        self,
        models: GlobalModels,
        sampling: Sampling,
        loads: Loads,
        around: ServerSurroundings,
        *,
        aborts: bool,
    ) -> None:
        self._models = models
        self._sampling = sampling
        self._loads = loads
        self._around = around
        self._experiment = around.experiment
        self._aborts = aborts
        self._num_rounds = 0
        self._round_length = 0

    @property
    def generator(self) -> nn.Module:
        """See `ServerPart`."""
        return self._models.generator

    def begin(self) -> None:
        """See `ServerPart`."""
        roster, experiment = self._around.roster, self._experiment
        if not self._round_length:
            self._round_length = experiment.round_length(roster.mean_shard_size)
        assert experiment.sampling is not None
        check_classes(experiment.sampling, experiment.clusters, self._class_counts())

    def advance(self, done: int, await_hosts: AwaitHosts) -> Advance | None:
        """One round."""
        around, span = self._around, self._around.observer.tracer.span
        free, length = await_hosts(), min(self._round_length, self._experiment.iterations - done)
        i = done + length
        around.roster.iteration = around.observer.tracer.iteration = i

        # 1. Choose who takes part, and what each is to do and will weigh.
        counts, number = self._class_counts(), self._num_rounds
        able = {worker: counts[worker] for carried in free.values() for worker in carried}
        num_live = sum(map(len, around.roster.taking_part().values()))
        chosen = self._sampling.choose(number, self._worth_asking(able), num_live)
        full = Load(length, self._experiment.batch_size)
        loads = self._loads.of(chosen, full, around.roster.told())
        weights = self._weights(chosen, loads, full, counts)

        # 2. Send them both models.
        sent = self._models.vector.read()
        with span("send") as sending:
            asked = _of_those(free, chosen)
            for host, workers in asked.items():
                message = order(i, sent, {n: loads[n] for n in workers}, weights)
                sending.num_bytes += around.transport.send(host, message)
        around.roster.owe(asked, i)

        # 3. They train, and answer.
        with span("wait") as waiting:
            before = around.transport.traffic.received.total()
            answers = around.collector.collect(i, asked, weights)
            waiting.num_bytes = around.transport.traffic.received.total() - before
        self._num_rounds += 1
        took_part = sorted(answers.losses)
        aborted = self._aborts and took_part != chosen
        self._record(number, i, loads, took_part, weights, aborted=aborted)
        if aborted or not took_part:
            return None

        # 4. The mean of their models is the next round's.
        with span("aggregate"):
            mean = self._mean(sent, answers, weights)
        with span("step"):  # by which reports know that a round is complete
            self._models.vector.write(mean)
        self._sampling.took_part(number, took_part)
        return Advance(i, torch.stack([answers.losses[worker] for worker in took_part]))

    def rhythm(self) -> tuple[int, int]:
        """See `ServerPart`; rounds are counted in the place of swaps."""
        return self._num_rounds, self._round_length

    def go_on(self, num_swaps: int, swap_every: int | None) -> None:
        """See `ServerPart`."""
        self._num_rounds, self._round_length = num_swaps, swap_every or 0

    def state(self) -> dict[str, Tensor]:
        """See `ServerPart`."""
        return {
            **under(_MODELS, self._models.state()),
            **under(_SAMPLING, self._sampling.state()),
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """See `ServerPart`."""
        self._models.load_state(part_of(state, _MODELS))
        self._sampling.load_state(part_of(state, _SAMPLING))

    def _class_counts(self) -> dict[int, list[int]]:
        """The samples of each class that every live worker holds."""
        held = self._around.roster.holdings()
        return {int(worker): holding["classes"] for worker, holding in held.items()}

    def _worth_asking(self, counts: Mapping[int, list[int]]) -> Mapping[int, list[int]]:
        """Those whose models weigh anything; all of them if nobody's do, which is bad input."""
        if self._experiment.weighting != "samples":
            return counts
        return {worker: held for worker, held in counts.items() if any(held)} or counts

    def _weights(
        self,
        chosen: list[int],
        loads: Mapping[int, Load],
        full: Load,
        counts: Mapping[int, list[int]],
    ) -> dict[int, float]:
        """Of those who take part; they add up to 1."""
        assert self._experiment.weighting is not None
        shares = {worker: load_share(loads[worker], full) for worker in chosen}
        weights = participant_weights(self._experiment.weighting, chosen, counts, shares)
        total = sum(weights.values())
        return {worker: weight / total for worker, weight in weights.items()}

    def _mean(self, sent: Tensor, answers: Answers, weights: Mapping[int, float]) -> Tensor:
        mean = average(answers.feedbacks, answers.sums, weights)
        return mean if self._around.form.feedback.is_exact else sent.double() + mean

    def _record(
        self,
        number: int,
        iteration: int,
        loads: Mapping[int, Load],
        took_part: list[int],
        weights: Mapping[int, float],
        *,
        aborted: bool,
    ) -> None:
        total = sum(weights[worker] for worker in took_part)
        held = self._around.roster.holdings(loads)
        sizes = {n: min(load.batch_size, held[str(n)]["samples"]) for n, load in loads.items()}
        self._around.observer.event(
            "round",
            iteration,
            number=number,
            asked=sorted(loads),
            took_part=took_part,
            weights=[weights[worker] / total for worker in took_part],
            iterations={str(worker): load.iterations for worker, load in loads.items()},
            batch_sizes={str(worker): size for worker, size in sizes.items()},
            aborted=aborted,
        )


def _of_those(hosts: Hosts, chosen: list[int]) -> dict[int, list[int]]:
    """The hosts that carry any of the chosen, with these."""
    wanted = set(chosen)
    shares = {host: [n for n in workers if n in wanted] for host, workers in hosts.items()}
    return {host: workers for host, workers in shares.items() if workers}
