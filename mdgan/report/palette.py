"""All colours of the report, each with a name, a light and a dark variant.

Figures are drawn in the light colours, which are all different. The page replaces each by a CSS
variable of its name, so that one picture suits both colour schemes. The hues are those of Okabe and
Ito (2008), which people of every colour vision tell apart, darkened on white and lightened on black
to a contrast of 3 : 1 (text 4.5 : 1; three light fills with a label beside them only 2.2 : 1).
Waiting and receiving are paler on purpose: readers should notice work first.
"""

from typing import NamedTuple


class Colour(NamedTuple):
    """One colour as `#rrggbb`: on the light page and in exported figures, and on the dark page."""

    light: str
    dark: str


def _mixed(colour: str, share: float) -> str:
    towards = 255 if share > 0 else 0
    channels = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    return "#" + "".join(f"{round(c + abs(share) * (towards - c)):02x}" for c in channels)


# fmt: off
SURFACES = {
    "page": Colour("#f4f3ef", "#101418"), "card": Colour("#fffffe", "#181e24"),
}
INKS = {
    "ink": Colour("#1b2229", "#e7eaec"), "soft": Colour("#56616c", "#a3aeb8"),
}
LINES = {
    "grid": Colour("#e4e3dd", "#2a323a"), "axis": Colour("#a8aaa8", "#5b6670"),
    "idle": Colour("#e2e0d8", "#303a43"),
}
ALGORITHMS = {
    "c1": Colour("#0072b2", "#5ab4ea"), "c2": Colour("#d55e00", "#f58a3c"),
    "c3": Colour("#008a65", "#2fc79a"), "c4": Colour("#b4558c", "#e09ac4"),
    "c5": Colour("#a87400", "#edb22e"), "c6": Colour("#4c5661", "#b9c3cc"),
    "c7": Colour("#7b7300", "#e6dc4a"), "c8": Colour("#2b88bd", "#8fd0f7"),
}
OPERATIONS = {
    "generate": Colour("#e09a00", "#f0b033"), "send": Colour("#3f9fd6", "#56b4e9"),
    "wait": Colour("#a9b0b7", "#5a656f"), "receive": Colour("#8dbad4", "#3a6c8a"),
    "aggregate": Colour("#c0669a", "#d98fbd"), "step": Colour("#cf5a00", "#ee7d2b"),
    "real half": Colour("#00679f", "#3f93cb"), "fake half": Colour("#7a62b0", "#a48fd6"),
    "both halves": Colour("#3f6fb5", "#6b9fe6"), "local step": Colour("#8f3b00", "#b0683c"),
    "feedback": Colour("#00805d", "#23b98c"), "reduce": Colour("#94603f", "#c9987a"),
    "train": Colour("#4b4fb8", "#8f94ec"), "swap": Colour("#8d8400", "#f0e442"),
    "evaluate": Colour("#3e7a1e", "#8cc96a"), "checkpoint": Colour("#7a6652", "#b39d86"),
}
PRESENCE = {
    "took part": Colour("#5a92bd", "#41769e"), "late": Colour("#cd7600", "#f5b53d"),
    "refused": Colour("#a3357f", "#ea8fcf"),
}
# fmt: on

_SHADES = ((-0.35, 0.55), (-0.65, -0.3))
RUNS = {
    **ALGORITHMS,
    **{
        f"{name}-{n}": Colour(_mixed(colour.light, on_light), _mixed(colour.dark, on_dark))
        for n, (on_light, on_dark) in enumerate(_SHADES, start=2)
        for name, colour in ALGORITHMS.items()
    },
}
"""An algorithm has the same hue on every page; its further runs have two other shades."""

HEAT = Colour("#0b76b5", "#3789be")
OTHER = Colour("#6f7a84", "#8c98a3")

PALETTE: dict[str, Colour] = {
    **SURFACES,
    **INKS,
    **LINES,
    **RUNS,
    **{f"op-{name.replace(' ', '-')}": colour for name, colour in OPERATIONS.items()},
    **{f"was-{name.replace(' ', '-')}": colour for name, colour in PRESENCE.items()},
    "heat": HEAT,
    "other": OTHER,
}


def run_colour_name(algorithm: int, nth: int) -> str:
    """The name of the colour of the nth run of an algorithm, both counted from 0."""
    shade = nth % (len(_SHADES) + 1)
    return f"c{algorithm % len(ALGORITHMS) + 1}" + (f"-{shade + 1}" if shade else "")


VARIABLE_OF = {colour.light: f"var(--{name})" for name, colour in PALETTE.items()}
"""Light colour → its CSS variable in the page."""


def css_variables() -> str:
    """The palette as CSS declarations that follow the colour scheme."""
    return "".join(
        f"--{name}:light-dark({colour.light},{colour.dark});" for name, colour in PALETTE.items()
    )
