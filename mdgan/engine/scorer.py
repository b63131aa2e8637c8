"""The scorer: a process beside the server that computes the scores of generators.

It never sees a private sample: hosts send sums over the features of theirs.
"""

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mdgan.engine.channel import Channel
from mdgan.engine.counting import read_learnt
from mdgan.errors import BadInput
from mdgan.gan.sampling import draw_samples
from mdgan.messages import Kind, Message
from mdgan.metrics.chosen import pack
from mdgan.metrics.distances import nearest
from mdgan.metrics.extractor import Extractor, Features
from mdgan.metrics.real_statistics import RealSamples, RealStatistics
from mdgan.metrics.scores import judge_generator, judged_record, score_generator
from mdgan.observe.tracer import memory_bytes
from mdgan.records import run_directory
from mdgan.samples.contract import Judge
from mdgan.storage.whole_file import exit_between_files, write_whole
from mdgan.transport.until import Inbox

_log = logging.getLogger(__name__)

_NEAR_SAMPLES, _SHOWN_SAMPLES = 256, 10
_FOREVER = 1e9
_FILE_SECONDS = 2.0  # how long the scorer may still write a file when training is over


@dataclass(frozen=True)
class Scorer:
    """Answers every generator with its scores, once statistics of real data have come."""

    channel: Channel
    directory: run_directory.RunDirectory
    samples: RealSamples
    generator: nn.Module
    z_dim: int
    num_samples: int
    seed: int

    def run(self) -> None:
        """Works until the server closes the channel, which ends this process at once."""
        inbox: Inbox[Message] = Inbox()
        self.channel.read_all(inbox.put, at_end=lambda: exit_between_files(0, _FILE_SECONDS))
        kind = self.samples.kind
        if kind.num_counts and (learnt := inbox.take(_FOREVER)) is not None:
            kind.learn(read_learnt(learnt, kind.num_counts))
        if kind.judges:
            self._judge_all(inbox, kind.judge(self.samples.held_out_samples()))
        else:
            self._measure_all(inbox)

    def _judge_all(self, inbox: Inbox[Message], judge: Judge) -> None:
        """Answers with the verdict of the kind of sample, which judges by itself."""

        def judged(held: Iterable[Sequence[int]]) -> dict[str, Any]:
            judgement = judge_generator(self.generator, judge, **self._drawn, held=held)
            with suppress(OSError):  # scoring goes on if the disk is full
                write_whole(
                    self.directory.path / run_directory.FIGURES_FILE,
                    json.dumps(judgement.figures).encode(),
                )
            return judged_record(judgement, self.num_samples)

        while (message := inbox.take(_FOREVER)) is not None:
            if message.kind == Kind.GENERATOR:
                self._answer(message, judged)

    def _measure_all(self, inbox: Inbox[Message]) -> None:
        """Answers with scores by the features of a network."""
        try:
            extractor = self.samples.make_extractor()
            held_out = self.samples.held_out(extractor)
            real = self.samples.describe(extractor, held_out)
        except BadInput as error:
            self.channel.send(Message(Kind.EXTRACTOR, 0, {"reason": str(error)}))
            return
        fields, tensors = pack(extractor)
        self.channel.send(Message(Kind.EXTRACTOR, 0, fields, tensors=tensors))
        waiting: list[Message] = []
        is_first = True
        while (message := inbox.take(_FOREVER)) is not None:
            if message.kind == Kind.REAL:
                real = RealStatistics.from_tensors(message.tensors)
            elif message.kind == Kind.GENERATOR:
                waiting.append(message)
            if is_first:  # training has begun; before that, the run's folder must not change
                self._keep(run_directory.EXTRACTOR_FILE, tensors, fields)
            if real is not None and (is_first or message.kind == Kind.REAL):
                self._keep(run_directory.REAL_FILE, real.tensors(), extractor.describe())
            is_first = False
            while real is not None and waiting:
                self._answer(waiting.pop(0), partial(self._scored, extractor, real, held_out))

    def _keep(self, name: str, tensors: Mapping[str, Tensor], fields: Mapping[str, Any]) -> None:
        """Writes a file into the run's folder; warns if that fails, and scoring goes on."""
        try:
            self.directory.write_tensors(name, tensors, fields)
        except OSError as error:
            _log.warning("cannot write %s: %s; scoring goes on", error.filename, error.strerror)

    @property
    def _drawn(self) -> dict[str, int]:
        return {"z_dim": self.z_dim, "num_samples": self.num_samples, "seed": self.seed}

    def _scored(
        self,
        extractor: Extractor,
        real: RealStatistics,
        held_out: Features | None,
        held: Iterable[Sequence[int]],
    ) -> dict[str, Any]:
        """Scores the generator by features, and draws its samples beside their neighbours."""
        scores = score_generator(
            self.generator, extractor, real, held_out=held_out, **self._drawn, held=held
        )
        record = scores.as_record()
        if held_out is None or len(held_out) <= 1 or not self.samples.kind.is_seen:
            return record
        # A picture of samples above their nearest held-out neighbours, and the distances.
        samples = draw_samples(self.generator, _NEAR_SAMPLES, self.z_dim, seed=self.seed)
        neighbours = nearest(extractor(samples).values, held_out.values)
        shown = self.samples.held_out_images(neighbours.places[:_SHOWN_SAMPLES])
        pairs = torch.cat([samples[:_SHOWN_SAMPLES], shown])
        with suppress(OSError):  # scoring goes on if the disk is full
            png = self.samples.kind.png(pairs, _SHOWN_SAMPLES)
            write_whole(self.directory.path / run_directory.NEIGHBOURS_FILE, png)
        near = {"n": len(held_out), "generated": neighbours.generated, "real": neighbours.real}
        return {**record, "neighbours": near}

    def _answer(
        self, message: Message, score: Callable[[Iterable[Sequence[int]]], dict[str, Any]]
    ) -> None:
        begin = time.monotonic()
        fields = dict(message.fields)
        held = fields.pop("held", ())
        if (learnt := self.samples.kind.class_counts) is not None:
            held = [learnt.tolist()]
        self.generator.load_state_dict(dict(message.tensors))
        self.samples.kind.calibrate(self.generator)
        try:
            record = score(held)
        except BadInput as error:
            record = {"scores": {}, "left_out": {"all": str(error)}, "warnings": []}
        seconds = time.monotonic() - begin
        span = ["evaluate", 0, 0, round(1e6 * seconds), 0]
        row = {"iteration": message.iteration, "start": begin, "spans": [span]}
        record = {**fields, "scoring_seconds": round(seconds, 3), **record, "row": row}
        record["memory_bytes"] = memory_bytes()
        self.channel.send(Message(Kind.SCORES, message.iteration, record))
