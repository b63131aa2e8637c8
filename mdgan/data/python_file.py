"""Python files of the user's own, loaded by their path."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from mdgan.errors import BadInput


def import_file(path: Path, purpose: str, name: str | None = None) -> ModuleType:
    """Runs a Python file as a module.

    Args:
        path: of the file.
        purpose: tells modules of equal names apart that serve different ends.
        name: what the user calls it, if not by its path.

    Raises:
        BadInput: it cannot be imported.
    """
    module_name = f"mdgan_{purpose}_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # the user's own code: any mistake is theirs to read
        del sys.modules[module_name]
        reason = " ".join(str(error).split())
        kind = type(error).__name__
        raise BadInput(f"{name or path}: cannot be imported: {kind}: {reason}") from error
    return module
