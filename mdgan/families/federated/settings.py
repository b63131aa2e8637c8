"""The settings of FL-GAN and FeGAN, and their entries in the registry.

It is one implementation with different defaults. With `--sampling random --weighting uniform` FeGAN
is FL-GAN bit for bit (Guerraoui et al. 2020, section 4).
"""

from collections.abc import Mapping
from math import inf
from typing import Any, Literal

from mdgan.engine.secure_settings import SecureSumSettings
from mdgan.engine.settings import RunSettings, num_participants
from mdgan.errors import BadInput
from mdgan.families.contract import Algorithm
from mdgan.families.federated.forms import (
    CLUSTER_FORMS,
    LOAD_FORMS,
    ClusterForm,
    LoadForm,
    parse_clusters,
    parse_load,
)
from mdgan.families.federated.private_clients import check_poisson_rounds, check_private_clients
from mdgan.gan.aggregation_form import ROBUST_FORMS, RobustRule, parse_robust_rule
from mdgan.gan.codec_form import CODEC_FORMS, CodecForm, codec_kind
from mdgan.privacy.settings import ClientPrivacySettings
from mdgan.settings.declare import (
    Settings,
    flag,
    number,
    one_of,
    own_setting,
    parsed,
    section,
    setting,
    switch,
    text,
    whole,
)
from mdgan.settings.machine import num_cores

PULL = "pull"
"""The placement without a plan: a host that is done gets the next client (Pollen, figure 6a)."""
MOST_SLOTS = 256
"""Of one host: their numbers fit into a byte, and what it tells of them into a short message."""
_MOST_CLIENTS = 10_000_000


class RoundSettings(Settings):
    """Who trains in a round, for how long, and what their models weigh."""

    round_iterations: int | None = setting(
        None,
        "Iterations that a worker trains in a round.",
        whole(1),
        metavar="E",
        symbol="E",
        default_text="see --round-epochs",
        instead_of="round_epochs",
    )
    round_epochs: float | None = setting(
        None,
        "Train for mE/b iterations in a round, m being the mean shard size.",
        number(lambda epochs: 0 < epochs < inf, "must be above 0"),
        metavar="E",
        symbol="E",
        default_text="1, unless --round-iterations is given",
    )
    sampling: str = setting(
        "random",
        "Which workers are drawn for a round: any; those that bring the classes that were seen "
        "least; or each by itself, with the same probability, so that a round may be of any size "
        "and what it changes is divided by the expected one.",
        one_of("random", "balanced", "poisson"),
        symbol="s",
        is_choice=True,
    )
    weighting: str = setting(
        "uniform",
        "What a worker's models weigh: the same, by samples, or by how near its classes are to "
        "those of all workers.",
        one_of("uniform", "samples", "kl"),
        symbol="w",
        is_choice=True,
    )
    training_load: LoadForm = setting(
        "equal",
        "How much a worker trains in a round: all the same; more if it has more samples, so that "
        "each trains as many epochs as another; less if it measures that it is "
        f"slow or short of memory; or half for a FRACTION of the workers: {LOAD_FORMS}.",
        parsed(parse_load),
        metavar="LOAD",
    )
    clusters: ClusterForm = setting(
        "none",
        "Workers without labels group their samples and tell how many are in each group: "
        f"{CLUSTER_FORMS}.",
        parsed(parse_clusters),
        metavar="METHOD",
    )
    on_deadline: str = own_setting(
        "complete",
        "What becomes of a round past --deadline: it is completed with the answers that came, or "
        "aborted and another begun.",
        one_of("complete", "abort"),
        group="faults",
    )
    client_state: str | None = setting(
        None,
        "What a client has of its earlier rounds: moments, noise and the order of its samples, or "
        "nothing, so that it can be trained anywhere.",
        one_of("kept", "fresh"),
        default_text="fresh with --clients, else kept",
    )


class PlacingSettings(Settings, group="speed"):
    """Clients without a home, and where they are trained."""

    clients: int | None = setting(
        None,
        "Clients without a home: in each round they are trained wherever there is room, and ranks "
        "are hosts that can read all data.",
        whole(2, _MOST_CLIENTS, below="needs at least 2"),
        metavar="N",
        default_text="as many as there are ranks beside rank 0, each at home on its rank",
        group="network",
    )
    slots: int | Literal["auto"] = own_setting(
        "auto",
        "Processes of each host that train --clients, one after another; auto: as many as train "
        "fastest here.",
        whole(1, MOST_SLOTS, word="auto"),
        metavar="N|auto",
    )
    slot_rounds: int = own_setting(
        3,
        "Rounds after which --slots auto tries one more.",
        whole(2, below="needs at least 2: the first with another number does not count"),
        metavar="T",
        symbol="T_c",
    )
    placement: str = own_setting(
        "lb",
        "How --clients are placed. rr: equally many to each slot; bb: equally many batches; lb: so "
        "that all slots are done at once, by what clients took before; pull: one at a time to "
        "whichever rank is done, for comparison.",
        one_of("rr", "bb", "lb", PULL),
    )
    time_window: int | None = own_setting(
        None,
        "Rounds after which --placement lb forgets what clients took.",
        whole(1),
        metavar="R",
        default_text="never",
    )


class ModelWireSettings(Settings, group="speed"):
    """How models travel."""

    wire_models: CodecForm = setting(
        "fp32",
        f"How workers' models travel to the server: {CODEC_FORMS}; all but fp32 as differences.",
        codec_kind(CODEC_FORMS),
        metavar="CODEC",
    )


class FederatedSettings(RunSettings):
    """The settings of the federated algorithms, and those that every algorithm has."""

    rounds = section(RoundSettings)
    placing = section(PlacingSettings)
    wire = section(ModelWireSettings)
    privacy = section(ClientPrivacySettings)
    secure = section(SecureSumSettings)

    algorithm: str = setting("fl-gan", "What trains.", text())
    aggregation: RobustRule = setting(
        "mean",
        "How the workers' models are combined: mean, or, where up to F of a round's workers may "
        f"lie: {ROBUST_FORMS}.",
        parsed(parse_robust_rule),
        metavar="RULE",
    )
    vectorize: bool = own_setting(
        False,
        "Train the clients of a slot, or of a process, at once, not one after another; pays with "
        "small models. Results differ in the last bits, also by where clients are trained.",
        switch(),
        group="speed",
    )

    @classmethod
    def defaults_beside(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """With `--clients`, one host trains them in its slots; to pull, each slot is a host.

        Where updates are added up, clients weigh the same.
        """
        adds_up = given.get("dp_unit") == "client" or given.get("sampling") == "poisson"
        alike = {"sampling": "poisson", "weighting": "uniform"} if adds_up else {}
        return {**alike, **cls._hosts_beside(given)}

    @staticmethod
    def _hosts_beside(given: Mapping[str, Any]) -> dict[str, Any]:
        if given.get("clients") is None:
            return {}
        slots = given.get("slots")
        pulls = given.get("placement") == PULL
        hosts = 1 if not pulls else slots if isinstance(slots, int) else num_cores()
        return {"world_size": 1 + hosts}

    def check(self) -> None:
        """Checks that a round can be aborted only where there is a deadline."""
        super().check()
        self._check_clients()
        self._check_vectorize()
        check_private_clients(self)
        check_poisson_rounds(self)
        if self.rounds.on_deadline == "abort" and self.faults.deadline is None:
            raise BadInput("--on-deadline abort: needs --deadline beside it")
        if self.training.label_prior == "data" and self.rounds.clusters.number:
            raise BadInput(
                "--label-prior data: with --clusters workers tell groups, not classes; leave one "
                "of the two out"
            )
        if self.aggregation.outvotes:
            self._check_votes()

    def needs_single_answers(self) -> dict[str, bool]:
        """See `SecureSumSettings`."""
        return {
            **super().needs_single_answers(),
            f"--clients {self.placing.clients}": self.placing.clients is not None,
            f"--aggregation {self.aggregation}": not self.adds_up,
            f"--wire-models {self.wire.wire_models}": str(self.wire.wire_models) != "fp32",
        }

    def _check_votes(self) -> None:
        """Checks that workers have equal votes, and that a round has enough of them."""
        if self.rounds.weighting != "uniform":
            raise BadInput(
                f"--aggregation {self.aggregation}: every worker has one vote, and --weighting "
                f"{self.rounds.weighting} follows what workers say that they hold; add --weighting "
                "uniform"
            )
        in_a_round = num_participants(self.participation, self.num_clients)
        more = "more (--world-size, --participation)"
        self.aggregation.check_enough(in_a_round, of="workers a round", more=more)

    def _check_vectorize(self) -> None:
        """Refuses what clients that train at once cannot have."""
        reasons = {
            "clients that keep moments between rounds train one after another; add --client-state "
            "fresh, or leave it out": not self.begins_anew,
            "with --placement pull a slot has one client at a time; leave out one of the two": (
                self.placing.placement == PULL
            ),
            "clients learn from real samples by themselves; leave out --merge-halves": (
                self.training.arithmetic.merge_halves
            ),
        }
        for reason in (reason for reason, holds in reasons.items() if holds and self.vectorize):
            raise BadInput(f"--vectorize: {reason}")

    def _check_clients(self) -> None:
        """Checks what clients without a home cannot have, and who has nothing else to place."""
        for name, value in self.placing.values().items():
            if self.placing.clients is None and value != self.placing.declared()[name].default:
                raise BadInput(f"{flag(name)} {value}: places --clients; give these, too")
        if self.placing.clients is None:
            return
        without = f"leave --clients out, and give --world-size {self.placing.clients + 1}"
        if not self.data.partition.divides:
            raise BadInput(
                "--partition none: clients' data can be read only where they lie, so clients have "
                f"a home; {without}"
            )
        if self.rounds.client_state == "kept":
            raise BadInput(
                "--client-state kept: what a client keeps lies where it trained last, so it has a "
                f"home; {without}"
            )
        if str(self.wire.wire_models) != "fp32":
            raise BadInput(
                f"--wire-models {self.wire.wire_models}: sums of --clients travel as they are; "
                "leave it "
                "out"
            )
        if self.placing.placement == PULL and self.faults.deadline is not None:
            raise BadInput(
                f"--deadline {self.faults.deadline}: with --placement pull no list of clients is "
                "ever "
                "late; leave one of the two out"
            )
        if self.rounds.training_load.name == "measured":
            raise BadInput(
                "--training-load measured: --clients have no machine of their own to measure; "
                "leave one of the two out"
            )

    @property
    def num_roaming(self) -> int | None:
        """How many clients have no home."""
        return self.placing.clients

    @property
    def num_clients(self) -> int:
        """How many clients there are at the start, with or without a home."""
        return self.num_workers if self.placing.clients is None else self.placing.clients

    @property
    def adds_up(self) -> bool:
        """Whether sums of models are enough: a rule that outvotes liars must see them all."""
        return self.aggregation.name == "mean"

    @property
    def begins_anew(self) -> bool:
        """Whether a client begins each round without anything of its earlier ones."""
        return self.placing.clients is not None or self.rounds.client_state == "fresh"

    def round_length(self, mean_shard_size: float) -> int:
        """The number of iterations in a round.

        Args:
            mean_shard_size: m, in samples.

        Returns:
            `--round-iterations`, or mE/b rounded, at least 1 (Hardy et al. 2019, section III-c).
        """
        if self.rounds.round_iterations is not None:
            return self.rounds.round_iterations
        return self.training.iterations_of(self.rounds.round_epochs or 1.0, mean_shard_size)


_BUILDER = "mdgan.families.federated.build:BUILDER"
_PHASES = ("receive", "train", "send")

FL_GAN = Algorithm(
    "fl-gan",
    "workers train both models, and the server averages them",
    FederatedSettings,
    _BUILDER,
    unit="round",
    lets_batches_repeat=False,
    host_phases=_PHASES,
)
"""Hardy et al. 2019, section V-A."""

FEGAN = Algorithm(
    "fegan",
    "the same, with workers and weights chosen by their classes",
    FederatedSettings,
    _BUILDER,
    {
        "participation": 0.025,
        "round_iterations": 30,
        "batch_size": 50,
        "sampling": "balanced",
        "weighting": "kl",
    },
    unit="round",
    lets_batches_repeat=False,
    host_phases=_PHASES,
)
"""Guerraoui et al. 2020, section 4 (hyper-parameters)."""
