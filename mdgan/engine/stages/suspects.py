"""Which workers look as if they attacked or did not train, by what they answer; told once.

For every algorithm whose workers answer with a gradient in each sample of a batch, and may hand
models on to each other. The stage comes after the screening and before the rule.
"""

from collections.abc import Iterable, Mapping, Sequence
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

_ATTACKER = "an attacker"
_HANDOVERS, _OPPOSITION, _OWNERS = "handovers", "opposition", "owners"
_CERTIFIED = 1 << 62
"""Owners from here on are certificates, by a part of their hash; below are hosts, by number."""


class Suspects:
    """Scores workers, and drops the answers of those that oppose the others.

    Args:
        of_sums: whether there are sums of answers alone.

    Attributes:
        handovers: takes in what workers hand on to each other.
    """

    states = _HANDOVERS, _OPPOSITION, _OWNERS
    """What names in `state` begin with."""

    def __init__(self, settings: SuspectSettings, batch_size: int, *, of_sums: bool) -> None:
        self.handovers = Handovers()
        self.opposition = Opposition(of_sums=of_sums)
        self._riders = FreeRiders(batch_size, self.handovers)
        self._shuts_out = settings.shut_out_free_riders
        self._looks = settings.longest_answer > 0
        self._of_sums = of_sums
        self._said = False  # that there are too few answers to tell who opposes the others
        self._noted: dict[int, str] = {}  # what each was told to look like
        self._owner_of: dict[int, int] = {}  # by worker; see `_CERTIFIED`

    def swapped(self, moves: Mapping[int, int]) -> None:
        """Discriminators moved, giver → taker: answers may be due to what a worker was given."""
        self._riders.swapped(moves)
        self.opposition.given(moves.values())

    def state(self) -> dict[str, Tensor]:
        """What the next looks depend on."""
        # A rank may be on another host of the same machines once the run goes on.
        known = [(n, owner) for n, owner in self._owner_of.items() if owner >= _CERTIFIED]
        owners = {_OWNERS: torch.tensor(known)} if known else {}
        opposition = under(_OPPOSITION, self.opposition.state())
        return {**under(_HANDOVERS, self.handovers.state()), **opposition, **owners}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continues where `state` was taken; other tensors may be among them."""
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
            judged: which batch of X each worker has judged.
            swap_follows: whether workers hand models on before the next iteration; see `swapped`.

        Returns:
            By the key of `SUSPICIONS`, the scores of workers.
        """
        self._forget_changed_ranks(engine)
        riders, feedbacks = self._riders, answers.singles
        riders.look(generated, judged, feedbacks, swap_follows=swap_follows)
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
        self._forget_changed_ranks(engine)
        if self._looks:
            least, num = self.opposition.least_answers, len(feedbacks) + len(sums)
            if 1 < num < least and not self._said:
                self._said, what = True, f"fewer than {least} answers, or sums of some, come"
                engine.note(f"no worker is taken for an attacker while {what}")
            self.opposition.look(feedbacks, sums, engine.peers.host_of())
            reason = _ATTACKER, "its feedback opposes that of the others, and does not count"
            self._tell(dict.fromkeys(self.opposition.guilty, reason), engine)
        return self.opposition.left_out

    def innocent(self, workers: Iterable[int]) -> set[int]:
        """Those of the workers that may be asked; of sums all counts, so the guilty are not."""
        return set(workers) - (self.opposition.guilty if self._of_sums else set())

    def _forget_changed_ranks(self, engine: Engine) -> None:
        """What was found of a rank is not held against another certificate that has it now."""
        peers, before, changed = engine.peers, self._owner_of, set[int]()
        for n, host in peers.host_of().items():
            owner = _owner(peers.identity(host), host)
            if before.setdefault(n, owner) != owner:
                before[n] = owner
                changed.add(n)
                self._noted.pop(n, None)
        if changed:
            self.opposition.forget(changed)
            self._riders.forget(changed)

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


def _owner(identity: str, host: int) -> int:
    """See `_CERTIFIED`."""
    digest = sha256(identity.encode()).digest()
    is_certified = identity != f"host {host}"
    return int.from_bytes(digest[:7], "little") | _CERTIFIED if is_certified else host
