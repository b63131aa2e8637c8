"""Which certificate a server signs a bundle with: the run's, or one that is named."""

from pathlib import Path

from mdgan.launch.settings import LaunchSettings, LinkSettings, without_other_guards
from mdgan.records.run_directory import RunDirectory


def links_of(run: Path, credentials: str | None, revoked: str | None) -> LinkSettings:
    """The links of a run's server, with the files that the user names in place of its own."""
    given = {"credentials": credentials, "revoked": revoked}
    changes = {name: value for name, value in given.items() if value is not None}
    settings = without_other_guards(changes, RunDirectory.open(run).read_config())
    return LaunchSettings.read({**settings, **changes}).links
