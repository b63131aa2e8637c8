"""Learns how values spread: asks hosts for counts before training, and sends hosts the sum."""

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
    """The counts of all sites together, by which samples are encoded; see `SampleKind`."""

    kind: SampleKind
    run: RunDirectory  # where the counts are stored
    own: Collection[Shard] = ()  # the data, if the server holds them itself and has no hosts
    goes_on: bool = False  # whether the run is resumed, so that its folder has the counts
    noisy: bool = False  # whether hosts add noise to their counts
    _told_hosts: set[int] = field(default_factory=set, init=False)
    _learnt: Tensor | None = field(default=None, init=False)

    def learn_from(self, engine: Engine, path: ServerPath | None) -> Message | None:
        """Learns the counts of the first workers and sends them to all hosts; BadInput without any.

        Args:
            path: the way of answers that may be masked.

        Returns:
            The message for the scorer's process; None if this kind of sample needs no counts.
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
        """Sends a host that is ready the counts, once."""
        if self._learnt is not None and host not in self._told_hosts:
            self._told_hosts.add(host)
            engine.tell(host, Message(Kind.LEARNT, engine.done, tensors={"counts": self._learnt}))

    def on_lost(self, engine: Engine) -> None:
        """Forgets lost hosts: one that comes back gets the counts again."""
        self._told_hosts.intersection_update(engine.peers.hosts())

    def _ask(self, engine: Engine, path: ServerPath | None) -> Tensor:
        """Σ of the counts of all hosts that answer, float64; noisy ones by `from_noisy`."""
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
            counts_by_host = engine.collector.collect(iteration, hosts, read=read).masked
            parts = [counts_by_host[host] for host in sorted(counts_by_host)]
            workers = [n for host in sorted(counts_by_host) for n in hosts[host]]
        if not parts:
            reason = "no host has told how values spread over its rows"
            raise BadInput(reason, way_out="see the hosts' own output")
        total = torch.stack(parts).sum(0)
        variance = sum(variances[n] for n in workers) * self.kind.num_histograms
        return self.kind.from_noisy(total, variance) if self.noisy else total
