"""`mdgan token`: writes the secret that every process of a run must know."""

import os
import secrets
from pathlib import Path

import click

from mdgan.errors import BadInput

_NUM_BYTES = 32


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
def token(file: Path) -> None:
    """Write a fresh secret to FILE, for --join-token. Copy it to every machine of the run."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise BadInput(
            f"{file}: is there already; remove it first, or give another name"
        ) from error
    except OSError as error:
        raise BadInput(f"{file}: cannot be written ({error.strerror})") from error
    with os.fdopen(descriptor, "w") as written:
        written.write(secrets.token_hex(_NUM_BYTES) + "\n")
    print(f"{file}: a new secret; copy it to every machine and give --join-token {file} there")
