"""`--stale 1`: the server sends batches i + 1 before it has the feedback on batches i."""

from collections import deque
from typing import Any

from typing_extensions import override

from mdgan.engine.parts import Advance
from mdgan.engine.server.engine import Engine
from mdgan.families.mdgan.algorithm import GeneratorLearner, Graph, Sent, ask, finish
from mdgan.families.mdgan.server import MDGANServer
from mdgan.gan.labels import Samples


class GeneratorAhead(GeneratorLearner):
    """G that may step after it made batches and before their feedback is in.

    Feedback comes in the order in which G made the batches. A step changes w in place, so each
    graph has a copy of the w that made it.
    """

    def __init__(self, *model_and_optimizer: Any, **more: Any) -> None:
        super().__init__(*model_and_optimizer, **more)
        self._graphs: deque[Graph] = deque()

    @override
    def generate(self, num_batches: int) -> Samples:
        named = self.model.named_parameters()
        weights = {n: p.detach().clone().requires_grad_() for n, p in named if p.requires_grad}
        samples = self.draw(num_batches * self._batch_size, weights)
        self._graphs.append(Graph(self.in_batches(samples.images), list(weights.values())))
        return self.without_graph(samples)

    def take_graph(self, *, keep: bool) -> Graph:
        assert self._graphs, "feedback comes after generate()"
        return self._graphs[0] if keep else self._graphs.popleft()

    def set_aside(self) -> Graph:
        """Removes the newest batches from the order of feedback, until `put_first`."""
        return self._graphs.pop()

    def put_first(self, graph: Graph) -> None:
        """Inserts batches that were set aside: the next feedback judges them."""
        self._graphs.appendleft(graph)

    def forget(self) -> None:
        self._graphs.clear()


class Ahead:
    """The form of an iteration in which the server asks for i + 1 before it waits for i."""

    def __init__(self) -> None:
        self._next: Sent | None = None

    def __call__(self, i: int, server: MDGANServer, engine: Engine) -> Advance | None:
        sent = self._next or ask(i, server, server.judges(server.await_hosts(i, engine)), engine)
        self._next = self._ask_ahead(i + 1, server, engine)
        engine.at(i)
        answers = server.path.collect(i, sent.asked, engine)
        advance = finish(i, server, sent, answers, engine)
        if advance is None:
            self._next = None
        return advance

    def _ask_ahead(self, i: int, server: MDGANServer, engine: Engine) -> Sent | None:
        """Sends batches of iteration i to hosts that may still owe their answers to i - 1."""
        hosts = engine.peers.free(besides=i - 1)
        if server.pauses_after(i - 1, engine) or not engine.collector.is_enough(hosts):
            return None
        return ask(i, server, server.judges(hosts), engine)
