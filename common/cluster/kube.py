"""The cluster port on the Kubernetes API, `resource.k8s.io/v1` (Kubernetes 1.34 and newer)."""

import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TypeVar, cast, get_args
from urllib.parse import quote

import msgspec

from common.cluster.http import Api, Missing, failure
from common.cluster.port import (
    FIELD_MANAGER,
    ClaimMissing,
    ClusterUnavailable,
    EventKind,
    OutOfDate,
    Raw,
    Refused,
    SliceEvent,
    SliceList,
)

T = TypeVar("T")

RESOURCE_API = "/apis/resource.k8s.io/v1"
SLICES = f"{RESOURCE_API}/resourceslices"
APPLY = "application/apply-patch+yaml"  # JSON is YAML
WATCH_S = (2400, 3600)  # we end a watch ourselves, at a time of our own, so that nodes do not do it together
SILENCE_S = 180.0  # bookmarks come about every minute: three missing mean a dead connection
MAX_NOTE = 1024  # bytes of an Event's text; Kubernetes API limit
MAX_INSTANCE = 128
EVENT_NAMESPACE = "default"  # of Events about objects without a namespace
_OLD_CLUSTER = (
    "the cluster has no resource.k8s.io/v1: liken needs Kubernetes 1.34 with dynamic resource allocation"
)


class KubernetesCluster:
    """The API as one node's driver sees it. Safe to use from many threads."""

    def __init__(
        self, node: str, driver: str, instance: str = "", api: Api | None = None, silence_s: float = SILENCE_S
    ) -> None:
        self._node = node
        self._driver = driver
        self._instance = (instance or node)[:MAX_INSTANCE]
        self._api = api or Api()
        self._silence_s = silence_s
        self._uid = ""
        self._selector = f"spec.driver={driver},spec.nodeName={node}"

    def claim(self, namespace: str, name: str, timeout_s: float) -> Raw:
        path = f"{RESOURCE_API}/namespaces/{quote(namespace, safe='')}/resourceclaims/{quote(name, safe='')}"
        try:
            return self._api.request("GET", path, timeout_s=timeout_s)
        except Missing as error:
            raise ClaimMissing(f"claim {namespace}/{name} does not exist: {error}") from error
        except (OutOfDate, Refused) as error:
            raise ClusterUnavailable(f"claim {namespace}/{name} cannot be read: {error}") from error
        except ClusterUnavailable as error:
            text = f"claim {namespace}/{name} cannot be read now: {error}"
            raise ClusterUnavailable(text, error.retry_after_s) from error

    def warm(self) -> None:
        try:
            self._api.open()
        except ClusterUnavailable:
            return  # the first call meets the same and says so

    def node_uid(self) -> str | None:
        try:
            node = self._api.request("GET", f"/api/v1/nodes/{quote(self._node, safe='')}")
        except Missing:
            return None
        uid = _convert(node, _Object, "Node").metadata.uid
        if not uid:
            raise ClusterUnavailable("the answer is a Node without UID: is there a proxy in between?")
        self._uid = uid
        return uid

    def list_slices(self) -> SliceList:
        try:
            answer = self._api.request("GET", SLICES, {"fieldSelector": self._selector})
        except Missing as error:
            raise ClusterUnavailable(_OLD_CLUSTER) from error
        metadata = answer.get("metadata")
        if not isinstance(metadata, dict) or not metadata.get("resourceVersion"):
            raise ClusterUnavailable("the API server's list has no version: is there a proxy in between?")
        items = _convert(answer.get("items") or [], list[Raw], "list")
        return SliceList([_slice(item) for item in items], str(metadata["resourceVersion"]))

    def watch_slices(self, version: str) -> Iterator[SliceEvent]:
        query = {
            "fieldSelector": self._selector,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(random.randint(*WATCH_S)),
        }
        try:
            for change in self._api.stream(SLICES, query, self._silence_s):
                yield _event(change)
        except Missing as error:
            raise ClusterUnavailable(_OLD_CLUSTER) from error

    def apply_slice(self, body: Raw) -> Raw:
        path = f"{SLICES}/{quote(body['metadata']['name'], safe='')}"
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        try:
            return _slice(self._api.request("PATCH", path, query, body, APPLY))
        except Missing as error:
            raise ClusterUnavailable(_OLD_CLUSTER) from error

    def delete_slice(self, held: Raw) -> None:
        metadata = held["metadata"]
        conditions = {key: metadata[key] for key in ("uid", "resourceVersion") if metadata.get(key)}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": conditions}
        try:
            self._api.request("DELETE", f"{SLICES}/{quote(metadata['name'], safe='')}", None, body)
        except Missing:
            return

    def event(self, reason: str, note: str, *, warning: bool) -> None:
        now = datetime.now(UTC)
        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": f"{self._node[:200].rstrip('.-')}.{time.time_ns():x}",
                "namespace": EVENT_NAMESPACE,
            },
            "eventTime": now.isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "reportingController": self._driver,
            "reportingInstance": self._instance,
            "action": "PublishResourceSlices",
            "reason": reason,
            "type": "Warning" if warning else "Normal",
            "note": note.encode()[:MAX_NOTE].decode(errors="ignore"),
            "regarding": {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": self._uid},
        }
        path = f"/apis/events.k8s.io/v1/namespaces/{EVENT_NAMESPACE}/events"
        try:
            self._api.request("POST", path, None, body)
        except (Missing, OutOfDate) as error:
            raise ClusterUnavailable(f"the event could not be written: {error}") from error

    def close(self) -> None:
        self._api.close()


class _Meta(msgspec.Struct):
    name: str = ""
    uid: str = ""


class _Object(msgspec.Struct):
    metadata: _Meta


class _Pool(msgspec.Struct):
    name: str


class _Spec(msgspec.Struct):
    pool: _Pool
    devices: list[_Meta] | None = None


class _Slice(msgspec.Struct):
    metadata: _Meta
    spec: _Spec


def _convert(answer: object, type_: type[T], word: str) -> T:
    """`answer` as what it has to be. Raises ClusterUnavailable: whoever answers so is no API server."""
    try:
        return msgspec.convert(answer, type_)
    except msgspec.ValidationError as error:
        raise ClusterUnavailable(
            f"the answer is no {word} ({error}): is there a proxy in between?"
        ) from error


def _slice(item: Raw) -> Raw:
    """`item` itself, once it has the parts of a ResourceSlice that all our code relies on."""
    _convert(item, _Slice, "ResourceSlice")
    return item


def _event(change: Raw) -> SliceEvent:
    kind, item = change.get("type"), change.get("object")
    if kind == "ERROR" and isinstance(item, dict):
        raise _watch_error(item)
    if kind not in get_args(EventKind) or not isinstance(item, dict):
        raise ClusterUnavailable(f"the watch sent what is no event: {str(change)[:100]}")
    _convert(item, _Object, "event")
    return SliceEvent(cast(EventKind, kind), item if kind == "BOOKMARK" else _slice(item))


def _watch_error(status: Raw) -> Exception:
    code = status.get("code")
    error = failure(
        code if isinstance(code, int) else 500, str(status.get("message", "")), status.get("details")
    )
    return ClusterUnavailable(str(error)) if isinstance(error, (Missing, Refused)) else error
