"""The two ways in which a run ends early without being a defect."""


class BadInput(ValueError):
    """Something that the user gave cannot work.

    The text is one line that names the value and the way out. Whoever catches it at the top
    prints that line and ends with status 2.
    """


class Interrupted(Exception):
    """The process was asked to stop (Ctrl-C, SIGTERM, or the server's word)."""
