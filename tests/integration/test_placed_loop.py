"""Placed clients give the bits of a loop that trains one client after another."""

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from mdgan.data.shard import Shard
from mdgan.families.federated.settings import FederatedSettings
from mdgan.gan.build import build_model, make_local_gan
from mdgan.gan.randomness import RandomState, derive_seed, generator_for
from mdgan.launch.checked import prepare
from mdgan.launch.given import Given
from tests.processes import run_here

SEED, CLIENTS, EACH, ROUNDS, B = 3, 5, 4, 3, 8
SETTINGS = {
    **{"algorithm": "fl-gan", "clients": CLIENTS, "participation": 0.6, "seed": SEED},
    **{"round_iterations": EACH, "iterations": EACH * ROUNDS, "batch_size": B, "ema": 0},
    **{"partition": "shards:2", "threads": 1, "eval_interval": 0, "sample_interval": 0},
}


def drawn(number: int) -> list[int]:
    """The clients of a round (McMahan et al. 2017)."""
    order = torch.randperm(CLIENTS, generator=generator_for(SEED, "participants", number))
    return sorted((order[:3] + 1).tolist())


def the_loop() -> dict[str, Tensor]:
    """Every client begins with the server's models and nothing else; their mean is the server's."""
    prepared = prepare(Given([SETTINGS]))
    settings, models, clients = prepared.settings, prepared.models, prepared.clients
    assert isinstance(settings, FederatedSettings)
    assert clients is not None
    cpu = torch.device("cpu")
    both = [
        build_model(models.generator, derive_seed(SEED, "generator")),
        build_model(models.discriminator, derive_seed(SEED, "discriminator")),
    ]
    for number in range(ROUNDS):
        last = EACH * (number + 1)
        sums = [
            {name: torch.zeros_like(tensor).double() for name, tensor in model.state_dict().items()}
            for model in both
        ]
        for client in drawn(number):
            own: Shard = clients.begun_in(client, last)
            gan = make_local_gan(
                client,
                models,
                settings.training,
                own,
                kappa=2,
                noise=generator_for(SEED, "noise", client, last),
                random_state=RandomState(derive_seed(SEED, "client", client, last), cpu),
                stream=(last,),
            )
            trained = [gan.generator, gan.discriminator]
            for model, server in zip(trained, both, strict=True):
                model.load_state_dict(server.state_dict())
            gan.use_batch_size(min(B, len(own)))
            for i in range(last - EACH + 1, last + 1):
                gan.at(i)
                gan.step()
            for total, model in zip(sums, trained, strict=True):
                for name, tensor in model.state_dict().items():
                    total[name] += (tensor.double() / 3 * 2**44).round() / 2**44
        for total, server in zip(sums, both, strict=True):
            means = {name: total[name] / sum([1 / 3] * 3) for name in total}
            whole = {name for name, own in server.state_dict().items() if own.dtype == torch.int64}
            server.load_state_dict({n: m.round() if n in whole else m for n, m in means.items()})
    return dict(both[0].state_dict())


def test_placed_clients_equal_a_loop(tmp_path: Path) -> None:
    flags = [f for name, v in SETTINGS.items() for f in (f"--{name.replace('_', '-')}", str(v))]
    placed = [*flags, "--slots", "2", "--transport", "memory", "--out", "run"]
    assert run_here("train", *placed, cwd=tmp_path).status == 0
    ours, loop = load_file(tmp_path / "run" / "generator.safetensors"), the_loop()
    assert ours.keys() == loop.keys()
    assert all(torch.equal(ours[name], loop[name]) for name in loop)
