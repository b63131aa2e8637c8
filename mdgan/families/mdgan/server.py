"""The server's share of MD-GAN: iterations of Algorithm 1 (Hardy et al. 2019), and swaps."""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from torch import Tensor, nn

from mdgan.engine.answers import Answers
from mdgan.engine.parts import Advance, ServerHandler, ServerPart
from mdgan.engine.server.engine import Engine
from mdgan.engine.server.hosts import Hosts, workers_of
from mdgan.engine.stages.contract import AskedHosts, ServerPath
from mdgan.families.mdgan.aggregation import Aggregation
from mdgan.families.mdgan.algorithm import Assignment, GeneratorLearner, assign
from mdgan.families.mdgan.free_riders import FreeRiders
from mdgan.families.mdgan.messages import COPIED, OUTPUTS, SWAPPED, batches, image_codec
from mdgan.families.mdgan.opposition import Opposition
from mdgan.families.mdgan.server_swaps import Holders, ServerSwaps
from mdgan.families.mdgan.settings import MEANS, MDGANSettings, are_uneven, interval_for, shares
from mdgan.gan.exact_sum import PartialSum
from mdgan.gan.labels import label_counts
from mdgan.gan.model_state import part_of, under
from mdgan.records.values import count

_log = logging.getLogger(__name__)

_AGGREGATION = "aggregation."
_HOLDERS = "holders"
_HANDOVERS = "handovers"
_OPPOSITION = "opposition"
_RHYTHM = {
    *("swap_interval", "swap_epochs", "batch_size", "partition", "world_size", "dataset"),
    *("data_dir", "swap"),
}
"""The settings that decide after how many iterations swaps come."""


def in_words(settings: MDGANSettings, swap_every: int, usual: int) -> str:
    """What trains, and what differs from the paper, in one line."""
    batch_size, kappa = settings.training.batch_size, settings.num_judged(settings.num_sharing)
    swaps = {
        "pairs": "pairs swap",
        "derangement": "all exchange along a permutation",
        MEANS: "pairs go on with the mean of their discriminators",
    }[settings.swaps.swap]
    rhythm = f"{swaps} every {count(swap_every, 'iteration')}"
    words = [
        f"MD-GAN (Hardy et al. 2019): κ = {count(kappa, 'batch', 'batches')} of {batch_size}",
        count(settings.num_workers, "worker"),
        rhythm if swap_every and settings.num_workers > 1 else "no swaps",
    ]
    if swap_every < usual:
        words[-1] += f", not every {usual}, as workers hold different classes (--swap-interval)"
    if settings.trains_on_all:
        words.append(
            f"each learns from {settings.num_reals} own samples and all batches (--step-samples)"
        )
    return ", ".join(words)


class Sent(NamedTuple):
    """Which workers have got batches in an iteration, which ones, and all of them."""

    asked: AskedHosts
    assignment: Mapping[int, Assignment]
    kappa: int
    generated: Tensor


class Stepping(Protocol):
    """When the generator steps; `ahead` says whether it may step between batches and feedback."""

    ahead: bool

    def advance(self, i: int, server: "MDGANServer", engine: Engine) -> Advance | None:
        """Iteration i; None if no answer could be used."""


class MDGANServer(ServerPart):
    """The server's side of Algorithm 1 (Hardy et al. 2019), with server-drawn swaps."""

    copied = COPIED
    path: ServerPath

    def __init__(
        self,
        learner: GeneratorLearner,
        settings: MDGANSettings,
        path: ServerPath,
        stepping: Stepping,
        num_weights: int = 0,
    ) -> None:
        self.form, self.path = path.form, path
        self.device = learner.device
        self.learner = learner
        self.aggregation = Aggregation(settings.aggregation)
        self._settings = settings
        self._stepping = stepping
        self._num_weights = num_weights
        self._images = image_codec(settings)
        self._holders = Holders(settings.participation, settings.training.seed)
        self._swaps = ServerSwaps(settings.swaps.swap, settings.training.seed)
        self._free_riders = FreeRiders(settings.training.batch_size, self._swaps.handovers)
        self._opposition = Opposition(of_sums=path.hides_answers)
        self._noted: set[int] = set()
        self._swap_every = 0
        self._left_out_swap = False

    @property
    def generator(self) -> nn.Module:
        """G."""
        return self.learner.model

    def begin_with(
        self, generator: Mapping[str, Tensor], discriminators: Mapping[int, Mapping[str, Tensor]]
    ) -> Mapping[int, Mapping[str, Tensor]]:
        """Every worker begins with its own discriminator, or with the first if it has none."""
        super().begin_with(generator, discriminators)
        if discriminators and self.path.hides_answers:
            _log.info(
                "hosts that mask take no discriminators of the server, and begin with new ones"
            )
        if not discriminators or self.path.hides_answers:
            return {}
        first = discriminators[min(discriminators)]
        workers = range(1, self._settings.num_workers + 1)
        return {n: under(COPIED, discriminators.get(n, first)) for n in workers}

    def begin(self, engine: Engine) -> None:
        """Works out how often discriminators are swapped, and whether they should agree."""
        self.path.begin(engine.peers)
        counts = [known["classes"] for known in engine.peers.holdings().values()]
        size = engine.peers.mean_shard_size
        if not self._swap_every:
            self._swap_every = self._settings.swap_every(size, counts, self._num_weights)
        _log.info("%s", in_words(self._settings, self._swap_every, self._settings.swap_every(size)))
        # No claim of a few hosts makes all differ: each counts the same.
        often = self._swap_every <= interval_for(self._num_weights)
        self._swaps.agree = often or not are_uneven([*map(shares, counts)])

    def advance(self, done: int, engine: Engine) -> Advance | None:
        """One global iteration."""
        return self._stepping.advance(done + 1, self, engine)

    def handlers(self) -> Mapping[str, ServerHandler]:
        """See `ServerPart`."""
        return {SWAPPED: self._swaps.note}

    def on_lost(self, engine: Engine) -> None:
        """Does not wait for reports of swaps from hosts that are gone."""
        self._swaps.on_lost(engine)

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
            **self.learner.state(),
            **under(_AGGREGATION, self.aggregation.record.state()),
            **under(_HOLDERS, self._holders.state()),
            **under(_HANDOVERS, self._swaps.handovers.state()),
            **under(_OPPOSITION, self._opposition.state()),
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """See `ServerPart`."""
        others = (_AGGREGATION, _HOLDERS, _HANDOVERS, _OPPOSITION)
        self.learner.load_state({n: t for n, t in state.items() if not n.startswith(others)})
        self.aggregation.record.load_state(part_of(state, _AGGREGATION))
        self._holders.load_state(part_of(state, _HOLDERS))
        self._swaps.handovers.load_state(part_of(state, _HANDOVERS))
        self._opposition.load_state(part_of(state, _OPPOSITION))

    # What iterations of any policy consist of.

    def await_hosts(self, i: int, engine: Engine) -> Hosts:
        """The hosts that take part in iteration i, none of which owes an answer."""
        hosts = engine.await_hosts()
        if self._left_out_swap and self.swap_follows(i - 1):
            self.swap(i - 1, engine)
        self._left_out_swap = False
        return hosts

    def judges(self, hosts: Hosts) -> Hosts:
        """Those of the workers that hold a discriminator, by host."""
        workers = workers_of(hosts)
        holders = self._holders.among(workers)
        chosen = set(workers if holders is None else holders)
        if self.path.hides_answers:  # what is in a sum counts
            chosen -= self._opposition.guilty
        judges = {host: [n for n in carried if n in chosen] for host, carried in hosts.items()}
        return {host: carried for host, carried in judges.items() if carried}

    def send_batches(self, i: int, engine: Engine, hosts: Hosts) -> Sent:
        """Steps 1 and 2: X = G(z) in one forward pass, and each host what its workers use of it."""
        engine.at(i)
        if self._opposition.divides:
            self.path.look_closer()
        hosts = self.path.able(hosts, engine.peers)
        workers, settings = workers_of(hosts), self._settings
        kappa = settings.num_judged(len(workers))
        kappa = self.path.most_groups(kappa, hosts, engine.peers)
        if self.learner.label_counts is not None and settings.training.label_prior == "data":
            held = engine.held_classes()
            self.learner.label_counts = label_counts(len(self.learner.label_counts), held)
        with engine.span("generate"):
            num_generated = settings.num_generated(kappa)
            generated = self.learner.generate(num_generated, ahead=self._stepping.ahead)
        assignment = assign(workers, kappa)
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
                last=i == settings.training.iterations,
                codec=self._images,
                encoded=encoded,
                more=asked.fields,
                train_on_all=settings.trains_on_all,
            ),
        )
        return Sent(asked, assignment, num_generated, generated.images)

    def swap_follows(self, i: int) -> bool:
        """Whether discriminators are swapped after iteration i; not after the last one."""
        due = self._swap_every > 0 and i % self._swap_every == 0
        return due and i != self._settings.training.iterations

    def swap(self, i: int, engine: Engine) -> None:
        """Has discriminators swapped after iteration i."""
        with engine.span("swap"):
            moves = self._swaps.order(i, engine, self._holders.now)
            self._holders.move(moves)
            self._free_riders.swapped(moves)
            self._opposition.given(moves.values())

    def pauses_after(self, i: int, engine: Engine) -> bool:
        """Whether all workers must have answered before the iteration after i."""
        if self.swap_follows(i) or i == self._settings.training.iterations or engine.stop_asked:
            return True
        return engine.checkpoint_due(i - 1, i)

    def score(
        self, i: int, sent: Sent, answers: Answers, engine: Engine
    ) -> Mapping[str, Mapping[int, float]]:
        """Scores workers by their answers, and drops the answers of attackers."""
        riders, feedbacks = self._free_riders, answers.singles
        riders.look(sent.generated, sent.assignment, feedbacks, swap_follows=self.swap_follows(i))
        self._tell({n: ("a free rider", riders.why(n)) for n in riders.guilty()}, engine)
        left_out = self.find_attackers(feedbacks, answers.sums, engine)
        for worker in left_out if answers.losses.keys() - left_out else ():
            answers.drop(worker)
        scores = {"riding": riders.scores, "opposing": self._opposition.scores}
        return {key: {n: round(s, 2) for n, s in own.items()} for key, own in scores.items()}

    def find_attackers(
        self, feedbacks: Mapping[int, Tensor], sums: Sequence[PartialSum], engine: Engine
    ) -> set[int]:
        """The workers whose answers do not count, since they oppose the others."""
        if self._settings.longest_answer:
            host_of, peers = engine.peers.host_of(), engine.peers
            self._opposition.owned_by({n: peers.identity(host) for n, host in host_of.items()})
            self._opposition.look(feedbacks, sums, host_of)
            reason = "an attacker", "its feedback opposes that of the others, and does not count"
            self._tell(dict.fromkeys(self._opposition.guilty, reason), engine)
        return self._opposition.left_out

    def _tell(self, found: Mapping[int, tuple[str, str]], engine: Engine) -> None:
        """Tells once what workers look like, and why; shuts them out if the user wants that."""
        for worker in found.keys() - self._noted:
            self._noted.add(worker)
            what, reason = found[worker]
            if self._settings.shut_out_free_riders:
                engine.peers.shut_out(worker, f"{what}: {reason}")
                engine.handle_losses()
            else:
                hint = "" if self.path.hides_answers else " (see --shut-out-free-riders)"
                engine.note(f"rank {worker} looks like {what}: {reason}{hint}")


class InStep:
    """G steps with the answers of all workers (Algorithm 1); the next batches may leave `ahead`."""

    def __init__(self, *, ahead: bool) -> None:
        self.ahead = ahead
        self._next: Sent | None = None

    def advance(self, i: int, server: MDGANServer, engine: Engine) -> Advance | None:
        """See `Stepping`."""
        # 1, 2. Generate κ batches and send every worker its two.
        sent = self._next or server.send_batches(
            i, engine, server.judges(server.await_hosts(i, engine))
        )
        self._next = self._send_ahead(i + 1, server, engine)

        # 3, 4. Workers train and answer.
        engine.at(i)
        answers = server.path.collect(i, sent.asked, engine)
        again = server.path.hides_answers or not answers.hosts
        if not answers.losses and again:  # all were lost: the same iteration again, with newcomers
            self._next = None
            server.learner.forget()
            return None
        if not answers.losses:  # hosts that have answered answer this iteration no more
            server.learner.skip()
            return Advance(i, answers.mean_losses())

        scores = server.score(i, sent, answers, engine)

        # 5. One optimizer step from all feedback; most rules need a single backward pass.
        with engine.span("aggregate"):
            server.aggregation.update_gradient(
                *(server.learner, answers.singles, sent.assignment, sent.kappa),
                *(answers.sums, answers.beside.get(OUTPUTS, {})),
            )
        with engine.span("step"):
            server.learner.at(i)
            server.learner.step()

        # 6. Swap.
        if server.swap_follows(i):
            server.swap(i, engine)
        return Advance(i, answers.mean_losses(), sorted(answers.losses), scores)

    def _send_ahead(self, i: int, server: MDGANServer, engine: Engine) -> Sent | None:
        """Sends batches to hosts that may still owe an answer to the iteration before."""
        if not self.ahead or server.pauses_after(i - 1, engine):
            return None
        hosts = engine.peers.free(besides=i - 1)
        enough = engine.is_enough(hosts)
        return server.send_batches(i, engine, server.judges(hosts)) if enough else None
