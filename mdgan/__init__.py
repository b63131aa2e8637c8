"""Train one GAN over data that cannot be moved (MD-GAN, Hardy et al. 2019).

The names below are imported when they are asked for; `docs/python.md` shows how to use them.
"""

import importlib
import logging
import sys
from typing import TYPE_CHECKING, Any

from mdgan.spelling import mark_arguments, spelled, without_controls
from mdgan.version import __version__ as __version__

if TYPE_CHECKING:
    from mdgan.errors import BadInput
    from mdgan.interface import register
    from mdgan.interface.child import RunFailed
    from mdgan.interface.data import Data
    from mdgan.interface.follow import Reached
    from mdgan.interface.run import Run, evaluate
    from mdgan.interface.train import Comparison, Estimator, ScalingManager, compare, start, train


_OTHER_MODULES = {
    "BadInput": "mdgan.errors",
    "Data": "mdgan.interface.data",
    "Reached": "mdgan.interface.follow",
    "Run": "mdgan.interface.run",
    "RunFailed": "mdgan.interface.child",
    "evaluate": "mdgan.interface.run",
}
"""Where names are that are not in `mdgan.interface.train`."""

__all__ = [
    "BadInput",
    "Comparison",
    "Data",
    "Estimator",
    "Reached",
    "Run",
    "RunFailed",
    "ScalingManager",
    "compare",
    "evaluate",
    "register",
    "start",
    "train",
]


class _InPython(logging.NullHandler):
    """Is silent until a program has handlers of its own, which get lines in the words of Python."""

    def handle(self, record: logging.LogRecord) -> bool:
        mark_arguments(record)
        said = spelled(record.getMessage(), in_python=True)
        record.msg, record.args = without_controls(said), ()
        return True


logging.getLogger(__name__).handlers.insert(0, _InPython())  # before those that read


def _say_end(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Says why a program ends: in one line, as in a notebook, if it is no defect."""
    if (lines := getattr(error, "_render_traceback_", None)) is None:
        sys.__excepthook__(kind, error, trace)
    else:
        sys.stderr.write("\n".join([*lines(), ""]))


def __getattr__(name: str) -> Any:
    if name in __all__ and sys.excepthook is sys.__excepthook__:  # else it is the program's own
        sys.excepthook = _say_end
    if name == "register":
        return importlib.import_module("mdgan.interface.register")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _OTHER_MODULES.get(name, "mdgan.interface.train")
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
