"""Which workers look as if they attacked or did not train, by what they answer; told once."""

from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor

from mdgan.engine.answers import Answers
from mdgan.engine.server.engine import Engine
from mdgan.families.mdgan.algorithm import Sent
from mdgan.families.mdgan.free_riders import FreeRiders
from mdgan.families.mdgan.handovers import Handovers
from mdgan.families.mdgan.opposition import Opposition
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.gan.exact_sum import PartialSum

_ATTACKER = "an attacker"


class Suspects:
    """Scores workers, and drops the answers of those that oppose the others.

    Args:
        of_sums: whether there are sums of answers alone.
    """

    def __init__(self, settings: MDGANSettings, handovers: Handovers, *, of_sums: bool) -> None:
        self.opposition = Opposition(of_sums=of_sums)
        self._riders = FreeRiders(settings.training.batch_size, handovers)
        self._shuts_out = settings.shut_out_free_riders
        self._looks = settings.longest_answer > 0
        self._of_sums = of_sums
        self._noted: dict[int, str] = {}  # what each was told to look like

    def swapped(self, moves: Mapping[int, int]) -> None:
        """Discriminators moved, giver → taker: answers may be due to what a worker was given."""
        self._riders.swapped(moves)
        self.opposition.given(moves.values())

    def score(
        self, sent: Sent, answers: Answers, engine: Engine, *, swap_follows: bool
    ) -> Mapping[str, Mapping[int, float]]:
        """Scores workers by their answers, and drops the answers of attackers."""
        riders, feedbacks = self._riders, answers.singles
        riders.look(sent.generated, sent.assignment, feedbacks, swap_follows=swap_follows)
        self._tell({n: ("a free rider", riders.why(n)) for n in riders.guilty()}, engine)
        left_out = self.opposing(feedbacks, answers.sums, engine)
        for worker in left_out if answers.losses.keys() - left_out else ():
            answers.drop(worker)
        scores = {"riding": riders.scores, "opposing": self.opposition.scores}
        return {key: {n: round(s, 2) for n, s in own.items()} for key, own in scores.items()}

    def opposing(
        self, feedbacks: Mapping[int, Tensor], sums: Sequence[PartialSum], engine: Engine
    ) -> set[int]:
        """The workers whose answers do not count, since they oppose the others."""
        if self._looks:
            host_of, peers = engine.peers.host_of(), engine.peers
            owner_of = {n: peers.identity(host) for n, host in host_of.items()}
            for worker in self.opposition.owned_by(owner_of):
                if self._noted.get(worker) == _ATTACKER:
                    del self._noted[worker]
            self.opposition.look(feedbacks, sums, host_of)
            reason = _ATTACKER, "its feedback opposes that of the others, and does not count"
            self._tell(dict.fromkeys(self.opposition.guilty, reason), engine)
        return self.opposition.left_out

    def innocent(self, workers: Iterable[int]) -> set[int]:
        """Those of the workers that may be asked; of sums all counts, so the guilty are not."""
        return set(workers) - (self.opposition.guilty if self._of_sums else set())

    def _tell(self, found: Mapping[int, tuple[str, str]], engine: Engine) -> None:
        """Tells once what workers look like, and why; shuts them out if the user wants that."""
        for worker in found.keys() - self._noted:
            what, reason = found[worker]
            self._noted[worker] = what
            if self._shuts_out:
                engine.peers.shut_out(worker, f"{what}: {reason}")
                engine.handle_losses()
            else:
                hint = "" if self._of_sums else " (see --shut-out-free-riders)"
                engine.note(f"rank {worker} looks like {what}: {reason}{hint}")
