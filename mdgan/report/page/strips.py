"""Sample grids as film strips."""

import base64
from collections.abc import Sequence

from mdgan.report.numbers.film import Frame, film, last_frames
from mdgan.report.numbers.groups import groups
from mdgan.report.numbers.subject import Subject
from mdgan.report.page.html import tag, text
from mdgan.report.page.swatch import swatch


def film_strips(subjects: Sequence[Subject]) -> str:
    """A strip for every run that has samples."""
    several = len(subjects) > 1
    strips = []
    for subject in subjects:
        frames = film(subject.run)
        if not frames:
            continue
        title = tag("h4", swatch(subject), text(subject.label)) if several else ""
        row = "".join(
            _frame(frame, k, subject.label, f"iteration {frame.iteration:,}")
            for k, frame in enumerate(frames)
        )
        label = f"Samples of {subject.label}, scrolls sideways"
        strips.append(
            title + tag("div", row, class_="film", tabindex="0", role="group", aria_label=label)
        )
    return "".join(strips)


def side_by_side(subjects: Sequence[Subject]) -> str:
    """The last grid of every configuration, in one strip."""
    frames = last_frames(groups(subjects))
    row = "".join(
        _frame(frame, k, group.label, group.label) for k, (group, _, frame) in enumerate(frames)
    )
    label = "Samples of every configuration, scrolls sideways"
    return tag("div", row, class_="film columns", tabindex="0", role="group", aria_label=label)


def _frame(frame: Frame, number: int, label: str, beneath: str) -> str:
    data = base64.b64encode(frame.png).decode()
    picture = tag(
        "img",
        src=f"data:image/png;base64,{data}",
        alt=f"Samples of {label} after iteration {frame.iteration:,}",
        width=str(frame.width),
        height=str(frame.height),
        decoding="async",
    ).removesuffix("</img>")
    button = tag(
        "button", picture, tag("span", text(beneath)), type="button", data_frame=str(number)
    )
    return tag("div", button, class_="frame")
