"""A study: the settings that all machines of a run agree on, and the NVFlare job that runs it.

`mdgan job nvflare` writes a `Study` as a job; `mdgan approve` and each machine then read the files
as a `Job`. The hash covers all that mdgan reads of a job, but for settings of rank 0's machine.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from mdgan.data.dataset_file import load_path
from mdgan.data.find import find_all
from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.launch.given import Given, known_settings
from mdgan.launch.guests import of_the_run
from mdgan.launch.settled import load, settle
from mdgan.launch.site_file import SiteFile, digest_of
from mdgan.metrics.chosen import extractor_identity
from mdgan.samples.table.schema import read_schema
from mdgan.settings.config_file import read_config_file
from mdgan.settings.machine import path_of
from mdgan.spelling import count, flag, output
from mdgan.storage.whole_file import make_folder, write_output
from mdgan.version import SERIES

SETTINGS, ASKED, SCHEMA = "server.json", "asked.json", "schema.json"
DATASETS = "datasets"
"""The folder of a job's dataset file. It lies beside the settings, and not in NVFlare's `custom`:
there a site would have to allow its author any code (`byoc`)."""
TASK = "mdgan"

_ANEW = "make the job anew with `mdgan job nvflare`"
_FILES = ("schema", "datasets_dir")  # settings whose files the job carries
_OF_THE_SERVER = (
    *("eval_interval", "eval_samples", "sample_interval", "log_interval", "deadline"),
    *("on_deadline", "quorum", "strikes", "checkpoint_interval", "checkpoint_keep"),
    *("liveness_timeout", "patience", "connect_timeout", "max_world_size", "threads", "vectorize"),
)
"""Settings of rank 0's machine that a study may have: they name no files and open no ports."""


@dataclass(frozen=True)
class Study:
    """A study as its author has it."""

    settings: Mapping[str, Any]  # of rank 0's machine
    asked: Mapping[str, Any]  # the values that must be equal on all machines, with the version
    schema: Path | None  # the file with the columns
    dataset: Path | None  # the dataset file, if it does not come with mdgan

    @classmethod
    def read(cls, config: Path) -> "Study":
        """Reads a file of settings, and runs the dataset file; BadInput if it has another's."""
        known = known_settings()
        values = read_config_file(config, known).settings
        chosen = {name: value for name, value in values.items() if value is not None}
        kept = {x: chosen[x] for x in chosen if known[x].shared or x in _OF_THE_SERVER + _FILES}
        for name in chosen.keys() - kept.keys():
            if chosen[name] != known[name].default:
                why = f"a study cannot say {flag(name, chosen[name])}"
                raise BadInput(config, why, "write it into the file of the site")
        named = Given([kept]).named()
        if named.is_one_process:
            raise BadInput(config, "its algorithm has no workers, so there are no sites")
        settled = settle(load(named, looks_at_folders=False))
        extractor = extractor_identity(settled.settings.scores, settled.dataset)
        schema, dataset = settled.settings.data.schema, settled.dataset.path
        return cls(
            {name: kept[name] for name in kept if name in _OF_THE_SERVER},
            settled.asked(extractor),
            None if schema is None else path_of(schema),
            None if dataset in find_all(None).values() else dataset,
        )

    @property
    def digest(self) -> str:
        """The hash of `asked`, which sites approve."""
        return digest_of(self.asked)

    def write_job(self, folder: Path, name: str) -> None:
        """Writes the folder that `nvflare job submit` takes."""
        if folder.exists() and any(folder.iterdir()):
            raise BadInput(output(folder), "is there already", "name a new folder")
        config = folder / "app" / "config"
        server = {"id": "mdgan", "path": "mdgan.nvflare.server.JobServer", "args": {}}
        site = {"path": "mdgan.nvflare.site.JobSite", "args": {}}
        executors = [{"tasks": [TASK], "executor": site}]
        # NVFlare begins with one site, so that mdgan's own message names the missing ones.
        meta = {"name": name, "min_clients": 1, "resource_spec": {}}
        files: dict[Path, Any] = {
            folder / "meta.json": {**meta, "deploy_map": {"app": ["@ALL"]}},
            config / "config_fed_server.json": {"format_version": 2, "workflows": [server]},
            config / "config_fed_client.json": {"format_version": 2, "executors": executors},
            config / SETTINGS: self.settings,
            config / ASKED: self.asked,
        }
        copies = {path: json.dumps(file, indent=2).encode() + b"\n" for path, file in files.items()}
        if self.schema is not None:
            copies[config / SCHEMA] = self.schema.read_bytes()
        if self.dataset is not None:
            copies[config / DATASETS / self.dataset.name] = self.dataset.read_bytes()
        for path, content in copies.items():
            make_folder(path.parent)
            write_output(path, content)


@dataclass(frozen=True)
class Job:
    """A job's files on any machine. Only its program is code, and nothing here runs that."""

    config: Path
    asked: Mapping[str, Any]
    run: RunSettings  # as `asked` has them
    schema: Path | None
    program: Path | None  # the dataset file, if it does not come with mdgan

    @classmethod
    def read(cls, config: Path) -> "Job":
        """Reads a job's folder `app/config`; BadInput if a file is not what the hash is of."""
        asked = _read(config / ASKED)
        if (version := asked.get("version")) != SERIES:
            what = f"the job is for mdgan {version!s:.30}, and here is {SERIES}"
            raise BadInput(what, way_out="install the same version at the server and all sites")
        run = registry.read_settings([settings := of_the_run(asked)])
        if digest_of(settings) != digest_of(run.as_json(shared=True)):
            raise BadInput(ASKED, "leaves settings to the program, or writes them oddly", _ANEW)
        schema = config / SCHEMA if (config / SCHEMA).is_file() else None
        if schema and read_schema(schema).sha256 != asked.get("schema_sha256"):
            raise BadInput(SCHEMA, "is not what the job's hash is of", _ANEW)
        # NVFlare signs each folder by files of such names.
        files = [x for x in (config / DATASETS).glob("*") if not x.name.startswith(".__nvfl_")]
        name = f"{run.data.dataset}.py"
        if any(each.name != name for each in files):
            raise BadInput(DATASETS, f"may hold {name:.40} alone", _ANEW)
        path = files[0] if files else find_all(None).get(run.data.dataset)
        if path is None or sha256(path.read_bytes()).hexdigest() != asked.get("dataset_sha256"):
            raise BadInput(f"{name:.40}", "is not what the job's hash is of", _ANEW)
        return cls(config, asked, run, schema, path if files else None)

    @property
    def digest(self) -> str:
        """The hash of `asked`, which sites approve."""
        return digest_of(self.asked)

    def check_approved(self, site: SiteFile) -> None:
        """Refuses the study if a site, or the server, has not approved it."""
        if self.program is not None and site.approved is None:
            what = f"the study brings a program, {self.program.name}, and this site approves of any"
            way_out = f"read it, then run `mdgan approve JOB --site {site.path.name}`"
            raise BadInput(what, way_out=way_out)
        site.check_asked(self.asked)

    def in_words(self) -> list[str]:
        """Lines for the person who decides whether a site takes part."""
        run, code, schema = self.run, self.program, self.schema
        privacy, is_secure = run.privacy, run.secure.secure_aggregation
        unit = "client" if privacy.hides_clients else "sample"
        bounds = f"ε {privacy.dp_epsilon}, δ {privacy.dp_delta}, for each {unit}"
        name, algorithm = run.data.dataset, registry.algorithm(run.algorithm)
        about = "" if code else load_path(find_all(None)[name]).about
        disclosures = [
            *["counts of its columns"] * (schema is not None),
            *["sums for scores"] * (not privacy.has_dp),
            "one sum over its samples" if run.tells_once else "answers in each iteration",
        ]
        noise = " with noise" * privacy.covers_samples
        rows = {
            "study": self.digest,
            "version": f"mdgan {SERIES}",
            "algorithm": f"{run.algorithm}, {algorithm.about}",
            "run": f"{run.num_workers} workers, {count(run.training.iterations, 'iteration')}",
            "data": f"{name}, {about}".removesuffix(", "),
            "program": code and f"{code} runs at each site, so read it",
            "columns": schema and ", ".join(read_schema(schema).names),
            "target": run.data.target,
            "privacy": bounds if privacy.has_dp else "none: what leaves can tell of single samples",
            "in sums": "of three sites or more" if is_secure else "no: the server sees each answer",
            "leaves": f"no sample; how many there are, and{noise} {', '.join(disclosures)}",
            "disclosed": privacy.has_dp and privacy.dp_disclose,
        }
        return [f"{name:10} {text}" for name, text in rows.items() if text]

    def settings(self) -> dict[str, Any]:
        """The settings for rank 0's `--config`: those of the hash, and of rank 0's machine."""
        machine = _read(self.config / SETTINGS)
        if others := machine.keys() - set(_OF_THE_SERVER):
            raise BadInput(SETTINGS, f"a job cannot say {min(others)!r:.40}", _ANEW)
        return {**machine, **of_the_run(self.asked), **self.files()}

    def files(self) -> dict[str, str]:
        """Settings that name files of the job: `schema` and `datasets_dir`."""
        folder = self.program and self.program.parent
        paths = {"schema": self.schema, "datasets_dir": folder}
        return {name: str(path) for name, path in paths.items() if path is not None}


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
        if not isinstance(content, dict):
            raise ValueError("no object")
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(path.name, f"the job's file cannot be read ({error})", _ANEW) from error
    return content
