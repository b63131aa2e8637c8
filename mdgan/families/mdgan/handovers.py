"""Which workers give a discriminator away as it came, and so have not trained it.

After every swap hosts report digests of what they gave and what they took. A worker that trains
gives away something else than it took in its swap before. What it took is what its giver says, and
what it gave is what its taker says: a free rider's own word is not needed. One host could say
anything, so the others are counted that tell the same of a worker.
"""

from collections import defaultdict
from collections.abc import Mapping

from mdgan.families.mdgan.swap import Moves


class Handovers:
    """Counts, for each worker, the hosts that took from it what it had just been given."""

    def __init__(self) -> None:
        self._took: dict[int, str] = {}
        self._witnesses: defaultdict[int, set[int]] = defaultdict(set)

    def note(
        self,
        moves: Moves,
        given: Mapping[int, str],
        taken: Mapping[int, str],
        host_of: Mapping[int, int],
    ) -> None:
        """Takes in one swap.

        Where most workers hand on what they took, discriminators are not meant to change, and none
        is blamed.

        Args:
            moves: giver → taker.
            given: the digests that givers report.
            taken: the digests that takers report.
            host_of: the host of every worker.
        """
        handed_on = {
            giver: host_of[taker]
            for giver, taker in moves.items()
            if host_of[giver] != host_of[taker]
            and giver in self._took
            and taken.get(taker) == self._took[giver]
        }
        if 2 * len(handed_on) < len(moves):
            for giver, witness in handed_on.items():
                self._witnesses[giver].add(witness)
        self._took |= {taker: given[giver] for giver, taker in moves.items() if giver in given}

    def num_witnesses(self, worker: int) -> int:
        """How many other hosts took from a worker what it had just been given."""
        return len(self._witnesses.get(worker, ()))
