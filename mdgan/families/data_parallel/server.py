"""The server's share of data-parallel training: it averages gradients and takes the steps."""

from collections.abc import Collection, Mapping, Sequence

from torch import Tensor, nn

from mdgan.engine.answers import AnswerForm, Answers
from mdgan.engine.parts import Advance, ServerPart
from mdgan.engine.server.barrier import Hosts, workers_of
from mdgan.engine.server.engine import Engine
from mdgan.families.data_parallel.messages import KINDS, Share, gradient_form, train
from mdgan.families.data_parallel.replica import (
    BUFFERS,
    DISCRIMINATOR,
    GENERATOR,
    Reduction,
    ReferenceReplica,
    reductions,
)
from mdgan.families.data_parallel.settings import DataParallelSettings
from mdgan.gan.weighted_mean import average

_NUM_REDUCED = "num_reduced"
_ALL = (GENERATOR, DISCRIMINATOR, BUFFERS)


class DataParallelServer(ServerPart):
    """Keeps the reference replica, and reduces gradients by a star with itself in the middle.

    Args:
        replica: both networks and their optimizers.
        settings: of the run.
    """

    def __init__(self, replica: ReferenceReplica, settings: DataParallelSettings) -> None:
        self._forms = {
            reduction: gradient_form(reduction, replica.vector(reduction).shape)
            for reduction in KINDS.values()
        }
        self.form = next(iter(self._forms.values()))
        self.device = replica.device
        self._replica = replica
        self._settings = settings
        self._scaling = settings.scaling()
        self._num_reduced = 0
        self._sent = _Sent(replica)

    @property
    def forms(self) -> Sequence[AnswerForm]:
        """See `ServerPart`."""
        return tuple(self._forms.values())

    @property
    def generator(self) -> nn.Module:
        """G."""
        return self._replica.models[GENERATOR]

    def begin_with(
        self, generator: Mapping[str, Tensor], discriminators: Mapping[int, Mapping[str, Tensor]]
    ) -> Mapping[int, Mapping[str, Tensor]]:
        """Both networks begin there; of several discriminators, with the first."""
        if discriminators:
            first = discriminators[min(discriminators)]
            self._replica.models[DISCRIMINATOR].load_state_dict(first)
        return super().begin_with(generator, discriminators)

    def begin(self, engine: Engine) -> None:
        """Says once what becomes of data that are not shared out."""
        if not self._settings.partition.divides and engine.members.iteration == 0:
            engine.observer.note(
                "--partition none: every worker trains on its own data, which stay with it; the "
                "server sees gradients of them"
            )

    def advance(self, done: int, engine: Engine) -> Advance | None:
        """One iteration."""
        hosts, i = engine.await_hosts(), done + 1
        lag = self._settings.lag_at(i)
        engine.at(i)

        # 1. Share out the samples of the iteration.
        with engine.span("scale"):
            shares = self._shares(workers_of(hosts), DISCRIMINATOR)
            self._replica.at(
                i, self._rate_factors(dict.fromkeys((DISCRIMINATOR, GENERATOR), shares))
            )

        # 2. Average each gradient as soon as all workers have found it, and step with the mean.
        for reduction in reductions(lag, self._settings.local_steps)[self._num_reduced :]:
            answers = self._ask(i, hosts, reduction, shares, lag, engine)
            if not answers.losses:  # goes on with this reduction once there are workers again
                return None
            with engine.span("aggregate"):
                weights = {worker: share.weight for worker, share in shares.items()}
                mean = average(answers.singles, answers.sums, weights)
                self._replica.put(reduction, mean)
            with engine.span("step" if reduction.last else "local step"):
                self._replica.step(reduction)
            self._sent.note_step(reduction)
            self._num_reduced += 1
        self._num_reduced = 0
        return Advance(i, answers.mean_losses(), sorted(answers.losses))

    def progress(self) -> dict[str, int]:
        """How many gradients of the next iteration are averaged already."""
        return {_NUM_REDUCED: self._num_reduced}

    def go_on(self, progress: Mapping[str, int], changed: Collection[str], *, ended: bool) -> None:
        """Goes on within an iteration, if all workers were lost within it."""
        del changed, ended
        self._num_reduced = progress.get(_NUM_REDUCED, 0)

    def state(self) -> dict[str, Tensor]:
        """See `ServerPart`."""
        return self._replica.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """See `ServerPart`."""
        self._replica.load_state(state)

    def settle(self, engine: Engine) -> None:
        """Hosts that are gone have nothing any more when they come back."""
        self._sent.keep_only(engine.members.hosts())

    def _shares(self, workers: Sequence[int], network: str) -> dict[int, Share]:
        """The shares of workers, which weigh as much as a network's samples."""
        sizes = self._scaling.batch_sizes(workers)
        total = sum(size.of(network) for size in sizes.values())
        return {n: Share(size, size.of(network) / total) for n, size in sizes.items()}

    def _rate_factors(self, shares: Mapping[str, Mapping[int, Share]]) -> dict[str, float]:
        """What learning rates are multiplied by: network → shares of those that train it."""
        return {
            network: self._scaling.rate_factor(
                sum(share.batch_sizes.of(network) for share in group.values())
            )
            for network, group in shares.items()
        }

    def _ask(
        self,
        i: int,
        hosts: Hosts,
        reduction: Reduction,
        shares: Mapping[int, Share],
        lag: int,
        engine: Engine,
    ) -> Answers:
        """Asks the hosts that have kept up in this iteration for their share of a reduction."""
        free = engine.members.free()
        here = {host: free.get(host, ()) for host in hosts}
        asked = {host: [n for n in carried if n in shares] for host, carried in here.items()}
        asked = {host: carried for host, carried in asked.items() if carried}
        engine.ask(
            i,
            asked,
            lambda host: train(
                i,
                reduction,
                {n: shares[n] for n in asked[host]},
                self._sent.missing(host, _ALL),
                lag,
            ),
        )
        return engine.barrier.collect(
            i, asked, {n: share.weight for n, share in shares.items()}, self._forms[reduction]
        )


class _Sent:
    """Which weights every host has, so that none is sent twice.

    Args:
        replica: whose weights they are.
    """

    def __init__(self, replica: ReferenceReplica) -> None:
        self._replica = replica
        self._has: dict[int, set[str]] = {}
        self._read: dict[str, Tensor] = {}

    def missing(self, host: int, names: Sequence[str]) -> dict[str, Tensor]:
        """The weights of some names that a host lacks; from here on it has them."""
        has = self._has.setdefault(host, set())
        lacking = [name for name in names if name not in has]
        has.update(lacking)
        for name in lacking:
            if name not in self._read:
                self._read[name] = self._replica.weights(name)
        return {name: self._read[name] for name in lacking}

    def note_step(self, reduction: Reduction) -> None:
        """The weights of the networks in a reduction are others now."""
        changed = {*reduction.networks, *([BUFFERS] if reduction.last else [])}
        for name in changed:
            self._read.pop(name, None)
        for has in self._has.values():
            has -= changed

    def keep_only(self, hosts: Collection[int]) -> None:
        """Forgets hosts that are gone."""
        self._has = {host: has for host, has in self._has.items() if host in hosts}
