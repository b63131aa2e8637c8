"""The settings of FL-GAN and FeGAN, and their entries in the registry.

With `--sampling random --weighting uniform` FeGAN is FL-GAN bit for bit (Guerraoui et al. 2020).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Literal

from mdgan.engine.settings import RunSettings, num_participants
from mdgan.families.contract import Algorithm
from mdgan.gan.aggregation_form import ROBUST_FORMS, AggregationRule, parse_robust_rule
from mdgan.gan.codec_form import CODEC_FORMS, WireForm, wire_kind
from mdgan.privacy.secure_settings import SecureSumSettings, summed
from mdgan.privacy.settings import POISSON, UNTOLD, ClientPrivacySettings
from mdgan.privacy.shared_noise import SharedNoiseSettings
from mdgan.settings import declare
from mdgan.settings.excludes import Condition, table
from mdgan.settings.machine import num_cores
from mdgan.spelling import flag, key

PULL = "pull"
"""The placement without a plan: a host that is done gets the next client (Pollen, figure 6a)."""
MOST_SLOTS = 256
"""The most slots of a host: their numbers fit into a byte, and its offer into a short message."""
_MOST_CLIENTS = 10_000_000
_TOO_LARGE_TO_MASK = 512.0
"""With larger values a host leaves a masked sum, and so do all clients on it."""
LOAD_FORMS = "equal, samples, measured, weak:FRACTION,memory, weak:FRACTION,speed"
_LOAD = re.compile(r"equal|samples|measured|weak:([0-9.eE+-]+),(memory|speed)")
CLUSTER_FORMS = "none, kmeans:K, gmm:K"
_CLUSTERS = re.compile(r"none|(?:kmeans|gmm):\d{1,9}")
_MOST_CLUSTERS = 1000


@dataclass(frozen=True)
class LoadForm:
    """The value of `--training-load`; of `weak`, a fraction of clients has half of `what`."""

    name: str
    fraction: float = 0.0
    what: str = ""

    def __str__(self) -> str:
        return f"weak:{declare.shortest(self.fraction)},{self.what}" if self.what else self.name


def parse_load(text: str) -> LoadForm:
    """Reads a `--training-load` value, or raises `ValueError`."""
    match = _LOAD.fullmatch(text)
    if match is None:
        raise ValueError(f"not one of {LOAD_FORMS}")
    if match[2] is None:
        return LoadForm(text)
    try:
        fraction = float(match[1])
    except ValueError:
        fraction = 0.0
    if not 0 < fraction <= 1:
        raise ValueError("FRACTION must be above 0 and at most 1")
    return LoadForm("weak", fraction, match[2])


@dataclass(frozen=True)
class ClusterForm:
    """The value of `--clusters`: how clients group unlabelled samples, and K; 0: no groups."""

    method: str = "none"
    number: int = 0

    def __str__(self) -> str:
        return f"{self.method}:{self.number}" if self.number else self.method


def parse_clusters(text: str) -> ClusterForm:
    """Reads a `--clusters` value, or raises `ValueError`."""
    if not _CLUSTERS.fullmatch(text):
        raise ValueError(f"not one of {CLUSTER_FORMS}")
    method, _, number = text.partition(":")
    if number and not 2 <= int(number) <= _MOST_CLUSTERS:
        raise ValueError(f"K must be from 2 to {_MOST_CLUSTERS}")
    return ClusterForm(method, int(number or 0))


class RoundSettings(declare.Settings):
    """Which clients train in a round, for how long, and with what weight."""

    round_iterations: int | None = declare.setting(
        None,
        "Iterations that a worker trains in a round.",
        declare.whole(1),
        symbol="E",
        default_text="see round_epochs",
        instead_of="round_epochs",
    )
    round_epochs: float | None = declare.key_setting(
        None,
        "Train for mE/b iterations in a round, m being the mean shard size.",
        declare.number(lambda epochs: 0 < epochs < inf, "must be above 0"),
        symbol="E",
        default_text="1, unless --round-iterations is given",
    )
    sampling: str = declare.setting(
        "random",
        "Which workers are drawn for a round: any; those that bring the classes that were seen "
        "least; or each by itself, with the same probability, so that a round may be of any size "
        "and what it changes is divided by the expected one.",
        declare.one_of("random", "balanced", "poisson"),
        symbol="s",
        is_choice=True,
    )
    weighting: str = declare.setting(
        "uniform",
        "What a worker's models weigh: the same, by samples, or by how near its classes are to "
        "those of all workers. With --dp-epsilon it counts them with noise.",
        declare.one_of("uniform", "samples", "kl"),
        symbol="w",
        is_choice=True,
    )
    training_load: LoadForm = declare.setting(
        "equal",
        "How much a worker trains in a round: all the same; more if it has more samples, so that "
        "each trains as many epochs as another; less if it measures that it is "
        f"slow or short of memory; or half for a FRACTION of the workers: {LOAD_FORMS}.",
        declare.parsed(parse_load),
        metavar="LOAD",
    )
    clusters: ClusterForm = declare.setting(
        "none",
        "Workers without labels group their samples and tell how many are in each group: "
        f"{CLUSTER_FORMS}.",
        declare.parsed(parse_clusters),
        metavar="METHOD",
    )
    on_deadline: str = declare.own_key_setting(
        "complete",
        "What becomes of a round past --deadline: it is completed with the answers that came, or "
        "aborted and another begun.",
        declare.one_of("complete", "abort"),
        group="faults",
    )
    client_state: str | None = declare.key_setting(
        None,
        "What a client has of its earlier rounds: moments, noise and the order of its samples, or "
        "nothing, so that it can be trained anywhere.",
        declare.one_of("kept", "fresh"),
        default_text="fresh with --clients, else kept",
    )


class PlacingSettings(declare.Settings, group="speed"):
    """How many clients are placed, and how the server places them."""

    clients: int | None = declare.setting(
        None,
        "Placed clients: in each round they are trained wherever there is room, and ranks "
        "are hosts that can read all data.",
        declare.whole(2, _MOST_CLIENTS, below="needs at least 2"),
        default_text="as many as there are ranks beside rank 0, each on a rank of its own",
        group="network",
        is_usual=True,
    )
    slots: int | Literal["auto"] = declare.own_setting(
        "auto",
        "Processes of each host that train --clients, one after another; auto: as many as train "
        "fastest here.",
        declare.whole(1, MOST_SLOTS, word="auto"),
        metavar="N|auto",
    )
    placement: str = declare.own_setting(
        "lb",
        "How --clients are placed. rr: equally many to each slot; bb: equally many batches; lb: so "
        "that all slots are done at once, by what clients took before; pull: one at a time to "
        "whichever rank is done, for comparison.",
        declare.one_of("rr", "bb", "lb", PULL),
    )

    excludes = table(
        """
        !clients | slots placement | places {clients}; give these, too
        """
    )


class FederatedSettings(RunSettings):
    """The settings of FL-GAN and FeGAN, beside those that every algorithm has."""

    rounds = declare.section(RoundSettings)
    placing = declare.section(PlacingSettings)
    privacy = declare.section(ClientPrivacySettings)
    noise = declare.section(SharedNoiseSettings)
    secure = declare.section(SecureSumSettings)

    algorithm: str = declare.setting("fl-gan", "What trains.", declare.text(), is_usual=True)
    aggregation: AggregationRule = declare.setting(
        "mean",
        "How the workers' models are combined: mean, or, where up to F of a round's workers may "
        f"lie: {ROBUST_FORMS}.",
        declare.parsed(parse_robust_rule),
        metavar="RULE",
    )
    wire: WireForm = declare.setting(
        "fp32",
        f"How workers' models travel to the server ({CODEC_FORMS}; all but fp32 as differences): "
        "models=CODEC.",
        wire_kind({"models": CODEC_FORMS}),
        metavar="WHAT=CODEC",
        group="speed",
    )
    vectorize: bool = declare.own_setting(
        False,
        "Train the clients of a slot, or of a process, at once, not one after another; pays with "
        "small models. Results differ in the last bits, also by where clients are trained.",
        declare.switch(),
        group="speed",
    )

    excludes = (
        *table(
            """
        @poisson                             | clients |
            with {when} each client has a machine that remembers what it has spent; leave
            {clients} out, or hide each of them as a whole ({dp_unit=client})
        @poisson                             | training_load=measured |
            a client takes no step to try how long it takes
        @untold                              | clusters |
            groups follow all samples of a worker at once, which no noise covers with {when}; add
            {dp_disclose=classes}, or leave it out
        @not_private                        | dp_unit=client |
            is for {dp_epsilon} or {dp_noise}; give one, too
        dp_unit=client                       | sampling!=poisson |
            with {when} each client takes part by itself, with the same probability; give
            {sampling=poisson}
        dp_unit=client+secure_aggregation    | @large_clip |
            with {when} values below 512 alone are masked; give less
        dp_unit=client                       | checkpoint_to_server |
            with {when} what clients keep stays with them; leave it out
        dp_unit=client sampling=poisson      | weighting!=uniform |
            with {when} all updates weigh the same, for other weights follow clients' data; give
            {weighting=uniform}
        dp_unit=client sampling=poisson      | aggregation |
            with {when} updates are added up; leave it out
        dp_unit=client sampling=poisson      | wire |
            with {when} updates travel as they were cut; leave it out
        dp_unit=client+secure_aggregation sampling=poisson+secure_aggregation | participation |
            with {when} sums of fewer than three hosts are left out, which tells who was drawn;
            give {participation=1}, or leave {secure_aggregation} out
        !deadline                            | on_deadline=abort |
            needs {deadline} beside it
        @outvotes                           | weighting!=uniform |
            with {when} every worker has one vote, and this follows what workers say that they
            hold; add {weighting=uniform}
        @kept                               | vectorize |
            clients that keep moments between rounds train one after another; add
            {set client_state=fresh}, or leave it out
        placement=pull                       | vectorize |
            a slot has one client at a time
        merge_halves                         | vectorize |
            clients learn from real samples by themselves; leave out {when}
        clients                              | partition=none client_state=kept |
            with {when} clients are trained anywhere, but this would bind each to one host;
            leave out one of the two (without {clients} each client has a rank of its own)
        clients                              | wire |
            sums of {clients} travel as they are; leave it out
        placement=pull+clients               | deadline |
            no list of clients is ever late
        clients                              | training_load=measured |
            clients have no machine of their own to measure
        """,
            poisson=POISSON,
            untold=UNTOLD,
            not_private=Condition(
                f"no {flag('dp_epsilon')} or {flag('dp_noise')}", lambda run: not run.privacy.has_dp
            ),
            large_clip=Condition(
                f"{flag('dp_clip')} from {_TOO_LARGE_TO_MASK:g} on",
                lambda run: _TOO_LARGE_TO_MASK <= run.privacy.clip < inf,
                lambda run: flag("dp_clip", run.privacy.dp_clip),
            ),
            outvotes=Condition(
                f"{flag('aggregation')} of a rule that outvotes",
                lambda run: run.aggregation.outvotes > 0,
                lambda run: flag("aggregation", run.aggregation),
            ),
            kept=Condition(
                "client_state kept",
                lambda run: not run.begins_anew,
                lambda _run: key("client_state", "kept"),
            ),
        ),
        summed("clients aggregation wire"),
    )

    @classmethod
    def defaults_beside(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Defaults beside `--clients`: one host trains them; with `pull`, a host for each slot."""
        defaults: dict[str, Any] = {}
        if given.get("dp_unit") == "client" or given.get("sampling") == "poisson":
            defaults |= {"sampling": "poisson", "weighting": "uniform"}
        if given.get("clients") is not None:
            slots = given.get("slots") if given.get("placement") == PULL else 1
            defaults["world_size"] = 1 + (slots if isinstance(slots, int) else num_cores())
        return defaults

    def check(self) -> None:
        """Checks that a round has enough workers for what the aggregation rule promises."""
        super().check()
        if self.aggregation.outvotes:
            in_a_round = num_participants(self.participation, self.num_clients)
            more = f"more ({flag('world_size')}, {flag('participation')})"
            self.aggregation.check_enough(in_a_round, of="workers a round", more=more)

    @property
    def num_placed(self) -> int | None:
        return self.placing.clients

    @property
    def num_clients(self) -> int:
        """How many clients there are at the start, placed or not."""
        return self.num_workers if self.placing.clients is None else self.placing.clients

    @property
    def shares_noise(self) -> bool:
        privacy, is_secure = self.privacy, self.secure.secure_aggregation
        return is_secure and privacy.hides_clients and privacy.keeps_ledger

    @property
    def goes_by_classes(self) -> bool:
        return self.rounds.sampling == "balanced" or self.rounds.weighting == "kl"

    @property
    def tells_classes(self) -> bool:
        """Beside secure sums, hosts send class counts only if the server draws clients by them."""
        is_secure = self.secure.secure_aggregation and self.rounds.sampling != "balanced"
        return super().tells_classes and not is_secure

    @property
    def weighs_in_secret(self) -> bool:
        """Whether clients compute their weights themselves, by a secure sum of all classes."""
        return self.rounds.weighting == "kl" and not self.tells_classes

    @property
    def adds_up(self) -> bool:
        """Whether sums of models are enough: a rule that outvotes liars must see all models."""
        return self.aggregation.name == "mean"

    @property
    def begins_anew(self) -> bool:
        """Whether a client keeps nothing between rounds."""
        return self.placing.clients is not None or self.rounds.client_state == "fresh"

    def round_length(self, mean_shard_size: float) -> int:
        """`--round-iterations`, or mE/b rounded, at least 1 (Hardy et al. 2019, section III-c)."""
        if self.rounds.round_iterations is not None:
            return self.rounds.round_iterations
        return self.training.iterations_of(self.rounds.round_epochs or 1.0, mean_shard_size)


FL_GAN = Algorithm(
    "fl-gan",
    "workers train both models, and the server averages them",
    FederatedSettings,
    builder="mdgan.families.federated.build:BUILDER",
    unit="round",
    lets_batches_repeat=False,
    host_phases=("receive", "train", "send"),
)
"""Hardy et al. 2019, section V-A."""

FEGAN = replace(
    FL_GAN,
    name="fegan",
    about="the same, with workers and weights chosen by their classes",
    defaults={
        "participation": 0.025,
        "round_iterations": 30,
        "batch_size": 50,
        "sampling": "balanced",
        "weighting": "kl",
    },
)
"""Guerraoui et al. 2020, section 4 (hyper-parameters)."""
