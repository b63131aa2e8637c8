"""Files that are complete whenever they are there."""

import os
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file so that nobody ever sees half of it: temporary name, flush, rename.

    Raises:
        OSError: it cannot be written; what was there before is still there.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)
