"""Counts the files on the way of F_n from a worker to the generator's optimizer."""

import threading
from collections.abc import Callable, Iterable, Mapping
from types import FrameType
from typing import Any

import pytest
from torch import Tensor

from mdgan.engine.answers import Answers
from mdgan.engine.server.hosts import HostAnswer
from mdgan.engine.stages.contract import Leaving
from mdgan.families.mdgan.algorithm import Judgement, WorkerSide
from mdgan.gan.codecs import Codec
from mdgan.gan.labels import Samples
from mdgan.messages import Message
from tests.processes import REPOSITORY
from tests.unit.families.mdgan.stage import Stage

PACKAGE = f"{REPOSITORY / 'mdgan'}/"
MOST_FILES = 10
MakeStage = Callable[..., Stage]


class Marked(Tensor):
    """F_n; what is computed from it is marked, too."""


def marked(tensor: Tensor) -> Tensor:
    return tensor.as_subclass(Marked)


def holds(value: object, depth: int = 4) -> bool:
    """Whether F_n is in a value, or in what that holds."""
    if isinstance(value, Marked):
        return True
    within: Iterable[object] = ()
    if isinstance(value, Mapping):
        within = [*value.values()]
    elif isinstance(value, list | tuple):
        within = value
    elif isinstance(value, Answers | HostAnswer | Leaving | Message):
        names = "singles", "sums", "answers", "tensors", "message"
        within = [getattr(value, name, None) for name in names]
    return depth > 0 and any(holds(each, depth - 1) for each in within)


def test_feedback_enters_few_files(stage: MakeStage, monkeypatch: pytest.MonkeyPatch) -> None:
    files = set[str]()
    feedback, decode = WorkerSide.feedback, Codec.decode

    def marks_feedback(worker: WorkerSide, judged: Samples) -> Judgement:
        result = feedback(worker, judged)
        return result._replace(feedback=marked(result.feedback))

    def marks_again(codec: Codec, *arguments: Any) -> Tensor:
        """After the wire, at the server, where a codec reads answers alone."""
        decoded = decode(codec, *arguments)
        return marked(decoded) if threading.current_thread() is made.actor else decoded

    def look(frame: FrameType, event: str, result: object) -> None:
        name = frame.f_code.co_filename
        if event == "return" and name.startswith(PACKAGE) and "/transport/" not in name:
            values = {key: value for key, value in frame.f_locals.items() if key != "self"}
            if holds(result) or holds(values):
                files.add(name.removeprefix(PACKAGE))

    monkeypatch.setattr(WorkerSide, "feedback", marks_feedback)
    monkeypatch.setattr(Codec, "decode", marks_again)
    made = stage(num_workers=4, iterations=20, swap_interval=0)
    before = threading.getprofile()
    threading.setprofile(look)
    try:
        made.host((1, 2, 3, 4))
        made.begin()
    finally:
        threading.setprofile(before)
    made.finished()
    assert {"families/mdgan/algorithm.py", "engine/stages/screen.py"} <= files
    assert len(files) <= MOST_FILES, sorted(files)
