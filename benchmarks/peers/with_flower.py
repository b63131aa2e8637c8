"""Does the work in Flower: a `ClientApp` and `FedAvg`, in its simulation on Ray.

Ray starts as many actors as fit into the cores; each actor takes all cores, or one.
"""

from collections.abc import Iterable
from functools import cache

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.peers.work import GAN, Shards, Work, clock, train


@cache
def _of_this_actor(file: str) -> tuple[Shards, GAN]:
    torch.set_num_threads(1)
    return Shards(file), GAN()


def _client(work: Work) -> ClientApp:
    app = ClientApp()

    @app.train()  # type: ignore[untyped-decorator] # flwr is not there for mypy
    def train_here(message: Message, context: Context) -> Message:
        shards, gan = _of_this_actor(work.file)
        gan.load_state_dict(message.content["arrays"].to_torch_state_dict())
        images = shards[int(context.node_config["partition-id"])]
        train(gan, images, work.iterations, work.batch_size)
        content = {
            "arrays": ArrayRecord(gan.state_dict()),
            "metrics": MetricRecord({"num-examples": 1}),  # all weigh the same
        }
        return Message(content=RecordDict(content), reply_to=message)

    return app


class _Averaging(FedAvg):  # type: ignore[misc] # flwr is not there for mypy
    """Ends the run if a client fails; Flower would continue without that client."""

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        received = list(replies)
        failed = [reply.error.reason for reply in received if reply.has_error()]
        if failed:
            raise RuntimeError(f"{len(failed)} of {len(received)} clients failed: {failed[0]}")
        return super().aggregate_train(server_round, received)  # type: ignore[no-any-return] # as above


def _server(work: Work, times: str) -> ServerApp:
    app = ServerApp()

    @app.main()  # type: ignore[untyped-decorator] # flwr is not there for mypy
    def main(grid: Grid, _: Context) -> None:
        note = clock(times)

        def after(number: int, _: ArrayRecord) -> None:
            if number:
                note()

        _Averaging(
            fraction_train=work.cohort / work.clients,
            fraction_evaluate=0.0,
            min_available_nodes=work.clients,
        ).start(grid, ArrayRecord(GAN().state_dict()), num_rounds=work.rounds, evaluate_fn=after)

    return app


def run(work: Work, processes: int, times: str, cores: int = 2) -> None:
    """Runs all rounds with this many actors."""
    run_simulation(
        server_app=_server(work, times),
        client_app=_client(work),
        num_supernodes=work.clients,
        backend_config={
            "init_args": {"num_cpus": cores},
            "client_resources": {"num_cpus": cores / processes, "num_gpus": 0.0},
        },
    )
