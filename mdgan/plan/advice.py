"""What would make a step faster: the remedies for a bottleneck, tried out on the formulas."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mdgan.families.contract import Planning
from mdgan.plan.layout import Layout, Link
from mdgan.plan.prediction import Costs, Forecast, Traffic, predict
from mdgan.settings.declare import flag

_WORTH_IT = 0.95


@dataclass(frozen=True)
class Question:
    """Everything that a forecast is made of.

    Attributes:
        layout: of the planned run.
        link: of every machine.
        costs: as measured.
        traffic: bytes of a step.
        planning: what the algorithm says of itself.
    """

    layout: Layout
    link: Link
    costs: Costs
    traffic: Traffic
    planning: Planning[Any]

    @property
    def asked(self) -> Layout:
        """The layout with those workers that are asked in a step."""
        return self.layout.asked(self.planning.settings.participation)

    def answer(self) -> Forecast:
        """The forecast."""
        exchange = self.planning.exchange
        return predict(
            self.asked,
            self.link,
            self.costs,
            self.traffic,
            questions=self.planning.questions,
            overlaps=self.planning.overlaps,
            by_arrival=self.planning.by_arrival,
            exchange_every=(exchange.every or 0) if exchange else 0,
        )


WithSettings = Callable[[Mapping[str, Any]], Question]
"""The same question with other settings, which change bytes or order, and no stage's seconds."""


def best_remedy(
    question: Question, forecast: Forecast, with_settings: WithSettings
) -> tuple[str, Forecast] | None:
    """The change that helps most against the bottleneck.

    Args:
        question: what was asked.
        forecast: the answer.
        with_settings: asks with other settings.

    Returns:
        What to do, and the forecast for that; None if nothing here helps enough.
    """
    tried = [
        (text, other.answer())
        for text, other in _remedies(question, forecast.bottleneck, with_settings)
    ]
    helping = [one for one in tried if one[1].step < _WORTH_IT * forecast.step]
    return min(helping, key=lambda one: one[1].step, default=None)


def _remedies(
    question: Question, bottleneck: str, with_settings: WithSettings
) -> Iterator[tuple[str, Question]]:
    if bottleneck == "cores":
        twice = replace(question.layout, cores=2 * question.layout.cores)
        yield "twice the cores", replace(question, layout=twice)
    for changes in question.planning.remedies.get(bottleneck, ()):
        text = " ".join(f"{flag(name)} {value}" for name, value in changes.items())
        yield text, with_settings(changes)
