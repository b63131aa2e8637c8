"""How much each participant trains in a round: by what it has told of itself, or by rule."""

from collections.abc import Mapping, Sequence
from typing import Any

from mdgan.families.federated.load_form import LoadForm
from mdgan.families.federated.training_load import Capability, Load, training_loads, weak_loads


def choose_loads(
    form: LoadForm,
    num_workers: int,
    workers: Sequence[int],
    full: Load,
    told: Mapping[int, Mapping[str, Any]],
) -> dict[int, Load]:
    """The server's choice of training loads (Guerraoui et al. 2020, section 3.4).

    Args:
        form: `--training-load`.
        num_workers: N at the start; of these a fraction may be weak.
        workers: those that take part.
        full: what a strong worker does.
        told: by host, what it said of its workers when it arrived.
    """
    found: dict[int, Load] = {}
    if form.name == "measured":
        found = training_loads(_capabilities(told), full.iterations, full.batch_size)
    elif form.name == "weak":
        every_worker = range(1, num_workers + 1)
        found = weak_loads(every_worker, form.fraction, form.what, full.iterations, full.batch_size)
    return {worker: found.get(worker, full) for worker in workers}


def _capabilities(told: Mapping[int, Mapping[str, Any]]) -> dict[int, Capability]:
    """What can be made of what hosts told; a host may lie."""
    found: dict[int, Capability] = {}
    for said in told.values():
        records = said.get("capabilities", {})
        for worker, record in records.items() if isinstance(records, dict) else ():
            try:
                found[int(worker)] = Capability.from_record(record)
            except (ValueError, TypeError, LookupError, AttributeError):
                continue  # as a host that told nothing: the full load
    return found
