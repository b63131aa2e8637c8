"""The server's share of MD-GAN: one iteration of Algorithm 1 (Hardy et al. 2019)."""

import logging
from collections.abc import Collection, Mapping
from typing import NamedTuple

from torch import Tensor, nn

from mdgan.engine.answers import AnswerForm
from mdgan.engine.parts import Advance, ServerHandler, ServerPart
from mdgan.engine.server.barrier import Hosts
from mdgan.engine.server.engine import Engine
from mdgan.engine.server.secure_sums import (
    SumsAsked,
    check_hosts,
    collect_sums,
    least_parties,
    sums_to_ask,
)
from mdgan.families.mdgan.aggregation import Aggregation
from mdgan.families.mdgan.algorithm import Assignment, GeneratorLearner, assign
from mdgan.families.mdgan.free_riders import FreeRiders
from mdgan.families.mdgan.messages import COPIED, SWAPPED, VERDICTS, batches
from mdgan.families.mdgan.participation import Holders
from mdgan.families.mdgan.server_swaps import ServerSwaps
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.gan.codecs import Codec
from mdgan.gan.labels import label_counts
from mdgan.gan.local_gan import resolve_kappa
from mdgan.gan.model_state import part_of, under

_log = logging.getLogger(__name__)

_AGGREGATION = "aggregation."
_HOLDERS = "holders"
_RHYTHM = {
    *("swap_interval", "swap_epochs", "batch_size", "partition", "world_size", "dataset"),
    "data_dir",
}
"""The settings that decide after how many iterations swaps come."""


class Sent(NamedTuple):
    """Which workers have got batches in an iteration, which ones, and all of them."""

    hosts: Hosts
    assignment: Mapping[int, Assignment]
    kappa: int
    generated: Tensor
    sums: SumsAsked | None = None


class MDGANServer(ServerPart):
    """The server's side of Algorithm 1 (Hardy et al. 2019), with server-drawn swaps.

    Args:
        learner: G.
        settings: of the run.
        form: how feedback travels.
        num_weights: |θ|; decides how often discriminators are swapped if workers hold different
            classes.
    """

    copied = COPIED

    def __init__(
        self,
        learner: GeneratorLearner,
        settings: MDGANSettings,
        form: AnswerForm,
        num_weights: int = 0,
    ) -> None:
        self.form = form
        self.device = learner.device
        self._learner = learner
        self._settings = settings
        self._num_weights = num_weights
        self._images = Codec.of(settings.wire.images)
        self._aggregation = Aggregation(settings.aggregation)
        self._holders = Holders(settings.participation, settings.training.seed)
        self._swaps = ServerSwaps(settings.swaps.swap, settings.training.seed)
        self._free_riders = FreeRiders(settings.training.batch_size, self._swaps.handovers)
        self._told_of: set[int] = set()
        self._swap_every = 0
        self._left_out_swap = False
        self._ahead: Sent | None = None

    @property
    def generator(self) -> nn.Module:
        """G."""
        return self._learner.model

    def begin_with(
        self, generator: Mapping[str, Tensor], discriminators: Mapping[int, Mapping[str, Tensor]]
    ) -> Mapping[int, Mapping[str, Tensor]]:
        """Every worker begins with its own discriminator, or with the first if it has none."""
        super().begin_with(generator, discriminators)
        if not discriminators:
            return {}
        first = discriminators[min(discriminators)]
        workers = range(1, self._settings.num_workers + 1)
        return {n: under(COPIED, discriminators.get(n, first)) for n in workers}

    def begin(self, engine: Engine) -> None:
        """Works out how often discriminators are swapped."""
        check_hosts(engine.members, self.form)
        if self._swap_every:
            return
        held = engine.members.holdings().values()
        size, counts = engine.members.mean_shard_size, [known["classes"] for known in held]
        self._swap_every = self._settings.swap_every(size, counts, self._num_weights)
        epoch = self._settings.swap_every(size)
        if self._swap_every != epoch:
            _log.info(
                "workers hold different classes: discriminators are swapped every %d iteration(s) "
                "instead of every %d (--swap-epochs 1)",
                self._swap_every,
                epoch,
            )

    def advance(self, done: int, engine: Engine) -> Advance | None:
        """One global iteration."""
        i = done + 1
        # 1, 2. Generate κ batches and send every worker its two.
        sent = self._ahead or self._send_batches(i, engine, self._chosen(self._await(i, engine)))
        self._ahead = self._send_ahead(i + 1, engine) if self._may_run_ahead(i, engine) else None

        # 3, 4. Workers train and answer.
        engine.at(i)
        if sent.sums is None:
            answers = engine.barrier.collect(i, sent.hosts)
        else:
            answers = collect_sums(engine, i, sent.sums, self.form)
        if not answers.losses:  # all workers were lost: the same iteration again, with newcomers
            self._ahead = None
            self._learner.forget()
            return None

        # 5. One optimizer step from all feedback; most rules need a single backward pass.
        with engine.span("aggregate"):
            self._aggregation.update_gradient(
                self._learner,
                answers.singles,
                sent.assignment,
                sent.kappa,
                answers.sums,
                answers.beside.get(VERDICTS, {}),
            )
        with engine.span("step"):
            self._learner.at(i)
            self._learner.step()

        # 6. Swap.
        self._look_for_free_riders(i, sent, answers.singles, engine)
        if self._swap_follows(i):
            self._swap(i, engine)
        riding = self._free_riders.scores()
        return Advance(i, answers.mean_losses(), sorted(answers.losses), riding=riding)

    def handlers(self) -> Mapping[str, ServerHandler]:
        """See `ServerPart`."""
        return {SWAPPED: self._swaps.note}

    def settle(self, engine: Engine) -> None:
        """Does not wait for reports of swaps from hosts that are gone."""
        self._swaps.settle(engine)

    def progress(self) -> dict[str, int]:
        """How many swaps were ordered, and the iterations between two."""
        return {"num_swaps": self._swaps.num_swaps, "swap_every": self._swap_every}

    def go_on(self, progress: Mapping[str, int], changed: Collection[str], *, ended: bool) -> None:
        """Swaps keep their rhythm, unless the settings that decide it have changed."""
        self._left_out_swap = ended  # a longer run would have had one after that iteration
        self._swaps.num_swaps = progress["num_swaps"]
        self._swap_every = 0 if _RHYTHM.intersection(changed) else progress["swap_every"]

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
        """Those of the workers that hold a discriminator, by host."""
        holders = self._holders.among(worker for carried in hosts.values() for worker in carried)
        if holders is None:
            return hosts
        chosen = {host: [n for n in carried if n in holders] for host, carried in hosts.items()}
        return {host: carried for host, carried in chosen.items() if carried}

    def _await(self, i: int, engine: Engine) -> Hosts:
        """The hosts that take part in iteration i, none of which owes an answer."""
        hosts = engine.await_hosts()
        if self._left_out_swap and self._swap_follows(i - 1):
            self._swap(i - 1, engine)
        self._left_out_swap = False
        return hosts

    def _swap(self, i: int, engine: Engine) -> None:
        with engine.span("swap"):
            moves = self._swaps.order(i, engine, self._holders.now)
            self._holders.move(moves)
            self._free_riders.swapped(moves)

    def _look_for_free_riders(
        self, i: int, sent: Sent, feedbacks: Mapping[int, Tensor], engine: Engine
    ) -> None:
        """Scores workers by their answers, and shuts out free riders if the user wants that."""
        swap_follows = self._swap_follows(i)
        self._free_riders.look(
            sent.generated, sent.assignment, feedbacks, swap_follows=swap_follows
        )
        for worker in self._free_riders.found() - self._told_of:
            self._told_of.add(worker)
            reason = self._free_riders.why(worker)
            if self._settings.shut_out_free_riders:
                engine.desk.shut_out(worker, f"a free rider: {reason}")
            else:
                engine.observer.note(
                    f"rank {worker} looks like a free rider: {reason}; with "
                    "--shut-out-free-riders it would be shut out"
                )

    def _send_batches(self, i: int, engine: Engine, hosts: Hosts) -> Sent:
        """Steps 1 and 2: X = G(z) in one forward pass, and each host what its workers use of it."""
        engine.at(i)
        workers = sorted(worker for carried in hosts.values() for worker in carried)
        kappa = resolve_kappa(self._settings.kappa, len(workers))
        if self.form.steps:  # each sum is of as many hosts as it takes
            kappa = max(1, min(kappa, len(hosts) // least_parties(engine.members)))
        if self._learner.label_counts is not None and self._settings.training.label_prior == "data":
            held = [own["classes"] for own in engine.members.holdings().values()]
            self._learner.label_counts = label_counts(len(self._learner.label_counts), held)
        with engine.span("generate"):
            generated = self._learner.generate(kappa)
        assignment = assign(workers, kappa)
        encoded: dict[tuple[int, ...], dict[str, Tensor]] = {}
        judged = {worker: batch for worker, (batch, _) in assignment.items()}
        sums = sums_to_ask(engine, hosts, judged) if self.form.steps else None
        hosts = hosts if sums is None else sums.hosts
        engine.ask(
            i,
            hosts,
            lambda host: batches(
                i,
                generated,
                {worker: assignment[worker] for worker in hosts[host]},
                swap_follows=self._swap_follows(i),
                last=i == self._settings.training.iterations,
                codec=self._images,
                encoded=encoded,
                sums=None if sums is None else sums.question.fields(),
            ),
        )
        return Sent(hosts, assignment, kappa, generated.images, sums)

    def _swap_follows(self, i: int) -> bool:
        """There is no swap after the last iteration."""
        due = self._swap_every > 0 and i % self._swap_every == 0
        return due and i != self._settings.training.iterations

    def _may_run_ahead(self, i: int, engine: Engine) -> bool:
        """Whether the batches after i may leave now; not past a swap, a checkpoint or the end."""
        if (
            not self._settings.stale
            or i >= self._settings.training.iterations
            or engine.desk.stop_asked
        ):
            return False
        return not (self._swap_follows(i) or engine.checkpoints.due(i - 1, i))

    def _send_ahead(self, i: int, engine: Engine) -> Sent | None:
        """Sends batches to hosts that may still owe an answer to the iteration before."""
        hosts = engine.members.free(besides=i - 1)
        num_live = sum(map(len, engine.members.taking_part().values()))
        enough = engine.barrier.is_enough(sum(map(len, hosts.values())), num_live)
        return self._send_batches(i, engine, self._chosen(hosts)) if enough else None
