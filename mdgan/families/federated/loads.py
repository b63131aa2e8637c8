"""How much each participant trains in a round: by what it has told of itself, or by rule."""

from collections.abc import Mapping, Sequence
from typing import Any

from mdgan.families.federated.training_load import Capability, Load, training_loads, weak_loads


class Loads:
    """The server's choice of training loads (Guerraoui et al. 2020, section 3.4).

    Args:
        form: a checked `--training-load`.
        num_workers: N at the start; of these a fraction may be weak.
    """

    def __init__(self, form: str, num_workers: int) -> None:
        self._name, _, parameters = form.partition(":")
        self._parameters = parameters.split(",")
        self._num_workers = num_workers

    def of(
        self, workers: Sequence[int], full: Load, told: Mapping[int, Mapping[str, Any]]
    ) -> dict[int, Load]:
        """The loads of those who take part.

        Args:
            workers: those.
            full: what a strong worker does.
            told: by host, what it said of its workers when it arrived.
        """
        if self._name == "measured":
            found = training_loads(_capabilities(told), full.iterations, full.batch_size)
        elif self._name == "weak":
            fraction, what = self._parameters
            everybody = range(1, self._num_workers + 1)
            found = weak_loads(everybody, float(fraction), what, full.iterations, full.batch_size)
        else:
            found = {}
        return {worker: found.get(worker, full) for worker in workers}


def _capabilities(told: Mapping[int, Mapping[str, Any]]) -> dict[int, Capability]:
    """What can be made of what hosts told, who may be up to anything."""
    found: dict[int, Capability] = {}
    for said in told.values():
        records = said.get("capabilities", {})
        for worker, record in records.items() if isinstance(records, dict) else ():
            try:
                found[int(worker)] = Capability.from_record(record)
            except (ValueError, TypeError, LookupError, AttributeError):
                continue  # as one that told nothing: the full load
    return found
