"""`--stale 1`: the server sends the next batches before it has the feedback on the last ones."""

from collections import deque
from typing import Any

from typing_extensions import override

from mdgan.engine.parts import Advance
from mdgan.engine.server.engine import Engine
from mdgan.families.mdgan.algorithm import GeneratorLearner, Graph, Sent, ask, finish
from mdgan.families.mdgan.server import MDGANServer
from mdgan.gan.labels import Samples


class GeneratorAhead(GeneratorLearner):
    """G that may step between batches and the feedback on them; feedback comes in their order.

    A step changes w in place, so each graph has a copy of the w that made it.
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

    def next_graph(self, *, keep: bool) -> Graph:
        assert self._graphs, "feedback comes after generate()"
        return self._graphs[0] if keep else self._graphs.popleft()

    def set_aside(self) -> Graph:
        """Takes the batches that were generated last out of the order, until `put_first`."""
        return self._graphs.pop()

    def put_first(self, graph: Graph) -> None:
        """The next feedback is on batches that were set aside."""
        self._graphs.appendleft(graph)

    def forget(self) -> None:
        self._graphs.clear()


class Ahead:
    """Iterations whose batches the server sends while workers still answer the last ones."""

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
        """Sends batches of iteration i to hosts, which may still owe their answer to i - 1."""
        if server.pauses_after(i - 1, engine):
            return None
        hosts = engine.peers.free(besides=i - 1)
        return (
            ask(i, server, server.judges(hosts), engine)
            if engine.collector.is_enough(hosts)
            else None
        )
