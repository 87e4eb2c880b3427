"""A small client of the Kubernetes API for tests: raw objects in, raw objects out, nothing hidden.

Writes ask for strict field validation: a field that the server does not know is an error and not a silence.
"""

import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from tests.cluster.certificates import Pair
from tests.waiting import eventually

Object = dict[str, Any]
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
REQUEST_LIMIT_S = 15

# kind -> (prefix of the path, plural, namespaced)
KINDS: dict[str, tuple[str, str, bool]] = {
    "ClusterRole": ("/apis/rbac.authorization.k8s.io/v1", "clusterroles", False),
    "ClusterRoleBinding": ("/apis/rbac.authorization.k8s.io/v1", "clusterrolebindings", False),
    "ConfigMap": ("/api/v1", "configmaps", True),
    "ControllerRevision": ("/apis/apps/v1", "controllerrevisions", True),
    "DaemonSet": ("/apis/apps/v1", "daemonsets", True),
    "Deployment": ("/apis/apps/v1", "deployments", True),
    "DeviceClass": ("/apis/resource.k8s.io/v1", "deviceclasses", False),
    "Event": ("/api/v1", "events", True),
    "Namespace": ("/api/v1", "namespaces", False),
    "Node": ("/api/v1", "nodes", False),
    "Pod": ("/api/v1", "pods", True),
    "ResourceClaim": ("/apis/resource.k8s.io/v1", "resourceclaims", True),
    "ResourceClaimTemplate": ("/apis/resource.k8s.io/v1", "resourceclaimtemplates", True),
    "ResourceSlice": ("/apis/resource.k8s.io/v1", "resourceslices", False),
    "Role": ("/apis/rbac.authorization.k8s.io/v1", "roles", True),
    "RoleBinding": ("/apis/rbac.authorization.k8s.io/v1", "rolebindings", True),
    "Service": ("/api/v1", "services", True),
    "ServiceAccount": ("/api/v1", "serviceaccounts", True),
    "ValidatingAdmissionPolicy": (
        "/apis/admissionregistration.k8s.io/v1",
        "validatingadmissionpolicies",
        False,
    ),
    "ValidatingAdmissionPolicyBinding": (
        "/apis/admissionregistration.k8s.io/v1",
        "validatingadmissionpolicybindings",
        False,
    ),
}


class ApiError(Exception):
    """An answer other than success: `code` is the HTTP status, the text the server's message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Api:
    """One user's view of one API server."""

    def __init__(self, server: str, authority: str, user: Pair | None = None, token: str = "") -> None:
        self.server = server
        context = ssl.create_default_context(cafile=authority)
        if user:
            context.load_cert_chain(user.certificate, user.key)
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        self._token = token

    def call(
        self, method: str, path: str, body: Object | None = None, content: str = "application/json"
    ) -> Any:
        """One request; the decoded answer (text where it is no JSON). Raises ApiError."""
        headers = {"Content-Type": content, "Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.server + path, data=data, headers=headers, method=method)
        try:
            with self._opener.open(request, timeout=REQUEST_LIMIT_S) as answer:
                return _decoded(answer.read())
        except urllib.error.HTTPError as error:
            said = _decoded(error.read())
            raise ApiError(error.code, said.get("message", "") if isinstance(said, dict) else said) from error

    def create(self, thing: Object, dry: bool = False) -> Object:
        namespace = thing["metadata"].get("namespace", "")
        return self._object("POST", _path(thing["kind"], "", namespace) + _strict(dry), thing)

    def replace(self, thing: Object) -> Object:
        meta = thing["metadata"]
        path = _path(thing["kind"], meta["name"], meta.get("namespace", ""))
        return self._object("PUT", path + _strict(False), thing)

    def apply(self, thing: Object, manager: str = "tests", dry: bool = False) -> Object:
        """Server-side apply with force."""
        meta = thing["metadata"]
        path = _path(thing["kind"], meta["name"], meta.get("namespace", ""))
        options = f"{_strict(dry)}&force=true&fieldManager={manager}"
        return self._object("PATCH", path + options, thing, APPLY)

    def patch(self, kind: str, name: str, change: Object, namespace: str = "", sub: str = "") -> Object:
        path = _path(kind, name, namespace) + (f"/{sub}" if sub else "")
        return self._object("PATCH", path, change, MERGE)

    def get(self, kind: str, name: str, namespace: str = "") -> Object:
        return self._object("GET", _path(kind, name, namespace))

    def find(self, kind: str, name: str, namespace: str = "") -> Object | None:
        """The object, or None when there is none."""
        try:
            return self.get(kind, name, namespace)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def list(self, kind: str, namespace: str = "", **selectors: str) -> list[Object]:
        query = urllib.parse.urlencode(selectors)
        found = self._object("GET", f"{_path(kind, '', namespace)}?{query}")["items"]
        return sorted(
            found, key=lambda thing: (thing["metadata"].get("namespace", ""), thing["metadata"]["name"])
        )

    def delete(self, kind: str, name: str, namespace: str = "", grace_s: int | None = None) -> None:
        """Delete; an object that is gone already is no error."""
        options = {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        try:
            self.call("DELETE", _path(kind, name, namespace), options)
        except ApiError as error:
            if error.code != 404:
                raise

    def delete_and_wait(self, kind: str, name: str, namespace: str = "", grace_s: int | None = None) -> None:
        self.delete(kind, name, namespace, grace_s)
        eventually(lambda: self.find(kind, name, namespace) is None, 40, f"{kind} {name} is gone")

    def delete_all(self, kind: str, namespace: str = "", grace_s: int | None = None) -> None:
        for thing in self.list(kind, namespace):
            meta = thing["metadata"]
            self.delete(kind, meta["name"], meta.get("namespace", ""), grace_s)

    def _object(
        self, method: str, path: str, body: Object | None = None, content: str = "application/json"
    ) -> Object:
        answer = self.call(method, path, body, content)
        assert isinstance(answer, dict), f"{method} {path} answered no object: {answer!r}"
        return answer


def _path(kind: str, name: str, namespace: str) -> str:
    prefix, plural, namespaced = KINDS[kind]
    within = f"/namespaces/{namespace}" if namespaced and namespace else ""
    return f"{prefix}{within}/{plural}" + (f"/{name}" if name else "")


def _strict(dry: bool) -> str:
    return "?fieldValidation=Strict" + ("&dryRun=All" if dry else "")


def _decoded(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data.decode(errors="replace")
