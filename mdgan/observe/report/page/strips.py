"""Sample grids as film strips."""

import base64
from collections.abc import Sequence

from mdgan.observe.report.numbers.film import Frame, film
from mdgan.observe.report.numbers.subject import Subject
from mdgan.observe.report.page.html import tag, text
from mdgan.observe.report.page.swatch import swatch


def film_strips(subjects: Sequence[Subject]) -> str:
    """A strip for every run that has samples."""
    several = len(subjects) > 1
    strips = []
    for subject in subjects:
        frames = film(subject.run)
        if not frames:
            continue
        title = tag("h4", swatch(subject), text(subject.label)) if several else ""
        row = "".join(_frame(subject, frame, k) for k, frame in enumerate(frames))
        label = f"Samples of {subject.label}, scrolls sideways"
        strips.append(
            title + tag("div", row, class_="film", tabindex="0", role="group", aria_label=label)
        )
    return "".join(strips)


def _frame(subject: Subject, frame: Frame, number: int) -> str:
    data = base64.b64encode(frame.png).decode()
    iteration = f"iteration {frame.iteration:,}"
    picture = tag(
        "img",
        src=f"data:image/png;base64,{data}",
        alt=f"Samples of {subject.label} after {iteration}",
        width=str(frame.width),
        height=str(frame.height),
        decoding="async",
    ).removesuffix("</img>")
    button = tag(
        "button", picture, tag("span", text(iteration)), type="button", data_frame=str(number)
    )
    return tag("div", button, class_="frame")
