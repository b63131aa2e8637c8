"""The server of MD-GAN: it keeps G, sends batches, orders swaps; `algorithm.py` calls its steps."""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from mdgan.engine.answers import Answers
from mdgan.engine.parts import Advance, ServerHandler, ServerPart
from mdgan.engine.server.engine import Engine
from mdgan.engine.server.hosts import Hosts, workers_of
from mdgan.engine.stages.contract import AskedHosts, ServerPath
from mdgan.engine.stages.suspects import Suspects
from mdgan.families.mdgan.aggregation import Aggregation
from mdgan.families.mdgan.algorithm import Assignment, GeneratorLearner, Sent, server_iteration
from mdgan.families.mdgan.batches import BatchPlan
from mdgan.families.mdgan.messages import COPIED, SWAPPED, batches, image_codec
from mdgan.families.mdgan.planning import SwapRhythm, in_words
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.families.mdgan.swaps import ServerSwaps, are_uneven, interval_for, shares, swap_every
from mdgan.families.mdgan.variants.holders import Holders
from mdgan.gan.labels import Samples, label_counts
from mdgan.gan.model_state import State, part_of, under

_log = logging.getLogger(__name__)

_AGGREGATION = "aggregation."
_HOLDERS = "holders"
_RHYTHM = {
    *("swap_interval", "swap_epochs", "batch_size", "partition", "world_size", "dataset"),
    *("data_dir", "swap"),
}
"""The settings that decide how often swaps come."""


Iteration = Callable[[int, "MDGANServer", Engine], Advance | None]
"""Takes the number of an iteration; returns None if no answer could be used."""


@dataclass(eq=False)
class MDGANServer(ServerPart):
    """The server of Algorithm 1 (Hardy et al. 2019); `iteration` is one pass through it."""

    copied = COPIED

    learner: GeneratorLearner
    settings: MDGANSettings
    path: ServerPath = field()
    num_weights: int = 0
    iteration: Iteration = server_iteration

    def __post_init__(self) -> None:
        settings, seed = self.settings, self.settings.training.seed
        self.form, self.device = self.path.form, self.learner.device
        self.generator = self.learner.model
        self.aggregation = Aggregation(settings.aggregation)
        self._images = image_codec(settings)
        self._holders = Holders(settings.participation, seed)
        of_sums = self.path.hides_answers
        self.suspects = Suspects(settings.suspects, settings.training.batch_size, of_sums=of_sums)
        self._swaps = ServerSwaps(settings.swaps.swap, seed, self.suspects.handovers)
        self._swap_every = 0
        self._left_out_swap = False

    def begin_with(
        self, generator: State, discriminators: Mapping[int, State]
    ) -> Mapping[int, State]:
        """Sends workers their discriminators; a worker without one begins with the first."""
        super().begin_with(generator, discriminators)
        if not discriminators:
            return {}
        if self.path.hides_answers:
            _log.info(
                "hosts that mask take no discriminators of the server, and begin with new ones"
            )
            return {}
        first = discriminators[min(discriminators)]
        workers = range(1, self.settings.num_workers + 1)
        return {n: under(COPIED, discriminators.get(n, first)) for n in workers}

    def begin(self, engine: Engine) -> None:
        """Works out how often pairs swap, and whether honest discriminators should agree."""
        self.path.begin(engine.peers)
        counts = [holding["classes"] for holding in engine.peers.holdings().values()]
        size = engine.peers.mean_shard_size
        now = swap_every(self.settings, size, counts, num_weights=self.num_weights)
        self._swap_every = self._swap_every or now
        rhythm = SwapRhythm(self._swap_every, now, swap_every(self.settings, size))
        kappa = self.settings.batches.kappa_for()
        judges = self.judges(engine.peers.taking_part())
        kappa = self.path.most_groups(kappa, judges, engine.peers)
        _log.info("%s", in_words(self.settings, rhythm, kappa))
        # Each worker counts the same, so that false claims of a few do not make all seem uneven.
        often = self._swap_every <= interval_for(self.num_weights)
        self._swaps.agree = often or not are_uneven([*map(shares, counts)])

    def advance(self, done: int, engine: Engine) -> Advance | None:
        return self.iteration(done + 1, self, engine)

    def handlers(self) -> Mapping[str, ServerHandler]:
        return {SWAPPED: self._swaps.note}

    def on_lost(self, engine: Engine) -> None:
        """Stops waiting for the SWAPPED of hosts that are lost."""
        self._swaps.on_lost(engine)

    def progress(self) -> dict[str, int]:
        """How many swaps the server has ordered, and the iterations between two."""
        return {"num_swaps": self._swaps.num_swaps, "swap_every": self._swap_every}

    def go_on(self, progress: Mapping[str, int], changed: Collection[str], *, ended: bool) -> None:
        """Swaps keep their rhythm, unless the settings that decide it have changed."""
        self._left_out_swap = ended  # a longer run would have had one after that iteration
        self._swaps.num_swaps = progress["num_swaps"]
        self._swap_every = 0 if _RHYTHM.intersection(changed) else progress["swap_every"]

    def state(self) -> dict[str, Tensor]:
        return {
            **self.learner.state(),
            **under(_AGGREGATION, self.aggregation.record.state()),
            **under(_HOLDERS, self._holders.state()),
            **self.suspects.state(),
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        others = (_AGGREGATION, _HOLDERS, *Suspects.states)
        self.learner.load_state({n: t for n, t in state.items() if not n.startswith(others)})
        self.aggregation.record.load_state(part_of(state, _AGGREGATION))
        self._holders.load_state(part_of(state, _HOLDERS))
        self.suspects.load_state(state)

    # The steps of an iteration, in `algorithm.py` and `variants/`.

    def await_hosts(self, i: int, engine: Engine) -> Hosts:
        """Waits for hosts that take part in iteration i, none of which owes an answer."""
        hosts = engine.await_hosts()
        if self._left_out_swap and self.swap_follows(i - 1):
            self.swap(i - 1, engine)
        self._left_out_swap = False
        return hosts

    def judges(self, hosts: Hosts) -> Hosts:
        """The workers that hold a discriminator and may be asked, by host."""
        workers = workers_of(hosts)
        holders = self._holders.among(workers)
        chosen = self.suspects.innocent(workers if holders is None else holders)
        judges = {host: [n for n in carried if n in chosen] for host, carried in hosts.items()}
        return {host: carried for host, carried in judges.items() if carried}

    def hosts_to_ask(self, hosts: Hosts, engine: Engine) -> Hosts:
        """The hosts that the server can ask now; where they mask, enough of them for a sum."""
        if self.suspects.opposition.divides:
            self.path.look_closer()
        return self.path.hosts_to_ask(hosts, engine.peers)

    def plan(self, hosts: Hosts, engine: Engine) -> BatchPlan:
        """The batches of an iteration with these hosts: fewer where masked sums need more hosts.

        With `label_prior=data` this also sets how often the generator makes each class.
        """
        batches, prior = self.settings.batches, self.settings.training.label_prior
        kappa = batches.kappa_for(len(workers_of(hosts)))
        if self.learner.label_counts is not None and prior == "data":
            held = engine.held_classes()
            self.learner.label_counts = label_counts(len(self.learner.label_counts), held)
        return batches.plan(self.path.most_groups(kappa, hosts, engine.peers))

    def send(
        self,
        i: int,
        generated: Samples,
        assignment: Mapping[int, Assignment],
        hosts: Hosts,
        engine: Engine,
    ) -> AskedHosts:
        """Sends each host the batches of X that its workers use."""
        judged = {worker: batch for worker, (batch, _) in assignment.items()}
        asked = self.path.ask(hosts, judged, engine)
        encoded: dict[tuple[int, ...], dict[str, Tensor]] = {}
        engine.ask(
            i,
            asked.hosts,
            lambda host: batches(
                i,
                generated,
                {worker: assignment[worker] for worker in asked.hosts[host]},
                swap_follows=self.swap_follows(i),
                last=i == self.settings.training.iterations,
                codec=self._images,
                encoded=encoded,
                more=asked.fields,
                train_on_all=self.settings.batches.trains_on_all,
            ),
        )
        return asked

    def without_answers(self, i: int, answers: Answers) -> Advance | None:
        """Ends an iteration in which the server can use no answer; None to repeat it."""
        if self.path.hides_answers or not answers.hosts:  # other hosts may answer a repetition
            self.learner.forget()
            return None
        self.learner.take_graph(keep=False)  # a host does not answer the same iteration twice
        return Advance(i, answers.mean_losses())

    def follow_rule(self, sent: Sent, answers: Answers) -> None:
        """Sets the generator's gradients by a rule other than the mean."""
        self.aggregation.update_gradient(
            self.learner,
            answers.singles,
            sent.assignment,
            kappa=sent.plan.generated,
            beside=answers.beside,
        )

    def swap_follows(self, i: int) -> bool:
        """Whether pairs swap after iteration i; they do not after the last one."""
        due = self._swap_every > 0 and i % self._swap_every == 0
        return due and i != self.settings.training.iterations

    def swap(self, i: int, engine: Engine) -> None:
        """Orders a swap after iteration i, and records where discriminators went."""
        with engine.span("swap"):
            moves = self._swaps.order(i, engine, self._holders.now)
            self._holders.move(moves)
            self.suspects.swapped(moves)

    def pauses_after(self, i: int, engine: Engine) -> bool:
        """Whether all workers must have answered before the iteration after i."""
        ends = i == self.settings.training.iterations or engine.stop_asked
        return ends or self.swap_follows(i) or engine.checkpoint_due(i - 1, i)
