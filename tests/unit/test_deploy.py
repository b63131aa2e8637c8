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
from mdgan.launch.given import Given, known_settings
from mdgan.launch.links import DEFAULT_PORT
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
    (results,) = [r for r in resources() if (r["kind"], r["metadata"]["name"]) == (kind, name)]
    return results


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
    (settings,) = kustomization["configMapGenerator"]
    secrets = {secret["name"]: secret["files"] for secret in kustomization["secretGenerator"]}
    workers = range(named("StatefulSet", "mdgan-worker")["spec"]["replicas"])
    assert secrets == {  # made by the user, and ignored by Git
        "mdgan-server-credentials": ["authority/server.cred"],
        "mdgan-worker-credentials": [f"authority/mdgan-worker-{n}.cred" for n in workers],
    }
    listed = {"kustomization.yaml", *kustomization["resources"], *settings["files"]}
    assert {path.name for path in KUBERNETES.iterdir() if path.is_file()} == listed
    for name in ("mdgan-server", "mdgan-worker"):
        volumes = {volume["name"]: volume for volume in pod(name)["volumes"]}
        assert volumes["settings"]["configMap"]["name"] == settings["name"]
        assert volumes["credentials"]["secret"]["secretName"] == f"{name}-credentials"
        assert pod(name)["containers"][0]["image"] == kustomization["images"][0]["name"]


@pytest.mark.parametrize("name", ["mdgan-server", "mdgan-worker"])
def test_what_a_container_mounts_is_there(name: str) -> None:
    spec = named("StatefulSet", name)["spec"]
    claims = [claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]]
    volumes = [volume["name"] for volume in pod(name)["volumes"]]
    (container,) = pod(name)["containers"]
    mounts = [mount["name"] for mount in container["volumeMounts"]]
    assert sorted(mounts) == sorted(claims + volumes)
    assert named("Service", spec["serviceName"])["spec"]["clusterIP"] == "None"
    labels = spec["template"]["metadata"]["labels"].items()
    assert spec["selector"]["matchLabels"].items() <= labels
    policy = named("NetworkPolicy", "mdgan-run")["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= labels


def test_the_network_leads_nowhere_but_to_the_run_and_to_dns() -> None:
    policy = named("NetworkPolicy", "mdgan-run")["spec"]
    run = [{"podSelector": policy["podSelector"]}]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert [rule["from"] for rule in policy["ingress"]] == [run]
    among, dns = policy["egress"]
    assert among["to"] == run
    assert {(port["protocol"], port["port"]) for port in dns["ports"]} == {("UDP", 53), ("TCP", 53)}
    assert dns["to"][0]["podSelector"]["matchLabels"] == {"k8s-app": "kube-dns"}


@pytest.mark.parametrize("name", ["mdgan-server", "mdgan-worker"])
def test_a_pod_may_do_nothing_that_it_need_not(name: str) -> None:
    spec = pod(name)
    assert spec["automountServiceAccountToken"] is spec["enableServiceLinks"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & spec.keys()
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"].keys() == {"cpu", "memory", "ephemeral-storage"}
    for volume in spec["volumes"]:
        assert volume.get("emptyDir", {"sizeLimit": ""}).keys() >= {"sizeLimit"}


def test_each_pod_sees_its_own_certificate_alone() -> None:
    (server,), (worker,) = (pod(f"mdgan-{role}")["containers"] for role in ("server", "worker"))
    (mount,) = [m for m in worker["volumeMounts"] if m["name"] == "credentials"]
    assert mount["subPathExpr"] == "$(POD_NAME).cred"
    assert f"install -m 600 {mount['mountPath']} " in worker["args"][0]
    assert "/server.cred " in server["args"][0]


def test_the_settings_are_mdgans_and_fit_the_number_of_workers() -> None:
    settings = json.loads((KUBERNETES / "settings.json").read_text())
    assert set(settings) <= known_settings().keys()
    named_run = Given([settings]).named()
    workers = named("StatefulSet", "mdgan-worker")["spec"]["replicas"]
    assert named_run.draft.world_size == workers + 1


@pytest.mark.parametrize("name", ["mdgan-server", "mdgan-worker"])
def test_pods_start_mdgan_with_flags_that_it_has(name: str) -> None:
    (container,) = pod(name)["containers"]
    flags = mdgan_flags(container["args"][0])
    entries = {option for parameter in train.params for option in parameter.opts}
    assert {flag for flag in flags if flag.startswith("--")} <= entries
    assert flags[flags.index("--master-port") + 1] == str(DEFAULT_PORT)
    # A secret's file can be read by its group; mdgan wants a key of its owner alone.
    (there,) = re.findall(f"install -m 600 (.*) {of(flags)}", container["args"][0])
    (mount,) = [m for m in container["volumeMounts"] if m["name"] == "credentials"]
    assert there.startswith(mount["mountPath"])
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
    entries = {option for parameter in train.params for option in parameter.opts}
    ranks, folders, secrets = [], [], set[str]()
    for name, service in compose["services"].items():
        command, *flags = shlex.split(re.sub(r"\$\{flags:-(.*?)\}", r"\1", service["command"]))
        assert command == "train"
        assert {flag for flag in flags if flag.startswith("--")} <= entries
        values = dict(zip(flags[::2], flags[1::2], strict=True))
        ranks.append(values["--ranks"])
        assert values["--world-size"] == str(len(compose["services"]))
        assert values["--master-addr"] == "server"
        assert values["--credentials"] == f"/run/secrets/{name}"
        assert service["secrets"] == [name]
        secrets.add(compose["secrets"][name]["file"])
        if name != "server":
            folders += [volume.partition(":")[0] for volume in service["volumes"]]
    assert sorted(ranks) == ["0", "1", "2"]
    assert len(set(folders)) == 4
    assert len(secrets) == 3


def test_no_container_of_compose_may_do_what_it_need_not() -> None:
    (compose,) = documents(REPOSITORY / "compose.yaml")
    assert compose["networks"] == {"run": {"internal": True}}
    for service in compose["services"].values():
        assert service["networks"] == ["run"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["read_only"] is True
        assert service["tmpfs"] == ["/tmp:size=256m,mode=1777"]
        assert service["user"] == "${UID:-1000}:${GID:-1000}"
        assert {"cpus", "mem_limit", "pids_limit"} <= service.keys()
        assert not {"privileged", "cap_add", "ports", "network_mode", "pid"} & service.keys()


def test_the_image_gets_all_that_the_package_is_built_from_and_no_secret() -> None:
    text = (REPOSITORY / "Dockerfile").read_text()
    (base,) = re.findall("^ARG BASE=(.*)$", text, re.M)
    assert re.fullmatch(r"docker\.io/library/python:[\w.-]+@sha256:[0-9a-f]{64}", base)
    assert re.findall("^FROM (.*)$", text, re.M) == ["${BASE}"]
    assert re.findall("^USER (.*)$", text, re.M) == ["1000:1000"]
    copied = {word for line in re.findall(r"^COPY (.*) \S+$", text, re.M) for word in line.split()}
    assert all((REPOSITORY / name).exists() for name in copied)
    pyproject = import_module("tomllib").loads((REPOSITORY / "pyproject.toml").read_text())
    wheel = pyproject["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*wheel["packages"], *wheel["force-include"], pyproject["project"]["readme"]}
    assert needed | {*pyproject["project"]["license-files"]} <= copied
    ignored = (REPOSITORY / ".dockerignore").read_text().splitlines()
    assert {line[1:] for line in ignored if line.startswith("!")} == copied | {"Dockerfile"}
    assert {"**/*.token", "**/*.cred", "**/*.key", "**/*.pem"} <= set(ignored)


def test_make_install_takes_nothing_whose_hash_it_does_not_know() -> None:
    """But PyTorch without CUDA, which has its own index."""
    lock = (REPOSITORY / "requirements.lock").read_text()
    entries = re.findall(
        r"^([a-z][\w.-]*)==(\S+)(.*(?:\n    --hash=sha256:[0-9a-f]{64}.*)+)", lock, re.M
    )
    assert len(entries) == len(re.findall("^[^ #]", lock, re.M))
    versions = {name: version for name, version, _ in entries}
    constraints = (REPOSITORY / "constraints.txt").read_text()
    wanted = dict(re.findall(r"^([\w.-]+)==(\S+)$", constraints, re.M))
    assert {n: v for n, v in versions.items() if n in wanted and wanted[n] != v} == {}
    project = import_module("tomllib").loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *extras["plots"], *extras["inception"]]
    assert {re.split("[>=<]", need)[0] for need in needed} <= versions.keys()
    makefile = (REPOSITORY / "Makefile").read_text()
    (install,) = re.findall(r"^\$\(STAMP\):.*\n((?:\t.*\n|ifeq.*\n|endif\n)*)", makefile, re.M)
    assert "--require-hashes" in install
    assert "--no-build-isolation" in install
