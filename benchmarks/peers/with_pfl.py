"""Does the work in pfl: `FederatedAveraging` whose clients train a GAN, on `SimulatedBackend`.

torchrun starts several processes; each trains its share of a cohort, and they add up by all-reduce.
pfl averages weights, but leaves BatchNorm's statistics as its last client made them, since those
are buffers. The other programs average the statistics, too.
"""

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel

from benchmarks.peers.work import GAN, Shards, Work, clock, train


class _GAN(GAN):
    """Adds the methods that pfl asks of every model; it measures once, before the first round."""

    def loss(self, images: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError("clients train it with their own steps")

    def metrics(self, images: torch.Tensor) -> dict[str, Weighted]:
        return {"samples": Weighted(len(images), 1)}


class _Averaging(FederatedAveraging):  # type: ignore[misc] # pfl is not there for mypy
    def __init__(self, work: Work) -> None:
        super().__init__()
        self._work = work

    def train_one_user(self, initial_model_state, model, user_dataset, central_context):  # type: ignore[no-untyped-def] # as in pfl
        del central_context
        images = user_dataset.raw_data[0]
        train(model.pytorch_model, images, self._work.iterations, self._work.batch_size)
        return model.get_model_difference(initial_model_state), Metrics()


class _Clock(TrainingProcessCallback):  # type: ignore[misc] # pfl is not there for mypy
    def __init__(self, times: str) -> None:
        self._note = clock(times)

    def after_central_iteration(self, *_: object, **__: object) -> tuple[bool, Metrics]:
        self._note()
        return False, Metrics()


def run(work: Work, processes: int, times: str) -> None:
    """Runs all rounds, as one of `processes` processes."""
    from pfl.internal.ops.pytorch_ops import distributed

    assert distributed.world_size == processes
    np.random.seed(0)  # all processes draw the same cohorts
    torch.manual_seed(0)  # and begin with the same models
    shards, gan = Shards(work.file), _GAN()
    torch.manual_seed(1 + distributed.global_rank)
    clients = FederatedDataset(
        lambda client: Dataset([shards[client]], user_id=client),
        get_user_sampler("minimize_reuse", list(range(work.clients))),
    )
    model = PyTorchModel(
        gan,
        local_optimizer_create=torch.optim.SGD,  # clients make their own
        central_optimizer=torch.optim.SGD(gan.parameters(), lr=1.0),
    )
    _Averaging(work).run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=work.rounds,
            evaluation_frequency=work.rounds + 1,
            train_cohort_size=work.cohort,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(training_data=clients, val_data=clients),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=1.0, local_batch_size=work.batch_size
        ),
        callbacks=[_Clock(times)] if distributed.global_rank == 0 else [],
    )
