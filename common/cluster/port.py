"""What liken needs of a cluster, whatever it is: objects are raw dicts in the Kubernetes API's JSON shape.

Raw on purpose: typed models drop the fields they do not know, in both directions.
"""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, Protocol

from common.errors import LikenError, MachineError, RequestError

Raw = dict[str, Any]
EventKind = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]

API_GROUP = "resource.k8s.io"
API_VERSION = "v1"
FIELD_MANAGER = "liken"
MAX_TEXT = 400  # characters of somebody else's words in one line of ours


class ClaimMissing(RequestError):  # noqa: N818 - said as it is
    """The claim does not exist (any more)."""


class ClusterUnavailable(MachineError):  # noqa: N818 - said as it is
    """The cluster gave no usable answer; the same request may work later.

    `retry_after_s` is how long the server asked to be left alone, 0 when it did not say.
    """

    def __init__(self, text: str, retry_after_s: float = 0.0) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


class Cause(NamedTuple):
    """One reason of a refusal: the place in the object (`spec.devices[3].name`) and what is wrong there."""

    field: str
    message: str


class Refused(RequestError):  # noqa: N818 - said as it is
    """The cluster answered and said no to this very content; sending it again changes nothing."""

    def __init__(self, text: str, causes: tuple[Cause, ...] = ()) -> None:
        super().__init__(text)
        self.causes = causes


class OutOfDate(LikenError):  # noqa: N818 - said as it is
    """What we know of the cluster is no longer so (409, 410): read again, then decide again."""


class SliceList(NamedTuple):
    """All slices of our driver and node, and the version of the collection to watch from."""

    items: list[Raw]
    version: str


class SliceEvent(NamedTuple):
    """One change of one slice. A BOOKMARK carries only the version in its object."""

    kind: EventKind
    object: Raw


class ClaimReader(Protocol):
    """The part that the plugin needs."""

    def claim(self, namespace: str, name: str, timeout_s: float) -> Raw:
        """The ResourceClaim as the cluster holds it.

        Safe to call from many threads. Raises ClaimMissing when there is none, ClusterUnavailable when no
        answer came within `timeout_s` or it was no use; both in words for a pod's events.
        """

    def warm(self) -> None:
        """Do now what the first call would otherwise pay for (imports, reading credentials). Never raises."""


class Cluster(ClaimReader, Protocol):
    """One node's view of its cluster. Every call is bounded in time."""

    def node_uid(self) -> str | None:
        """UID of our Node object; "" where the cluster has no nodes, None when ours is missing."""

    def list_slices(self) -> SliceList:
        """Our driver's slices of our node. Raises ClusterUnavailable, Refused."""

    def watch_slices(self, version: str) -> Iterator[SliceEvent]:
        """Changes after `version` until the stream ends by itself.

        Raises OutOfDate when `version` is too old (list again), ClusterUnavailable when the stream broke or
        fell silent, Refused.
        """

    def apply_slice(self, body: Raw) -> Raw:
        """Put the slice there whole and return what the cluster made of it.

        A `metadata.resourceVersion` in `body` makes it a condition. Raises OutOfDate when the condition does
        not hold, Refused when the content is not acceptable, ClusterUnavailable (the write may or may not
        have happened).
        """

    def delete_slice(self, held: Raw) -> None:
        """Remove exactly the object `held` (its UID and version); one that is gone already is fine.

        Raises OutOfDate, Refused, ClusterUnavailable.
        """

    def event(self, reason: str, note: str, *, warning: bool) -> None:
        """Tell people through an Event on our Node. Raises ClusterUnavailable, Refused."""

    def close(self) -> None:
        """End open streams and connections; a watch that runs in another thread ends."""


def one_line(words: object) -> str:
    """Somebody else's words, fit for one line."""
    return " ".join(str(words).split())[:MAX_TEXT]
