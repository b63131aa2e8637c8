"""How sentences name settings and commands: flags on the command line, keywords in Python.

A sentence is written once, where the setting is known, as an f-string with `Mention` objects in it.
They leave marks in the text, and `spelled` puts what the reader types in their place.
"""

import logging
import re

_RUN_ALONE, _RUN_WITH_OBJECTS = "\x0e", "\x0f"  # none of which ends a line
MARKS = f"\x02\x03\x04{_RUN_ALONE}{_RUN_WITH_OBJECTS}"
"""What mentions leave in a text besides printable characters; none is whitespace."""
_INNER = re.compile("[\x02\x03\x04]")
_MARK = re.compile("\x02([^\x02\x03\x04]*)\x04([^\x02\x03\x04]*)\x03")
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


class Mention(str):
    """A setting or a command in a sentence.

    As a string it is what the command line takes. In an f-string it leaves a mark that holds both
    spellings, for `spelled`.

    Attributes:
        in_python: what a Python program writes instead.
        setting: the name of the setting; empty if this is a command.
        value: of the setting, as text; None if the sentence names the setting alone.
    """

    in_python: str
    setting: str
    value: str | None

    def __new__(
        cls, text: str, in_python: str, setting: str = "", value: str | None = None
    ) -> "Mention":
        """Makes a mention that reads `text` on the command line."""
        mention = super().__new__(cls, text)
        mention.in_python, mention.setting, mention.value = in_python, setting, value
        return mention

    def __format__(self, spec: str) -> str:
        """The mark; format specifications have no meaning here."""
        del spec
        text, in_python = _INNER.sub("?", str(self)), _INNER.sub("?", self.in_python)
        return f"\x02{text}\x04{in_python}\x03"

    def __getnewargs__(self) -> tuple[str, str, str, str | None]:  # type: ignore[override] # str's has one
        return str(self), self.in_python, self.setting, self.value


def flag(name: str, value: object = None) -> Mention:
    """A setting that has a flag: `--batch-size 10`, and `batch_size=10` in Python.

    Args:
        name: as files of settings have it.
        value: what the user gave or is to give; a switch has none on the command line. None: the
            sentence names the setting alone.
    """
    spelled_flag = "--" + name.replace("_", "-")
    if value is None:
        return Mention(spelled_flag, name, name)
    text = str(value)
    shown = spelled_flag if isinstance(value, bool) else f"{spelled_flag} {text}"
    return Mention(shown, f"{name}={text}", name, text)


def key(name: str, value: object = None) -> Mention:
    """A setting without a flag: `--set quorum=0.5`, and `quorum=0.5` in Python."""
    if value is None:
        return Mention(f"--set {name}", name, name)
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return Mention(f"--set {name}={text}", f"{name}={value}", name, text)


def output(path: object) -> Mention:
    """Where the user wants something written: `-o page.html`, and `output=page.html` in Python."""
    return Mention(f"-o {path}", f"output={path}", "output", str(path))


def command(verb: str, run: object, *, trains_by: str = "train", **flags: object) -> Mention:
    """What the user does with a run: `mdgan report runs/a`, and `Run.open("runs/a").report()`.

    Args:
        verb: `report`, `sample`, `evaluate`, `audit` or `resume`.
        run: its folder.
        trains_by: the command that `resume` is a flag of.
        flags: by the names of settings.
    """
    start = f"mdgan {trains_by} --resume" if verb == "resume" else f"mdgan {verb}"
    typed = " ".join([f"{start} {run}", *(str(flag(name, v)) for name, v in flags.items())])
    keywords = ", ".join(f"{name}={value}" for name, value in flags.items())
    objects = _RUN_ALONE if verb == "report" else _RUN_WITH_OBJECTS
    return Mention(typed, f'mdgan.Run.open("{run}"{objects}).{verb}({keywords})')


def spelled(text: str, *, in_python: bool = False, objects: str = "") -> str:
    """A sentence as its reader types what it names.

    Args:
        text: with the marks of mentions.
        in_python: whether the reader writes Python.
        objects: the arguments of `Run.open` that hand over what only the program has, such as
            `data=…`.
    """
    said = _MARK.sub(r"\2" if in_python else r"\1", text)
    return said.replace(_RUN_WITH_OBJECTS, objects and f", {objects}").replace(_RUN_ALONE, "")


def without_controls(text: str) -> str:
    """A text with question marks for what moves a terminal; names of foreign files may have it."""
    return _CONTROLS.sub("?", text)


def mark_arguments(record: logging.LogRecord) -> None:
    """Sees to it that mentions and refusals that a log line is given leave their marks in it."""
    if isinstance(record.args, tuple):
        record.args = tuple(
            f"{each}" if isinstance(each, Mention) else getattr(each, "marked", each)
            for each in record.args
        )


def count(amount: int, one: str, many: str | None = None) -> str:
    """`1 swap`, `2,000 swaps`."""
    return f"{amount:,} {one if amount == 1 else many or one + 's'}"
