"""Our service account as the shipped manifests make it, with tokens as the kubelet would fetch them."""

from tests.cluster.api import Api, Object
from tests.cluster.control_plane import ControlPlane
from tests.cluster.images import PAUSE
from tests.cluster.objects import DEPLOY, load, named
from tests.waiting import eventually

LIKEN = "liken"  # namespace and account of deploy/base
POLICY_LIMIT_S = 30  # the API server looks for new policies every few seconds


def install(plane: ControlPlane, policy: bool = True) -> None:
    """Namespace, service account, RBAC and (by default) the admission policy of deploy/base."""
    for thing in load(DEPLOY / "base/namespace.yaml"):
        plane.api.apply(thing)
    for thing in load(DEPLOY / "base/rbac.yaml"):
        plane.api.apply(named(thing, namespace=LIKEN) if thing["kind"] == "ServiceAccount" else thing)
    if policy:
        for thing in load(DEPLOY / "base/admission-policy.yaml"):
            plane.api.apply(thing)


def pod_token(api: Api, node: str) -> str:
    """A token bound to a pod of ours on `node`, which must be a node without a kubelet."""
    name = f"liken-on-{node}"
    if not api.find("Pod", name, LIKEN):
        containers = [{"name": "main", "image": PAUSE}]
        spec = {"serviceAccountName": LIKEN, "nodeName": node, "containers": containers}
        meta = {"name": name, "namespace": LIKEN}
        api.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    return _token(api, {"apiVersion": "v1", "kind": "Pod", "name": name})


def node_token(api: Api, node: str) -> str:
    """A token bound to the node itself: the same proof of place, without a pod."""
    return _token(api, {"apiVersion": "v1", "kind": "Node", "name": node})


def unbound_token(api: Api) -> str:
    """A token that is bound to nothing."""
    return _token(api, None)


def _token(api: Api, bound: Object | None) -> str:
    spec: Object = {"expirationSeconds": 3600} | ({"boundObjectRef": bound} if bound else {})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    path = f"/api/v1/namespaces/{LIKEN}/serviceaccounts/{LIKEN}/token"
    eventually(lambda: api.find("ServiceAccount", LIKEN, LIKEN), 20, "our service account")
    return str(api.call("POST", path, request)["status"]["token"])
