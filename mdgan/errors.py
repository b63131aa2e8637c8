"""The two ways in which a run ends early without being a defect."""


class BadInput(ValueError):
    """Something that the user gave cannot work.

    The text is one line that names the value and the way out. The command line prints it and ends
    with status 2. Line breaks in what the user gave become spaces.
    """

    def __init__(self, text: str) -> None:
        super().__init__(" ".join(text.splitlines()))


class Interrupted(Exception):
    """The process was asked to stop (Ctrl-C, SIGTERM, or a STOP message)."""
