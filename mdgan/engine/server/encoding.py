"""Has all hosts count before training, adds up, and tells every host that comes what was learnt."""

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from mdgan.data.shard import Shard
from mdgan.engine.counting import counts_form, published_digest, read_counts
from mdgan.engine.server.engine import Engine
from mdgan.engine.stages.contract import ServerPath
from mdgan.engine.stages.noise_parts import OF_COUNTS, noise_of_sum
from mdgan.errors import BadInput
from mdgan.messages import Kind, Message
from mdgan.records.run_directory import ENCODING_FILE, RunDirectory
from mdgan.samples.contract import SampleKind


@dataclass
class ServerEncoding:
    """What the server knows of how values spread over all sites."""

    kind: SampleKind
    run: RunDirectory  # keeps it
    own: Collection[Shard] = ()  # the data, where the server has them itself and there are no hosts
    goes_on: bool = False  # whether the run goes on, so that it was learnt then
    noisy: bool = False  # whether hosts add noise to what they count
    _told: set[int] = field(default_factory=set, init=False)
    _learnt: Tensor | None = field(default=None, init=False)

    def learn_from(self, engine: Engine, path: ServerPath | None) -> Message | None:
        """Learns from the workers of the start, and tells all; BadInput if no host has counted.

        Args:
            path: on which answers may be masked.

        Returns:
            What the process that scores is told, too; None if there was nothing to learn.
        """
        if not self.kind.num_counts:
            return None
        if self.goes_on:
            counts = self.run.read_counts(self.kind.num_counts)
        elif self.own:
            counts = torch.stack([shard.counts() for shard in self.own]).sum(0).double()
        else:
            counts = self._ask(engine, path)
        self.kind.learn(counts)
        self._learnt = counts
        engine.peers.learnt = published_digest(self.kind, counts, noisy=self.noisy)
        if not self.goes_on:
            self.run.write_tensors(ENCODING_FILE, {"counts": counts}, {})
        for host in engine.peers.hosts():
            self.tell_learnt(host, engine)
        return Message(Kind.LEARNT, 0, tensors={"counts": counts})

    def tell_learnt(self, host: int, engine: Engine) -> None:
        """A host is ready: it hears what was learnt, once."""
        if self._learnt is not None and host not in self._told:
            self._told.add(host)
            engine.tell(host, Message(Kind.LEARNT, engine.done, tensors={"counts": self._learnt}))

    def on_lost(self, engine: Engine) -> None:
        """Hosts are gone; one that comes back is told again."""
        self._told.intersection_update(engine.peers.hosts())

    def _ask(self, engine: Engine, path: ServerPath | None) -> Tensor:
        """Σ of the counts of all hosts that answer, float64, without noise as far as it shows."""
        form, iteration = counts_form(self.kind, noisy=self.noisy), engine.done + 1
        path, hosts = path or ServerPath(form), engine.peers.taking_part()
        least, variances = noise_of_sum(hosts, OF_COUNTS, path, engine.peers)
        if path.hides_answers:
            sums = path.ask_for_sum(Kind.ASKCOUNTS, engine, form, least)
            parts = [part.total.double() for part in sums]
            workers = [n for part in sums for n in part.workers]
        else:
            engine.ask(iteration, hosts, lambda _: Message(Kind.ASKCOUNTS, iteration))
            read = partial(read_counts, form=form)
            found = engine.collector.collect(iteration, hosts, read=read).masked
            parts = [found[host] for host in sorted(found)]
            workers = [n for host in sorted(found) for n in hosts[host]]
        if not parts:
            what = "no host has told how values spread over its rows"
            raise BadInput(what, way_out="see the hosts' own output")
        total = torch.stack(parts).sum(0)
        variance = sum(variances[n] for n in workers) * self.kind.num_histograms
        return self.kind.from_noisy(total, variance) if self.noisy else total
