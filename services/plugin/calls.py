"""One call of the kubelet: which claims it names and how long it waits."""

import re
import threading
import time
from typing import NamedTuple

from common.claims import is_uid
from common.errors import MachineError, RequestError

KUBELET_LIMIT_S = 45.0  # kubernetes pkg/kubelet/cm/dra/plugin: the call counts as failed after this
_RESERVE_S = 1.0  # left of a call's time for the answer to be written and sent
TIME_OVER = "the time of the kubelet's call was over; its next call goes on from here"
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class ClaimName(NamedTuple):
    """The claim that the kubelet asks for, in its words."""

    namespace: str
    name: str
    uid: str

    def check(self) -> None:
        """Raises RequestError unless the words are what Kubernetes allows: they become parts of paths."""
        if not is_uid(self.uid):
            raise RequestError(f"{self.uid[:64]!r} is not the UID of a claim")
        if not _LABEL.fullmatch(self.namespace):
            raise RequestError(f"{self.namespace[:64]!r} is not the name of a namespace")
        if not _NAME.fullmatch(self.name) or ".." in self.name:
            raise RequestError(f"{self.name[:64]!r} is not the name of a claim")


class CallTime:
    """The time that is left of a call, and whether the kubelet gave it up."""

    def __init__(self, seconds: float | None) -> None:
        """`seconds` is what gRPC says is left; None: no limit was sent, then the kubelet's own counts."""
        limit = KUBELET_LIMIT_S if seconds is None else min(seconds, KUBELET_LIMIT_S)
        reserve_s = min(_RESERVE_S, limit / 2)
        self._deadline = time.monotonic() + limit - reserve_s
        self._answer_at = self._deadline + reserve_s / 2
        self.cancelled = threading.Event()

    def left_s(self) -> float:
        """Seconds of work left. Raises MachineError when there are none, or the call was cancelled."""
        left = self._deadline - time.monotonic()
        if self.cancelled.is_set():
            raise MachineError("the kubelet's call was cancelled; its next call goes on from here")
        if left <= 0:
            raise MachineError(TIME_OVER)
        return left

    def answer_in_s(self) -> float:
        """Seconds until the answer has to go out, whatever is done by then."""
        return max(self._answer_at - time.monotonic(), 0.0)
