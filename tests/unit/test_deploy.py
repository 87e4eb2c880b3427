"""The manifests say what the services read: no mount too many, none missing, no privilege."""

from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

from common.bus import TOPOLOGY
from common.settings import SERVICES, Service, Settings, read_settings

DEPLOY = Path(__file__).parents[2] / "deploy"

# Which paths a process reads (r) or writes (w), in the words of the settings. One row per service.
USES: dict[Service, dict[str, str]] = {
    "watcher": {"run": "w", "host_proc": "r", "host_modules": "r", "machine": "r"},
    "publisher": {"run": "w", "plugin_dir": "w", "token": "r"},
    "plugin": {
        "run": "w",
        "host_proc": "r",
        "machine": "r",
        "plugin_dir": "w",
        "registry_dir": "w",
        "cdi": "w",
        "host_bus": "w",
        "token": "r",
    },
    "reconciler": {"run": "w", "host_proc": "r", "machine": "r", "plugin_dir": "w", "cdi": "w"},
}
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def pod() -> dict[str, Any]:
    (daemonset,) = documents(DEPLOY / "base/daemonset.yaml")
    template: dict[str, Any] = daemonset["spec"]["template"]["spec"]
    return template


def container(service: Service) -> dict[str, Any]:
    (found,) = [each for each in pod()["containers"] if each["name"] == service]
    return dict(found)


def settings_of(service: Service) -> Settings:
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    for variable in container(service)["env"]:
        environ[variable["name"]] = variable.get("value", "node-1")
    return read_settings(service, environ)


def place(service: Service, use: str) -> str:
    if use == "token":
        return TOKEN
    value = Path(getattr(settings_of(service), use))
    return str(value.parent if use == "machine" else value)


def test_the_pod_holds_one_container_for_each_service() -> None:
    assert [each["name"] for each in pod()["containers"]] == list(SERVICES)


@pytest.mark.parametrize("service", SERVICES)
def test_a_container_mounts_what_its_service_uses_and_nothing_else(service: Service) -> None:
    mounted = {
        each["mountPath"]: "r" if each.get("readOnly", False) else "w"
        for each in container(service)["volumeMounts"]
    }
    assert mounted == {place(service, use): mode for use, mode in USES[service].items()}


@pytest.mark.parametrize("service", SERVICES)
def test_a_container_is_root_without_any_capability(service: Service) -> None:
    assert container(service)["securityContext"] == {
        "runAsUser": 0,
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


@pytest.mark.parametrize("service", SERVICES)
def test_a_container_serves_its_own_port_to_probes_and_scrapes(service: Service) -> None:
    spec = container(service)
    (port,) = spec["ports"]
    assert settings_of(service).metrics_addr == f":{port['containerPort']}"
    assert port["name"] == service
    assert spec["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": service}
    assert spec["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": service}


@pytest.mark.parametrize("service", SERVICES)
def test_a_container_has_a_memory_limit_and_no_cpu_limit(service: Service) -> None:
    resources = container(service)["resources"]
    assert set(resources["limits"]) == {"memory"}
    assert set(resources["requests"]) == {"cpu", "memory"}


@pytest.mark.parametrize("service", SERVICES)
def test_a_container_knows_its_node_and_its_pod(service: Service) -> None:
    fields = {
        variable["name"]: variable["valueFrom"]["fieldRef"]["fieldPath"]
        for variable in container(service)["env"]
        if "valueFrom" in variable
    }
    assert fields == {"NODE_NAME": "spec.nodeName", "POD_UID": "metadata.uid"}


def test_every_sender_and_reader_of_the_bus_mounts_the_same_folder() -> None:
    names = {topic.sender for topic in TOPOLOGY} | {reader for topic in TOPOLOGY for reader in topic.readers}
    folders = {
        each["name"]
        for service in names
        for each in container(service)["volumeMounts"]
        if each["mountPath"] == str(settings_of(service).run)
    }
    assert folders == {"run"}


def test_the_pod_shares_no_namespace_of_the_host_but_hears_the_kernel() -> None:
    spec = pod()
    assert spec["hostUsers"] is True
    assert not {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"} & set(spec)


def test_every_folder_of_the_host_that_is_ours_is_made_when_missing() -> None:
    kinds = {
        each["hostPath"]["path"]: each["hostPath"]["type"] for each in pod()["volumes"] if "hostPath" in each
    }
    assert {path for path, kind in kinds.items() if kind != "DirectoryOrCreate"} == {"/proc", "/sys/bus"}


def test_a_roll_starts_the_new_pod_first() -> None:
    (daemonset,) = documents(DEPLOY / "base/daemonset.yaml")
    assert daemonset["spec"]["updateStrategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_only_publisher_and_plugin_hold_a_token() -> None:
    holders = [
        service
        for service in SERVICES
        if any(each["name"] == "token" for each in container(service)["volumeMounts"])
    ]
    assert holders == ["publisher", "plugin"]
    assert pod()["automountServiceAccountToken"] is False


def test_no_rule_of_the_role_has_a_wildcard() -> None:
    (role,) = [each for each in documents(DEPLOY / "base/rbac.yaml") if each["kind"] == "ClusterRole"]
    words = [word for rule in role["rules"] for values in rule.values() for word in values]
    assert not [word for word in words if "*" in word]


@pytest.mark.parametrize("path", sorted(DEPLOY.glob("examples/workloads/*.yaml")), ids=lambda path: path.stem)
def test_an_example_runs_without_privilege_or_folders_of_the_host(path: Path) -> None:
    for document in documents(path):
        spec = document["spec"].get("template", document).get("spec", {})
        for each in spec.get("containers", []):
            assert each["securityContext"]["allowPrivilegeEscalation"] is False
            assert each["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert not [volume for volume in spec.get("volumes", []) if "hostPath" in volume]


@pytest.mark.parametrize("path", sorted(DEPLOY.glob("examples/workloads/*.yaml")), ids=lambda path: path.stem)
def test_an_example_names_classes_that_the_examples_define(path: Path) -> None:
    defined = {each["metadata"]["name"] for each in documents(DEPLOY / "examples/deviceclasses.yaml")}
    named = {
        request["exactly"]["deviceClassName"]
        for document in documents(path)
        if document["kind"].startswith("ResourceClaim")
        for request in document["spec"].get("spec", document["spec"])["devices"]["requests"]
    }
    assert named
    assert named <= defined


def test_every_host_path_is_absolute_and_plain() -> None:
    paths = [each["hostPath"]["path"] for each in pod()["volumes"] if "hostPath" in each]
    assert [path for path in paths if ".." in PurePosixPath(path).parts or not path.startswith("/")] == []
