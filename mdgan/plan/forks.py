"""Work done in forks of this process at the same time, and what becomes of it."""

import json
import multiprocessing
import os
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from mdgan.errors import BadInput


class ForkFailed(RuntimeError):
    """One of the forks did not come to an end; the text says why in one line."""


def at_once(works: Sequence[Callable[[], Any]]) -> list[Any]:
    """Does each in a fork of its own, all at the same time.

    Args:
        works: give what JSON can say.

    Returns:
        What each gave; lists in place of tuples.

    Raises:
        ForkFailed: one failed; the others are ended.
        BadInput: one says that the user can mend it.
    """
    forking = multiprocessing.get_context("fork")
    processes, found = [], {}
    ends: dict[Connection, int] = {}
    try:
        for number, work in enumerate(works):
            ours, theirs = forking.Pipe(duplex=False)
            processes.append(forking.Process(target=_tell, args=(work, theirs), daemon=True))
            processes[-1].start()
            theirs.close()
            ends[ours] = number
        while ends:
            for end in wait(list(ends)):
                assert isinstance(end, Connection)
                found[ends.pop(end)] = _result(end)
    finally:
        for process in processes:
            process.kill()  # not SIGTERM: a fork may have taken over a handler of ours
            process.join()
    return [found[number] for number in range(len(works))]


def _result(end: Connection) -> Any:
    try:
        result, reason, can_be_mended = json.loads(end.recv_bytes())
    except EOFError as error:
        raise ForkFailed("its process was killed, as if memory were used up") from error
    if reason:
        raise BadInput(reason) if can_be_mended else ForkFailed(reason)
    return result


def _tell(work: Callable[[], Any], end: Connection) -> None:
    with Path(os.devnull).open("w") as nowhere:  # what it says as a run is not meant for the user
        for stream in (1, 2):
            os.dup2(nowhere.fileno(), stream)
    try:
        end.send_bytes(json.dumps([work(), "", False]).encode())
    except BadInput as error:
        end.send_bytes(json.dumps([None, str(error), True]).encode())
    except Exception as error:  # the user's models may fail in any way
        text = " ".join(str(error).split())[:300]
        end.send_bytes(json.dumps([None, f"{type(error).__name__}: {text}", False]).encode())
