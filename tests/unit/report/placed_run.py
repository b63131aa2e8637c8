"""Run folders with slots, as the program writes them: made-up speeds, real placement."""

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mdgan.families.federated.concurrency import ConcurrencyEstimator
from mdgan.families.federated.placement import Slot, Strategy, TrainingTimes, place
from tests.unit.observe.federated import federated_run

KINDS = {"Xeon @ 2.5 GHz": 0.02, "Xeon @ 2.5 GHz, 2 slots on 1 core": 0.042}
"""Seconds a batch."""
_ROUNDS, _CLIENTS = 16, 30


def placed_run(path: Path, hosts: Mapping[int, str]) -> Path:
    """Writes a run of 16 rounds in which clients of very different sizes train in slots.

    In the first two rounds `rr` places them, then `lb`. Hosts, each with its kind of slot, begin
    with one slot of two.
    """
    federated_run(path, rounds=_ROUNDS)
    draw, times = random.Random(0), TrainingTimes()
    searches = {host: ConcurrencyEstimator(2, 1) for host in hosts}
    with (path / "metrics.jsonl").open("a") as file:
        for number in range(_ROUNDS):
            file.write(json.dumps(_round(number, hosts, searches, times, draw)) + "\n")
    return path


def _round(
    number: int,
    hosts: Mapping[int, str],
    searches: Mapping[int, ConcurrencyEstimator],
    times: TrainingTimes,
    draw: random.Random,
) -> dict[str, Any]:
    used = {host: search.candidate for host, search in searches.items()}
    slots = [Slot(host, n, kind) for host, kind in hosts.items() for n in range(used[host])]
    sampled = draw.sample(range(1, 20 * _CLIENTS), _CLIENTS)
    sizes = {n: max(1, round(draw.lognormvariate(3, 1))) for n in sampled}
    now: Strategy = "lb" if number > 1 else "rr"
    times.fit(number - 2)
    records: list[dict[str, Any]] = []
    for slot, clients in place(now, sampled, sizes, slots, times.prediction.seconds).items():
        speed = KINDS.get(slot.kind, 0.03) * (1 + 0.6 * max(0, used[slot.host] - 3))
        seconds = [(0.05 + speed * sizes[n]) * draw.lognormvariate(0, 0.12) for n in clients]
        begin = [0.03 + sum(seconds[:k]) + 0.004 * k for k in range(len(clients))]
        guess = [
            times.prediction.seconds(slot.kind, sizes[n]) if now == "lb" else None for n in clients
        ]
        for n, took in zip(clients, seconds, strict=True):
            times.observe(number, slot.kind, sizes[n], took)
        records.append(
            {
                **{"host": slot.host, "slot": slot.number, "kind": slot.kind},
                **{
                    "busy": sum(seconds),
                    "work": sum(sizes[n] for n in clients),
                    "clients": clients,
                },
                **{"batches": [sizes[n] for n in clients], "begin": begin, "seconds": seconds},
                "predicted": guess,
            }
        )
    makespan = 0.05 + max(each["busy"] for each in records)
    for host, search in searches.items():
        work = sum(each["work"] for each in records if each["host"] == host)
        search.note_round(work, max(each["busy"] for each in records if each["host"] == host))
    return {
        **{"event": "placement", "iteration": 5 * (number + 1), "number": number},
        **{"strategy": now, "makespan": makespan, "slots": records, "num_slots": used},
        "fits": times.prediction.curves,
    }
