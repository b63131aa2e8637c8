"""Counts the rounds until the server has seen every class 500 times, with each `--sampling`.

FeGAN's figure 14 (Guerraoui et al. 2020): "10 rounds … against 10x this figure when random sampling
is applied". Nothing is trained: which clients take part depends on what they hold, and the seed.

    python -m benchmarks.sampling [--clients 20] [--fraction 0.1] [--seeds 20]
"""

import argparse
from statistics import median

import torch

from mdgan.data.dataset_file import load
from mdgan.data.partition import partition
from mdgan.data.settings import parse_partition
from mdgan.families.federated.averaging import new_sampling

_SEEN = 500
_MOST_ROUNDS = 5000
_PARTITIONS = ("iid", "classes:2", "dirichlet:0.3", "fegan:3,60", "fegan:10,60", "fegan:10,100")


def rounds_until_seen(counts: dict[int, list[int]], name: str, fraction: float, seed: int) -> int:
    """Rounds until every class has been seen often enough; at most `_MOST_ROUNDS`."""
    sampling = new_sampling(name, fraction, seed)
    seen = torch.zeros(max(map(len, counts.values())), dtype=torch.int64)
    for number in range(_MOST_ROUNDS):
        chosen = sampling.choose(number, counts)
        sampling.took_part(number, chosen)
        for client in chosen:
            seen += torch.tensor(counts[client])
        if int(seen.min()) >= _SEEN:
            return number + 1
    return _MOST_ROUNDS


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--fraction", type=float, default=0.1)
    parser.add_argument("--seeds", type=int, default=20)
    given = parser.parse_args()
    dataset = load("digits", None)
    labels = dataset.open(dataset.path.parent).labels
    num_classes = int(labels.max()) + 1
    print(
        f"{'partition':<14} {'seeds':>6} {'balanced':>20} {'random':>20} {'random / balanced':>20}"
    )
    for scheme in _PARTITIONS:
        found: list[tuple[int, int]] = []
        for seed in range(given.seeds):
            parts = partition(labels, parse_partition(scheme), given.clients, seed)
            counts = {
                client: torch.bincount(labels[part], minlength=num_classes).tolist()
                for client, part in enumerate(parts, start=1)
            }
            if (
                torch.tensor(list(counts.values())).sum(0).all()
            ):  # else balanced sampling is refused
                balanced, random = (
                    rounds_until_seen(counts, name, given.fraction, seed)
                    for name in ("balanced", "random")
                )
                found.append((balanced, random))
        print(f"{scheme:<14} {len(found):>6} {_said([b for b, _ in found]):>20} "
              f"{_said([r for _, r in found]):>20} "
              f"{median([r / b for b, r in found]):>20.2f}")  # fmt: skip


def _said(rounds: list[int]) -> str:
    return f"{median(rounds):g} ({min(rounds)}..{max(rounds)})"


if __name__ == "__main__":
    main()
