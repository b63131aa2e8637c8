"""An algorithm of one's own, in one file: clients train both models, only G's changes travel.

`python -m tests.toy_family train --algorithm toy …` is `mdgan` with this algorithm added.
"""

from collections.abc import Mapping
from math import prod

import torch
from torch import Tensor, nn

from mdgan.engine.answers import AnswerForm
from mdgan.engine.message_sizes import MessageSizes, small_bytes, state_bytes
from mdgan.engine.parts import Advance, HostHandler, HostPart, ServerPart
from mdgan.engine.server.engine import Engine
from mdgan.engine.settings import RunSettings
from mdgan.engine.stages.contract import pack_answers
from mdgan.families import registry
from mdgan.families.contract import Algorithm, Builder, HostNeeds, ServerNeeds
from mdgan.gan.build import Models, build_model, make_local_gan, make_model
from mdgan.gan.exact_sum import put_together
from mdgan.gan.local_gan import LocalGAN
from mdgan.gan.model_vector import ModelVector
from mdgan.gan.randomness import RandomState, derive_seed, generator_for
from mdgan.gan.settings import resolve_kappa
from mdgan.messages import Message
from mdgan.observe.tracer import Tracer
from mdgan.settings.declare import setting, text, whole
from mdgan.transport.host_end import HostTransport

ASK, ANSWER = "TOYASK", "TOYANSWER"


class ToySettings(RunSettings):
    algorithm: str = setting("toy", "What trains.", text())
    toy_steps: int = setting(2, "Steps between two exchanges.", whole(1), metavar="N")


class ToyServer(ServerPart):
    def __init__(self, generator: nn.Module, device: torch.device) -> None:
        self.generator, self._vector = generator, ModelVector(generator)
        self.form, self.device = AnswerForm(ANSWER, self._vector.shape), device

    def advance(self, done: int, engine: Engine) -> Advance | None:
        hosts, i = engine.await_hosts(), done + 1
        engine.at(i)
        sent = {"generator": self._vector.read()}
        engine.ask(i, hosts, lambda host: Message(ASK, i, {"workers": [*hosts[host]]}, sent))
        answers = engine.collector.collect(i, hosts)
        if not answers.losses:
            return None
        with engine.span("aggregate"):
            parts = [answers.singles[worker] for worker in sorted(answers.singles)]
            total = put_together(parts, [part.total for part in answers.sums])
            assert total is not None
            self._vector.write(sent["generator"] + total / len(answers.losses))
        with engine.span("step"):
            return Advance(i, answers.mean_losses(), sorted(answers.losses))

    def state(self) -> dict[str, Tensor]:
        return {name: t.detach().clone() for name, t in self.generator.state_dict().items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.generator.load_state_dict(dict(state))


class ToyHost(HostPart):
    begins = ASK
    learners: Mapping[int, LocalGAN]

    def __init__(self, gans: Mapping[int, LocalGAN], steps: int, tracer: Tracer) -> None:
        self.learners, self._steps, self._tracer = gans, steps, tracer
        self._vectors = {rank: ModelVector(gan.generator) for rank, gan in gans.items()}

    def handlers(self) -> Mapping[str, HostHandler]:
        return {ASK: self._train}

    def _train(self, message: Message, transport: HostTransport) -> None:
        trained, losses, sent = {}, {}, message.tensors["generator"]
        for rank in message.fields["workers"]:
            with self._tracer.of_worker(rank)("train"):
                self._vectors[rank].write(sent)
                steps = [torch.stack(self.learners[rank].step()) for _ in range(self._steps)]
            trained[rank], losses[rank] = self._vectors[rank].read() - sent, steps[-1]
        form = AnswerForm(ANSWER, next(iter(self._vectors.values())).shape)
        with self._tracer.span("send") as span:
            together = dict.fromkeys(trained, 0)
            answer = pack_answers(message.iteration, trained, losses, together, form)
            span.num_bytes = transport.send(answer)


class ToyBuilder(Builder[ToySettings]):
    def server(self, needs: ServerNeeds[ToySettings]) -> ToyServer:
        made = make_model(
            needs.models.generator, "generator", needs.settings.training, needs.device
        )
        return ToyServer(made, needs.device)

    def host(self, needs: HostNeeds[ToySettings]) -> ToyHost:
        gans = {rank: self._gan(rank, needs) for rank in needs.shards}
        return ToyHost(gans, needs.settings.toy_steps, needs.tracer)

    def _gan(self, rank: int, needs: HostNeeds[ToySettings]) -> LocalGAN:
        settings = needs.settings
        return make_local_gan(
            rank,
            needs.models,
            settings.training,
            needs.shards[rank],
            kappa=resolve_kappa(settings.kappa, 1),
            noise=generator_for(settings.training.seed, "noise", rank),
            random_state=RandomState(
                derive_seed(settings.training.seed, "toy", rank), needs.device
            ),
        )

    def message_sizes(self, settings: ToySettings, models: Models) -> MessageSizes:
        generator = build_model(models.generator, 0)
        discriminator = build_model(models.discriminator, 0)
        size = 8 * prod(ModelVector(generator).shape)
        return MessageSizes(
            state_bytes(
                (generator, settings.training.policy("generator")),
                (discriminator, settings.training.policy("discriminator")),
            ),
            lambda count: {ANSWER: count * size + small_bytes(count)},
            lambda count: {ASK: size + small_bytes(count)},
        )


BUILDER = ToyBuilder()
TOY = Algorithm("toy", "every worker trains both models", ToySettings, "tests.toy_family:BUILDER")

if __name__ == "__main__":
    registry.register(TOY)
    from mdgan.cli import run

    run()
