"""`mdgan standby`: replaces a server when it is gone."""

from pathlib import Path
from typing import Any

import click

from mdgan.cli.environment import prepare_environment
from mdgan.cli.options import settings_options

_AS_IN_THE_RUN = ("workers_per_host", "vectorize", "tune", "transport", "ranks", "out")


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@settings_options(leave_out=_AS_IN_THE_RUN, shared=False)
@click.pass_obj
def standby(started: float, /, run: Path, **flags: Any) -> int:
    """Watch the server of RUN, and take its place from the newest checkpoint when it is gone.

    RUN is the server's --out folder, on a disk that both machines share or that is replicated here.
    Every rank and the standby are started with the same --master-addr SERVER,STANDBY.
    """
    prepare_environment(many_processes=True)
    from mdgan.launch.standby import stand_by

    return stand_by(run, flags, started)
