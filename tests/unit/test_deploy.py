"""The files for Kubernetes and Docker fit their schemas, each other, and mdgan itself."""

import json
import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from mdgan.cli.train import train
from mdgan.launch.links import DEFAULT_PORT
from mdgan.launch.resolve import known_settings, resolve
from tests.processes import REPOSITORY

KUBERNETES = REPOSITORY / "deploy" / "kubernetes"
VERSIONS = ("1.29", "1.37")
"""The oldest and the newest version of Kubernetes that the files are checked against."""

yaml: Any = pytest.importorskip("yaml")


def documents(path: Path) -> Iterator[dict[str, Any]]:
    yield from yaml.safe_load_all(path.read_text())


def resources() -> list[dict[str, Any]]:
    (kustomization,) = documents(KUBERNETES / "kustomization.yaml")
    return [each for name in kustomization["resources"] for each in documents(KUBERNETES / name)]


def named(kind: str, name: str) -> dict[str, Any]:
    (found,) = [r for r in resources() if (r["kind"], r["metadata"]["name"]) == (kind, name)]
    return found


def pod(name: str) -> dict[str, Any]:
    spec: dict[str, Any] = named("StatefulSet", name)["spec"]["template"]["spec"]
    return spec


def of(flags: list[str]) -> str:
    """The file of `--credentials`."""
    return flags[flags.index("--credentials") + 1]


def mdgan_flags(script: str) -> list[str]:
    """The flags of the one `mdgan train` in a container's script."""
    (command,) = re.findall(r"mdgan train((?:.*\\\n)*.*?) &\n", script)
    return shlex.split(command.replace("\\\n", " "))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", sorted(KUBERNETES.glob("*.yaml")), ids=lambda path: path.name)
def test_every_resource_fits_the_schema_of_the_api(path: Path, version: str) -> None:
    validator: Any = pytest.importorskip("kubernetes_validate")
    for document in documents(path):
        if document["kind"] != "Kustomization":
            validator.validate(document, version, strict=True)


def test_a_resource_that_does_not_fit_is_found() -> None:
    validator: Any = pytest.importorskip("kubernetes_validate")
    wrong = named("StatefulSet", "mdgan-server")
    wrong["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    with pytest.raises(validator.ValidationError, match="readinesProbe"):
        validator.validate(wrong, VERSIONS[-1], strict=True)


def test_every_file_beside_the_kustomization_is_part_of_it() -> None:
    (kustomization,) = documents(KUBERNETES / "kustomization.yaml")
    assert kustomization["apiVersion"] == "kustomize.config.k8s.io/v1beta1"
    (settings,), (secret,) = kustomization["configMapGenerator"], kustomization["secretGenerator"]
    assert secret["files"] == ["run.cred"]  # made by the user, and ignored by Git
    listed = {"kustomization.yaml", *kustomization["resources"], *settings["files"]}
    assert {path.name for path in KUBERNETES.iterdir() if path.suffix != ".cred"} == listed
    for name in ("mdgan-server", "mdgan-worker"):
        volumes = {volume["name"]: volume for volume in pod(name)["volumes"]}
        assert volumes["settings"]["configMap"]["name"] == settings["name"]
        assert volumes["credentials"]["secret"]["secretName"] == secret["name"]
        assert pod(name)["containers"][0]["image"] == kustomization["images"][0]["name"]


@pytest.mark.parametrize("name", ["mdgan-server", "mdgan-worker"])
def test_what_a_container_mounts_is_there(name: str) -> None:
    spec = named("StatefulSet", name)["spec"]
    claims = [claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]]
    volumes = [volume["name"] for volume in pod(name)["volumes"]]
    mounts = [mount["name"] for mount in pod(name)["containers"][0]["volumeMounts"]]
    assert sorted(mounts) == sorted(claims + volumes)
    assert named("Service", spec["serviceName"])["spec"]["clusterIP"] == "None"
    labels = spec["template"]["metadata"]["labels"].items()
    assert spec["selector"]["matchLabels"].items() <= labels
    policy = named("NetworkPolicy", "mdgan-run")["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= labels


def test_the_settings_are_mdgans_and_fit_the_number_of_workers() -> None:
    settings = json.loads((KUBERNETES / "settings.json").read_text())
    assert set(settings) <= known_settings().keys()
    resolved = resolve([settings])
    workers = named("StatefulSet", "mdgan-worker")["spec"]["replicas"]
    assert resolved.settings.world_size == workers + 1


@pytest.mark.parametrize("name", ["mdgan-server", "mdgan-worker"])
def test_pods_start_mdgan_with_flags_that_it_has(name: str) -> None:
    (container,) = pod(name)["containers"]
    flags = mdgan_flags(container["args"][0])
    known = {option for parameter in train.params for option in parameter.opts}
    assert {flag for flag in flags if flag.startswith("--")} <= known
    assert flags[flags.index("--master-port") + 1] == str(DEFAULT_PORT)
    # A secret's file can be read by its group; mdgan wants a key of its owner alone.
    assert f"install -m 600 /etc/mdgan/credentials/run.cred {of(flags)}" in container["args"][0]
    address = flags[flags.index("--master-addr") + 1]
    if name == "mdgan-server":
        assert flags[flags.index("--ranks") + 1] == "0"
        assert address == "$POD_IP"
        assert container["ports"] == [{"name": "mdgan", "containerPort": DEFAULT_PORT}]
        for probe in ("startupProbe", "readinessProbe"):
            assert container[probe]["tcpSocket"] == {"port": "mdgan"}
    else:
        assert address == "mdgan-server-0.mdgan-server"


def test_compose_starts_every_rank_once_with_flags_that_mdgan_has() -> None:
    (compose,) = documents(REPOSITORY / "compose.yaml")
    known = {option for parameter in train.params for option in parameter.opts}
    ranks, folders = [], []
    for name, service in compose["services"].items():
        command, *flags = shlex.split(re.sub(r"\$\{flags:-(.*?)\}", r"\1", service["command"]))
        assert command == "train"
        assert {flag for flag in flags if flag.startswith("--")} <= known
        values = dict(zip(flags[::2], flags[1::2], strict=True))
        ranks.append(values["--ranks"])
        assert values["--world-size"] == str(len(compose["services"]))
        assert values["--master-addr"] == "server"
        assert values["--credentials"] == f"/run/secrets/{service['secrets'][0]}"
        assert service["secrets"][0] in compose["secrets"]
        if name != "server":
            folders.append(next(v for v in service["volumes"] if v.endswith(":/data:ro")))
    assert sorted(ranks) == ["0", "1", "2"]
    assert len(set(folders)) == 2


def test_the_image_gets_all_that_the_package_is_built_from_and_no_secret() -> None:
    text = (REPOSITORY / "Dockerfile").read_text()
    copied = {word for line in re.findall(r"^COPY (.*) \S+$", text, re.M) for word in line.split()}
    assert all((REPOSITORY / name).exists() for name in copied)
    pyproject = import_module("tomllib").loads((REPOSITORY / "pyproject.toml").read_text())
    wheel = pyproject["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*wheel["packages"], *wheel["force-include"], pyproject["project"]["readme"]}
    assert needed | {*pyproject["project"]["license-files"]} <= copied
    ignored = (REPOSITORY / ".dockerignore").read_text().splitlines()
    assert {line[1:] for line in ignored if line.startswith("!")} == copied | {"Dockerfile"}
    assert {"**/*.token", "**/*.cred", "**/*.key", "**/*.pem"} <= set(ignored)
