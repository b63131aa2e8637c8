"""What would make an iteration faster: the remedies for a bottleneck, tried out on the formulas."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mdgan.plan.layout import Layout, Link
from mdgan.plan.prediction import Costs, Forecast, predict
from mdgan.plan.traffic import Traffic, iteration_bytes
from mdgan.settings.experiment import Experiment

_WORTH_IT = 0.95


@dataclass(frozen=True)
class Question:
    """Everything that a forecast is made of.

    Attributes:
        experiment: what is computed.
        shape: of a sample, (C, H, W).
        layout: who computes where.
        link: of every machine.
        costs: as measured.
        traffic: bytes of an iteration.
        swap_every: iterations between two swaps; 0 for none, or if nobody knows.
    """

    experiment: Experiment
    shape: Sequence[int]
    layout: Layout
    link: Link
    costs: Costs
    traffic: Traffic
    swap_every: int

    def answer(self) -> Forecast:
        """The forecast."""
        return predict(
            self.layout,
            self.link,
            self.costs,
            self.traffic,
            stale=self.experiment.stale,
            swap_every=self.swap_every,
        )

    def with_experiment(self, **changes: object) -> "Question":
        """The same with other settings that change bytes or order, and no stage's seconds."""
        experiment = replace(self.experiment, **changes)  # type: ignore[arg-type] # by name
        out, back = iteration_bytes(experiment, self.shape, self.layout.hosts)
        return replace(
            self, experiment=experiment, traffic=replace(self.traffic, out=out, back=back)
        )


def best_remedy(question: Question, forecast: Forecast) -> tuple[str, Forecast] | None:
    """The change that helps most against the bottleneck.

    Returns:
        What to do, and what an iteration would then take; None if nothing here helps enough.
    """
    tried = [(text, change().answer()) for text, change in _remedies(question, forecast.bottleneck)]
    helping = [one for one in tried if one[1].iteration < _WORTH_IT * forecast.iteration]
    return min(helping, key=lambda one: one[1].iteration, default=None)


def _remedies(question: Question, bottleneck: str) -> list[tuple[str, Callable[[], Question]]]:
    experiment, layout = question.experiment, question.layout
    remedies: list[tuple[str, Callable[[], Question]]] = []
    if bottleneck == "link":
        if experiment.wire_images == "fp32":
            remedies.append(
                ("--wire-images int8", lambda: question.with_experiment(wire_images="int8"))
            )
        if experiment.wire_feedback == "fp32":
            both = {"wire_images": "int8", "wire_feedback": "int8"}
            remedies.append(
                (
                    "--wire-images int8 --wire-feedback int8",
                    lambda: question.with_experiment(**both),
                )
            )
    if bottleneck == "cores":
        twice = replace(layout, cores=2 * layout.cores)
        remedies.append(("twice the cores", lambda: replace(question, layout=twice)))
    if bottleneck != "cores" and not experiment.stale:
        remedies.append(("--stale 1", lambda: question.with_experiment(stale=1)))
    return remedies
