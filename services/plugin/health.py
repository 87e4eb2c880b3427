"""The health of allocated devices, streamed to the kubelet: at every change, and well within its 30 s.

Streams wait in the event loop and hold no thread. The states come from the reconciler; when that is away, the
plugin looks itself.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from types import ModuleType
from typing import Any, NamedTuple

from common.inventory import DevicePresence, Presence, PresenceState
from services.plugin.api import (
    health_v1_pb2,
    health_v1_pb2_grpc,
    health_v1alpha1_pb2,
    health_v1alpha1_pb2_grpc,
)

RESEND_S = 10.0  # the kubelet forgets a device after TIMEOUT_S
LOOK_S = 1.0  # while nobody sends the states
TIMEOUT_S = 30  # Kubernetes 1.34 knows no other
MAX_MESSAGE = 1024  # kubelet, since 1.36: a longer one is cut

_WORST_FIRST: tuple[PresenceState, ...] = ("withheld", "changed", "absent", "unknown", "present")
_UNSEEN = "cannot be looked at: the records of the prepared claims cannot be read; see the log of liken"
_HEALTH: dict[PresenceState, str] = {
    "present": "HEALTHY",
    "absent": "UNHEALTHY",
    "withheld": "UNHEALTHY",
    "changed": "UNHEALTHY",
    "unknown": "UNKNOWN",
}


class Health(NamedTuple):
    """The health of one device in the kubelet's words."""

    pool: str
    device: str
    word: str
    message: str


def health_of(presence: Presence, pool: str) -> tuple[Health, ...]:
    """One report per device, sorted; the worst state where several claims share a device.

    `pool` is for devices of a record that cannot be read.
    """
    worst: dict[tuple[str, str], DevicePresence] = {}
    for one in (device for claim in presence.claims for device in claim.devices):
        key = (one.pool or pool, one.device)
        if key not in worst or _WORST_FIRST.index(one.state) < _WORST_FIRST.index(worst[key].state):
            worst[key] = one
    return tuple(Health(*key, _HEALTH[one.state], _words(one)) for key, one in sorted(worst.items()))


_WORDS: dict[PresenceState, str] = {
    "present": "",
    "absent": "{reason} since {since}",
    "withheld": "withheld because {reason}, since {since}",
    "changed": "not what was claimed: {reason}, since {since}",
    "unknown": "cannot be looked at: {reason}, since {since}",
}


def _words(one: DevicePresence) -> str:
    since = one.since or "an unknown time"
    return _WORDS[one.state].format(reason=one.reason, since=since)[:MAX_MESSAGE]


def _unseen(one: Health) -> Health:
    """A device at which nobody can look: what was true of it last may not be so."""
    return one if one.word == "UNKNOWN" else one._replace(word="UNKNOWN", message=_UNSEEN)


class HealthHub:
    """Holds the newest states for any number of streams."""

    def __init__(
        self,
        look: Callable[[], Awaitable[Presence | None]],
        pool: str = "",
        resend_s: float = RESEND_S,
        look_s: float = LOOK_S,
    ) -> None:
        """`look` gives the states while nobody sends them, None when they cannot be told.

        `pool` is this node's.
        """
        self._own_pool = pool
        self._look = look
        self._resend_s = resend_s
        self._look_s = look_s
        self._reports: tuple[Health, ...] = ()
        self._trusted = False
        self._looked_at = float("-inf")
        self._changed = asyncio.Event()
        self._closed = False
        self.streams = 0

    def update(self, presence: Presence) -> None:
        """The newest states, from the one whose work it is. In the thread of the event loop."""
        self._trusted = True
        reports = health_of(presence, self._own_pool)
        if reports != self._reports:
            self._reports = reports
            self._wake()

    def distrust(self) -> None:
        """Who sends the states is gone: look ourselves from now on."""
        if self._trusted:
            self._trusted = False
            self._wake()

    def close(self) -> None:
        """End all streams."""
        self._closed = True
        self._wake()

    async def reports(self) -> AsyncIterator[tuple[Health, ...]]:
        """The states now, then at every change, then the same again every `resend_s` seconds."""
        now = asyncio.get_running_loop().time
        sent, sent_at = None, float("-inf")
        self.streams += 1
        try:
            while not self._closed:
                changed = self._changed  # before the look, so that no change falls between
                reports = await self._current()
                if reports != sent or now() - sent_at >= self._resend_s:
                    yield reports
                    sent, sent_at = reports, now()
                pause = sent_at + self._resend_s - now()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(
                        changed.wait(), pause if self._trusted else min(pause, self._look_s)
                    )
        finally:
            self.streams -= 1

    async def _current(self) -> tuple[Health, ...]:
        now = asyncio.get_running_loop().time()
        if not self._trusted and now - self._looked_at >= self._look_s:
            self._looked_at = now
            presence = await self._look()
            if not self._trusted:
                self._reports = (
                    health_of(presence, self._own_pool) if presence else tuple(map(_unseen, self._reports))
                )
        return self._reports

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class _Servicer:
    """Both versions of the interface have the same messages; `api` is the module of one."""

    api: ModuleType

    def __init__(self, hub: HealthHub) -> None:
        self._hub = hub

    async def NodeWatchResources(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802, ARG002
        """One message per look: all devices of prepared claims."""
        async for reports in self._hub.reports():
            yield self.api.NodeWatchResourcesResponse(devices=[self._message(one) for one in reports])

    def _message(self, one: Health) -> Any:
        return self.api.DeviceHealth(
            device=self.api.DeviceIdentifier(pool_name=one.pool, device_name=one.device),
            health=self.api.HealthStatus.Value(one.word),
            last_updated_time=int(time.time()),
            health_check_timeout_seconds=TIMEOUT_S,
            message=one.message,
        )


class HealthV1(_Servicer, health_v1_pb2_grpc.DRAResourceHealthServicer):
    """v1: Kubernetes 1.37 and newer."""

    api = health_v1_pb2


class HealthV1Alpha1(_Servicer, health_v1alpha1_pb2_grpc.DRAResourceHealthServicer):
    """v1alpha1: Kubernetes 1.34 to 1.39."""

    api = health_v1alpha1_pb2
