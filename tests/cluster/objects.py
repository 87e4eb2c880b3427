"""Kubernetes objects for tests: the shipped manifests, and short words for pods and claims."""

from functools import partial
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.api import Api, Object
from tests.cluster.images import BUSYBOX
from tests.waiting import eventually

REPOSITORY = Path(__file__).resolve().parents[2]
DEPLOY = REPOSITORY / "deploy"
MANIFESTS = Path(__file__).parent / "manifests"
NAMESPACE = "default"


def load(path: Path) -> list[Object]:
    """The objects of a YAML file."""
    return [thing for thing in yaml.safe_load_all(path.read_text()) if thing]


def named(thing: Object, name: str = "", namespace: str = NAMESPACE) -> Object:
    """A copy of a namespaced object, put into a namespace, with another name when one is given."""
    meta = {**thing["metadata"], "namespace": namespace}
    return {**thing, "metadata": meta | ({"name": name} if name else {})}


def container(name: str = "main", script: str = "", request: str | None = "") -> Object:
    """A container that runs a script and sleeps; `request` of claim `gpu`: "" for all, None for no claim."""
    claims: list[Object] = []
    if request is not None:
        claims = [{"name": "gpu"} | ({"request": request} if request else {})]
    return {
        "name": name,
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", f"trap 'exit 0' TERM; {script or 'true'}; sleep 100000 & wait"],
        "resources": {"claims": claims},
    }


def pod(
    name: str,
    *,
    template: str = "",
    claim: str = "",
    containers: list[Object] | None = None,
    node: str = "",
    restart: str = "Always",
) -> Object:
    """A pod whose claim `gpu` is made from a template, or is the claim named."""
    source = {"resourceClaimTemplateName": template} if template else {"resourceClaimName": claim}
    spec: Object = {
        # not 0: that deletes the object at once, while the kubelet still has the pod and its claims
        "terminationGracePeriodSeconds": 1,
        "restartPolicy": restart,
        "automountServiceAccountToken": False,
        "containers": containers or [container()],
    }
    if template or claim:
        spec["resourceClaims"] = [{"name": "gpu", **source}]
    else:
        for each in spec["containers"]:
            each["resources"] = {}
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    meta = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def claim(name: str, device_class: str, selector: str = "", count: int = 1) -> Object:
    """A claim with one request `main`."""
    exactly: Object = {"deviceClassName": device_class, "count": count}
    if selector:
        exactly["selectors"] = [{"cel": {"expression": selector}}]
    spec = {"devices": {"requests": [{"name": "main", "exactly": exactly}]}}
    meta = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": meta, "spec": spec}


def claim_of(api: Api, pod_name: str) -> Object:
    """The ResourceClaim of a pod's only claim; AssertionError while there is none yet."""
    status = api.get("Pod", pod_name, NAMESPACE)["status"].get("resourceClaimStatuses")
    assert status, f"pod {pod_name} has no claim yet"
    return api.get("ResourceClaim", status[0]["resourceClaimName"], NAMESPACE)


def results(claimed: Object) -> dict[str, str]:
    """What a claim was allocated: device by request."""
    found = claimed.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
    return {result["request"]: result["device"] for result in found}


def allocated(api: Api, pod_name: str, timeout_s: float = 20) -> dict[str, str]:
    """Wait until a pod's claim is allocated; device by request."""
    return eventually(
        lambda: results(claim_of(api, pod_name)),
        timeout_s,
        f"the claim of {pod_name} is allocated",
        step_s=0.05,
    )


def refused_by_scheduler(api: Api, pod_name: str, timeout_s: float = 20) -> str:
    """Wait until the scheduler has said why a pod stays Pending; what it said."""

    def words() -> str:
        conditions = api.get("Pod", pod_name, NAMESPACE)["status"].get("conditions", [])
        return next(
            (one.get("message", "") for one in conditions if one.get("reason") == "Unschedulable"), ""
        )

    return eventually(words, timeout_s, f"pod {pod_name} is unschedulable", step_s=0.05)


def running(api: Api, pod_name: str, timeout_s: float = 30) -> Object:
    """Wait until all containers of a pod run; the pod. What its events say is part of the failure."""

    def runs() -> Object:
        seen = api.get("Pod", pod_name, NAMESPACE)
        states: list[Any] = seen["status"].get("containerStatuses", [])
        started = [one for one in states if "running" in one["state"] and one.get("started")]
        done = started and len(started) == len(seen["spec"]["containers"])
        return seen if done else {}

    try:
        return eventually(runs, timeout_s, f"pod {pod_name} runs", step_s=0.02)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{events(api, pod_name)}") from error


def events(api: Api, name: str) -> str:
    """What the events of an object say."""
    found = api.list("Event", NAMESPACE, fieldSelector=f"involvedObject.name={name}")
    return "\n".join(f"{event['reason']}: {event['message']}" for event in found)


def log(api: Api, pod_name: str, container_name: str = "main") -> list[str]:
    """The lines that a container has printed."""
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod_name}/log?container={container_name}"
    text = api.call("GET", path)
    return str(text).splitlines()


def clear(api: Api, force: bool = False) -> None:
    """Delete the pods and claims of the test namespace, and wait until they are gone.

    `force`: for pods on nodes without a kubelet, which nobody else would end.
    """
    for kind in ("Pod", "ResourceClaim", "ResourceClaimTemplate"):
        api.delete_all(kind, NAMESPACE, 0 if force else None)
        eventually(partial(_none_left, api, kind), 40, f"no {kind} is left", step_s=0.05)


def _none_left(api: Api, kind: str) -> bool:
    return not api.list(kind, NAMESPACE)
