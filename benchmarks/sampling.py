"""Counts the rounds until the server has seen every class 500 times, with each `--sampling`.

FeGAN's figure 14 (Guerraoui et al. 2020): "10 rounds … against 10x this figure when random sampling
is applied". It trains nothing: only the clients' classes and the seed decide who takes part.

    python -m benchmarks.sampling [--clients 20] [--fraction 0.1] [--seeds 20]
"""

import argparse
from statistics import median

import torch

from mdgan.data.dataset_file import load
from mdgan.data.partition import partition
from mdgan.data.settings import parse_partition
from mdgan.families.federated.averaging import new_sampling

_ENOUGH = 500
_MOST_ROUNDS = 5000
_PARTITIONS = ("iid", "classes:2", "dirichlet:0.3", "fegan:3,60", "fegan:10,60", "fegan:10,100")


def rounds_until_seen(counts: dict[int, list[int]], name: str, fraction: float, seed: int) -> int:
    """Rounds until the server has seen each class `_ENOUGH` times; at most `_MOST_ROUNDS`."""
    sampling = new_sampling(name, fraction, seed)
    class_counts = torch.zeros(max(map(len, counts.values())), dtype=torch.int64)
    for number in range(_MOST_ROUNDS):
        chosen = sampling.choose(number, counts)
        sampling.took_part(number, chosen)
        for client in chosen:
            class_counts += torch.tensor(counts[client])
        if int(class_counts.min()) >= _ENOUGH:
            return number + 1
    return _MOST_ROUNDS


def main() -> None:
    """Prints the medians and ranges of rounds for each partition."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--fraction", type=float, default=0.1)
    parser.add_argument("--seeds", type=int, default=20)
    arguments = parser.parse_args()
    dataset = load("digits", None)
    labels = dataset.open(dataset.path.parent).labels
    num_classes = int(labels.max()) + 1
    print(
        f"{'partition':<14} {'seeds':>6} {'balanced':>20} {'random':>20} {'random / balanced':>20}"
    )
    for scheme in _PARTITIONS:
        rounds: list[tuple[int, int]] = []
        for seed in range(arguments.seeds):
            parts = partition(labels, parse_partition(scheme), arguments.clients, seed)
            counts = {
                client: torch.bincount(labels[part], minlength=num_classes).tolist()
                for client, part in enumerate(parts, start=1)
            }
            # Balanced sampling is refused if a class has no samples.
            if torch.tensor(list(counts.values())).sum(0).all():
                balanced, random = (
                    rounds_until_seen(counts, name, arguments.fraction, seed)
                    for name in ("balanced", "random")
                )
                rounds.append((balanced, random))
        print(f"{scheme:<14} {len(rounds):>6} {_in_words([b for b, _ in rounds]):>20} "
              f"{_in_words([r for _, r in rounds]):>20} "
              f"{median([r / b for b, r in rounds]):>20.2f}")  # fmt: skip


def _in_words(rounds: list[int]) -> str:
    return f"{median(rounds):g} ({min(rounds)}..{max(rounds)})"


if __name__ == "__main__":
    main()
