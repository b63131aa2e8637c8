"""The stage that finds attackers and free riders by their answers, after the screening.

It logs each such worker once. It serves every algorithm whose workers answer with a gradient in
each sample of a batch, and may give models to each other.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256

import torch
from torch import Tensor

from mdgan.engine.answers import Answers
from mdgan.engine.server.engine import Engine
from mdgan.engine.stages.free_riders import FreeRiders
from mdgan.engine.stages.handovers import Handovers
from mdgan.engine.stages.opposition import Opposition
from mdgan.engine.stages.suspect_settings import SuspectSettings
from mdgan.gan.exact_sum import PartialSum
from mdgan.gan.model_state import part_of, under
from mdgan.spelling import flag

_HANDOVERS, _OPPOSITION, _OWNERS = "handovers", "opposition", "owners"
_CERTIFIED = 1 << 62
"""Numbers of owners at or above this are parts of a certificate's hash; those below are hosts."""


class Suspects:
    """Scores workers, and drops the answers of those that oppose the others.

    Args:
        of_sums: whether the server sees only sums of answers.

    Attributes:
        handovers: takes in reports of the models that workers give to each other.
    """

    states = _HANDOVERS, _OPPOSITION, _OWNERS
    """The beginnings of all names in `state`."""

    def __init__(self, settings: SuspectSettings, batch_size: int, *, of_sums: bool) -> None:
        self.handovers = Handovers()
        self.opposition = Opposition(of_sums=of_sums)
        self._riders = FreeRiders(batch_size, self.handovers)
        self._shuts_out = settings.shut_out_free_riders
        self._looks = settings.longest_answer > 0
        self._of_sums = of_sums
        self._noted_too_few = False  # whether the log says that too few answer to find attackers
        self._noted: set[int] = set()  # workers that the log has named
        self._owner_of: dict[int, int] = {}  # by worker; see `_CERTIFIED`

    def swapped(self, moves: Mapping[int, int]) -> None:
        """Records a swap, giver → taker: a taker's answers may be due to its new discriminator."""
        self._riders.swapped(moves)
        self.opposition.note_takers(moves.values())

    def state(self) -> dict[str, Tensor]:
        """The tensors that later scores depend on."""
        # Numbers of hosts change when a run is resumed; certificates stay.
        certified = [(n, owner) for n, owner in self._owner_of.items() if owner >= _CERTIFIED]
        owners = {_OWNERS: torch.tensor(certified)} if certified else {}
        opposition = under(_OPPOSITION, self.opposition.state())
        return {**under(_HANDOVERS, self.handovers.state()), **opposition, **owners}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restores what `state` returned; ignores other tensors."""
        self.handovers.load_state(part_of(state, _HANDOVERS))
        self.opposition.load_state(part_of(state, _OPPOSITION))
        self._owner_of = dict(state[_OWNERS].tolist()) if _OWNERS in state else {}

    def score(
        self,
        generated: Tensor,
        judged: Mapping[int, int],
        answers: Answers,
        engine: Engine,
        *,
        swap_follows: bool,
    ) -> Mapping[str, Mapping[int, float]]:
        """Scores workers by their answers, and drops the answers of attackers.

        Args:
            generated: X, [κ, b, C, H, W].
            judged: by worker, the number of the batch of X that it has judged.
            swap_follows: whether workers swap before the next iteration.

        Returns:
            The scores of workers, by the keys of `SUSPICIONS`.
        """
        self._forget_changed_ranks(engine)
        riders = self._riders
        riders.look(generated, judged, answers.singles, swap_follows=swap_follows)
        for n in sorted(riders.guilty()):
            self._name(n, "a free rider", riders.why(n), engine=engine)
        left_out = self._left_out(answers.singles, answers.sums, engine)
        for worker in left_out if answers.losses.keys() - left_out else ():
            answers.drop(worker)
        scores = {"riding": riders.scores, "opposing": self.opposition.scores}
        return {key: {n: round(s, 2) for n, s in of.items()} for key, of in scores.items()}

    def opposing(
        self, feedbacks: Mapping[int, Tensor], sums: Sequence[PartialSum], engine: Engine
    ) -> set[int]:
        """The workers whose answers do not count, since they oppose the others."""
        self._forget_changed_ranks(engine)
        return self._left_out(feedbacks, sums, engine)

    def _left_out(
        self, feedbacks: Mapping[int, Tensor], sums: Sequence[PartialSum], engine: Engine
    ) -> set[int]:
        if self._looks:
            least, num = self.opposition.least_answers, len(feedbacks) + len(sums)
            if 1 < num < least and not self._noted_too_few:
                self._noted_too_few = True
                what = "sums of answers" if self._of_sums else "workers answer"
                engine.note(f"fewer than {least} {what}: too few for the server to find attackers")
            self.opposition.look(feedbacks, sums, engine.peers.host_of())
            reason = "its feedback opposes that of the others, and does not count"
            for n in sorted(self.opposition.guilty):
                self._name(n, "an attacker", reason, engine=engine)
        return self.opposition.left_out

    def innocent(self, workers: Iterable[int]) -> set[int]:
        """The workers that the server may ask: not the guilty if it cannot drop single answers."""
        return set(workers) - (self.opposition.guilty if self._of_sums else set())

    def _forget_changed_ranks(self, engine: Engine) -> None:
        """Forgets the evidence against ranks that now belong to another certificate."""
        changed = set[int]()
        for n, host in engine.peers.host_of().items():
            owner = _owner(engine.peers.identity(host), host)
            if self._owner_of.setdefault(n, owner) != owner:
                self._owner_of[n] = owner
                changed.add(n)
        if changed:
            self._noted -= changed
            self.opposition.forget(changed)
            self._riders.forget(changed)

    def _name(self, worker: int, what: str, reason: str, engine: Engine) -> None:
        """Logs once what a worker looks like, and why; or shuts it out, if the user wants that."""
        if worker in self._noted:
            return
        self._noted.add(worker)
        if self._shuts_out:
            engine.peers.shut_out(worker, f"{what}: {reason}")
            engine.handle_losses()
        else:
            hint = "" if self._of_sums else f" (see {flag('shut_out_free_riders')})"
            engine.note(f"rank {worker} looks like {what}: {reason}{hint}")


@lru_cache(maxsize=1 << 12)  # called for each host in each iteration
def _owner(identity: str, host: int) -> int:
    """The number of the owner of a host; see `_CERTIFIED`."""
    digest = sha256(identity.encode()).digest()
    is_certified = identity != f"host {host}"
    return int.from_bytes(digest[:7], "little") | _CERTIFIED if is_certified else host
