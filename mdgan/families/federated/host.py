"""The workers' share of a federated algorithm: they train both models and send them back."""

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch

from mdgan.engine.host.spending import Spending
from mdgan.engine.parts import HostHandler, HostPart
from mdgan.engine.stages.contract import HostPath, Leaving
from mdgan.engine.stages.mask_host import mask_of
from mdgan.errors import BadInput
from mdgan.families.federated.fair_weights import check_weights
from mdgan.families.federated.fl_gan import Client
from mdgan.families.federated.messages import CHARGE, ROUND, digest_of, read_order
from mdgan.families.federated.together import Together
from mdgan.families.federated.updates import Sent, models
from mdgan.messages import Message
from mdgan.observe.tracer import Tracer
from mdgan.privacy.clients import ClientsAccount
from mdgan.transport.host_end import HostTransport


class FederatedHost(HostPart):
    """The devices of FL-GAN and FeGAN (Guerraoui et al. 2020, section 3.2) on one host.

    Args:
        clients: by rank.
        device: where their models live.
        path: of the models that travel back.
        tracer: records what they do when.
        together: trains them, some at once if it is asked to.
        tell: finds out what the server wants to know of these clients: JSON values.
        anew: makes the client of a rank for a round, given by its last iteration, if clients keep
            nothing between rounds.
        spending: of the clients' samples.
        sent: says what clients send of what they find.
        account: of the clients' samples, where the server adds the noise.
        uniform: whether all workers of the run have the same weight.
    """

    begins = ROUND

    def __init__(
        self,
        clients: Mapping[int, Client],
        device: torch.device,
        path: HostPath,
        tracer: Tracer,
        together: Together,
        tell: Callable[[], dict[str, Any]] = dict,
        anew: Callable[[int, int], Client] | None = None,
        spending: Spending | None = None,
        sent: Sent = models,
        account: ClientsAccount | None = None,
        *,
        uniform: bool = False,
    ) -> None:
        self._uniform = uniform
        self._account = account
        self._sent = sent
        self._spending = spending or Spending({})
        self._clients = clients
        self._device = device
        self._path = path
        self._tracer = tracer
        self._together = together
        self._tell = tell
        self._anew = anew
        self.masks = mask_of(path)

    @property
    def learners(self) -> Mapping[int, Client]:
        """By rank."""
        return self._clients

    def handlers(self) -> Mapping[str, HostHandler]:
        """By kind of message, what carries it out."""
        return {ROUND: self._train, CHARGE: self._charge}

    def tell(self) -> dict[str, Any]:
        """What the server wants to know of these clients."""
        return {**self._tell(), **({} if self._account is None else self._account.tell())}

    def close(self) -> None:
        """The account of the clients' samples is exact."""
        if self._account is not None:
            self._account.close()

    def _charge(self, about: Message, _transport: HostTransport) -> None:
        if self._account is None:
            return
        try:
            self._account.begin_round(about.fields)
        except BadInput:
            raise
        except ValueError as error:
            raise BadInput(f"the server's {CHARGE} message makes no sense: {error}") from error

    def _train(self, order: Message, transport: HostTransport) -> None:
        begun_with, all_loads, weights = read_order(order)
        loads = {
            rank: replace(load, iterations=self._spending.most(rank, load.iterations))
            for rank, load in all_loads.items()
            if rank in self._clients and self._spending.lets(rank)
        }
        if not loads:  # asked before the server knew
            return
        ending = self._spending.ending({rank: load.iterations for rank, load in loads.items()})
        begun_with = begun_with.to(self._device)
        trained, losses = {}, {}
        for group in self._together.groups(loads, lambda rank: self._clients[rank].num_samples):
            with ExitStack() as stages:
                for rank in group:
                    stages.enter_context(self._tracer.of_worker(rank)("train"))
                begun = [self._begun(rank, order.iteration) for rank in group]
                found = self._together.train(begun, begun_with, loads[group[0]], order.iteration)
            for rank, own in zip(group, found, strict=True):
                trained[rank], losses[rank] = self._sent(begun_with, own)
        trained = {rank: trained[rank] for rank in loads}

        def check(host: int, carried: Mapping[int, Collection[int]], least: int) -> None:
            check_weights(host, weights, carried, least, uniform=self._uniform)

        with self._tracer.span("send") as span:
            answer = self._path.pack(
                Leaving(
                    order,
                    trained,
                    losses,
                    dict.fromkeys(trained, 0),  # three or more are added up
                    weights=weights,
                    about=lambda: {0: digest_of(order)},
                    check=check,
                )
            )
            ending.tell(order.iteration, transport)
            span.num_bytes = transport.send(answer)

    def _begun(self, rank: int, iteration: int) -> Client:
        """The client of a rank at the beginning of a round, given by its last iteration."""
        return self._anew(rank, iteration) if self._anew else self._clients[rank]
