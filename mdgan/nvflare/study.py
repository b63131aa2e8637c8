"""A study: the settings that all machines of a run agree on, and the NVFlare job that runs it.

`mdgan job nvflare` writes a `Study` as a job; each machine then reads the files as a `Job`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from mdgan.data.find import find_all
from mdgan.errors import BadInput
from mdgan.launch.given import Given, known_settings
from mdgan.launch.settled import Settled, load, settle
from mdgan.launch.site_file import digest_of
from mdgan.metrics.chosen import extractor_identity
from mdgan.samples.table.schema import read_schema
from mdgan.settings.config_file import read_config_file
from mdgan.settings.machine import path_of
from mdgan.spelling import count, flag, output
from mdgan.storage.whole_file import make_folder, write_output
from mdgan.version import SERIES, __version__

SETTINGS, ASKED, SCHEMA = "study.json", "asked.json", "schema.json"
DATASETS = "datasets"
"""The folder of a job's dataset file, within the job's custom code, as NVFlare calls it."""
TASK = "mdgan"

_FILES = ("schema", "datasets_dir")  # settings whose files the job carries
_OF_THE_SERVER = (
    *("eval_interval", "eval_samples", "sample_interval", "log_interval", "deadline"),
    *("on_deadline", "quorum", "strikes", "checkpoint_interval", "checkpoint_keep"),
    *("liveness_timeout", "patience", "connect_timeout", "max_world_size", "threads", "vectorize"),
)
"""Settings of rank 0's machine that a study may have: they name no files and open no ports."""


@dataclass(frozen=True)
class Study:
    """The settings of a run on all machines, as a file of settings gives them."""

    settings: Mapping[str, Any]  # as `--config` takes them, without those that name files
    asked: Mapping[str, Any]  # the values that must be equal on all machines, with the version
    settled: Settled

    @classmethod
    def read(cls, config: Path) -> "Study":
        """Reads a file of settings; BadInput if a study may not have one of them."""
        known = known_settings()
        values = read_config_file(config, known).settings
        chosen = {name: value for name, value in values.items() if value is not None}
        settings = kept_by_a_study(chosen, str(config))
        files = {name: chosen[name] for name in _FILES if name in chosen}
        named = Given([{**settings, **files}]).named()
        if named.is_one_process:
            raise BadInput(config, "its algorithm has no workers, so there are no sites")
        settled = settle(load(named, looks_at_folders=False))
        extractor = extractor_identity(settled.settings.scores, settled.dataset)
        return cls(settings, settled.asked(extractor), settled)

    @property
    def digest(self) -> str:
        """The hash of `asked`, which sites approve."""
        return digest_of(self.asked)

    @property
    def schema(self) -> Path | None:
        """The file with the columns, if there is one."""
        name = self.settled.settings.data.schema
        return None if name is None else path_of(name)

    @property
    def own_dataset(self) -> Path | None:
        """The dataset file, if it does not come with mdgan."""
        path = self.settled.dataset.path
        return None if path in find_all(None).values() else path

    def in_words(self) -> list[str]:
        """Lines for the person who decides whether a site takes part."""
        run, dataset = self.settled.settings, self.settled.dataset
        privacy, is_secure = run.privacy, run.secure.secure_aggregation
        unit = "client" if privacy.hides_clients else "sample"
        bounds = f"ε {privacy.dp_epsilon}, δ {privacy.dp_delta}, for each {unit}"
        code, schema = self.own_dataset, self.schema
        disclosures = [
            *["counts of its columns"] * (schema is not None),
            *["sums for scores"] * (not privacy.has_dp),
            "one sum over its samples" if run.tells_once else "answers in each iteration",
        ]
        noise = " with noise" * privacy.covers_samples
        rows = {
            "study": self.digest,
            "version": f"mdgan {__version__}",
            "algorithm": f"{run.algorithm}, {self.settled.algorithm.about}",
            "run": f"{run.num_workers} workers, {count(run.training.iterations, 'iteration')}",
            "data": f"{dataset.name}, {dataset.about}".removesuffix(", "),
            "program": code and f"{code.name} runs at each site, so read it: {dataset.sha256}",
            "columns": schema and ", ".join(read_schema(schema).names),
            "target": run.data.target,
            "privacy": bounds if privacy.has_dp else "none: what leaves can tell of single samples",
            "in sums": "of three sites or more" if is_secure else "no: the server sees each answer",
            "leaves": f"no sample; how many there are, and{noise} {', '.join(disclosures)}",
            "disclosed": privacy.has_dp and privacy.dp_disclose,
        }
        return [f"{name:10} {text}" for name, text in rows.items() if text]

    def write_job(self, folder: Path, name: str) -> None:
        """Writes the folder that `nvflare job submit` takes."""
        if folder.exists() and any(folder.iterdir()):
            raise BadInput(output(folder), "is there already", "name a new folder")
        config, code = folder / "app" / "config", folder / "app" / "custom" / DATASETS
        run = {"run": f"{name}-{self.digest:.8}"}
        server = {"id": "mdgan", "path": "mdgan.nvflare.server.JobServer", "args": run}
        site = {"path": "mdgan.nvflare.site.JobSite", "args": {}}
        # NVFlare begins with one site, so that mdgan's own message names the missing ones.
        meta = {
            "name": name,
            "min_clients": 1,
            "resource_spec": {},
            "deploy_map": {"app": ["@ALL"]},
        }
        files: dict[Path, Any] = {
            folder / "meta.json": meta,
            config / "config_fed_server.json": {"format_version": 2, "workflows": [server]},
            config / "config_fed_client.json": {
                "format_version": 2,
                "executors": [{"tasks": [TASK], "executor": site}],
            },
            config / SETTINGS: self.settings,
            config / ASKED: self.asked,
        }
        copies = {path: json.dumps(file, indent=2).encode() + b"\n" for path, file in files.items()}
        if self.schema is not None:
            copies[config / SCHEMA] = self.schema.read_bytes()
        if self.own_dataset is not None:
            copies[code / self.own_dataset.name] = self.own_dataset.read_bytes()
        for path, content in copies.items():
            make_folder(path.parent)
            write_output(path, content)


def kept_by_a_study(given: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Drops a machine's files and defaults; BadInput if another setting is a machine's."""
    known, kept = known_settings(), dict[str, Any]()
    for name, value in given.items():
        if known[name].shared or name in _OF_THE_SERVER:
            kept[name] = value
        elif name not in _FILES and value != known[name].default:
            why = f"a study cannot say {flag(name, value)}"
            raise BadInput(source, why, "write it into the file of the site")
    return kept


@dataclass(frozen=True)
class Job:
    """The files of a job, in the folders into which NVFlare has put them on a machine."""

    config: Path
    custom: Path

    def _read(self, name: str) -> dict[str, Any]:
        try:
            content = json.loads((self.config / name).read_bytes())
            if not isinstance(content, dict):
                raise ValueError("no object")
        except (OSError, ValueError, RecursionError) as error:
            way_out = "make the job anew with `mdgan job nvflare`"
            raise BadInput(name, f"the job's file cannot be read ({error})", way_out) from error
        return content

    def settings(self) -> dict[str, Any]:
        """The settings for rank 0's `--config`, checked again, with paths of the job's files."""
        content = self._read(SETTINGS)
        if unknown := content.keys() - known_settings().keys():
            raise BadInput(SETTINGS, f"unknown key {min(unknown)!r}")
        return {**kept_by_a_study(content, SETTINGS), **self.files()}

    def asked(self) -> dict[str, Any]:
        """The values that must be equal on all machines; BadInput if this one's version differs."""
        asked = self._read(ASKED)
        if asked.get("version") != SERIES:
            what = f"the job is for mdgan {asked.get('version')!s:.30}, and here is {SERIES}"
            raise BadInput(what, way_out="install the same version at the server and all sites")
        code = self._dataset
        if code and sha256(code.read_bytes()).hexdigest() != asked.get("dataset_sha256"):
            raise BadInput(code.name, "is not what the job's hash is of", "make the job anew")
        return asked

    @property
    def _dataset(self) -> Path | None:
        """The job's dataset file, if it carries one."""
        return next((self.custom / DATASETS).glob("*.py"), None)

    def files(self) -> dict[str, str]:
        """Settings that name files of the job: `schema` and `datasets_dir`."""
        schema, dataset = self.config / SCHEMA, self._dataset
        paths = {"schema": str(schema)} if schema.is_file() else {}
        return paths if dataset is None else {**paths, "datasets_dir": str(dataset.parent)}
