"""The service Registration: the kubelet asks who we are and tells whether it took us."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from common.attempts import Attempts
from services.plugin.api import pluginregistration_pb2 as api
from services.plugin.api import pluginregistration_pb2_grpc
from services.plugin.metrics import PluginMetrics

log = logging.getLogger(__name__)

# the kubelet takes the first that it knows
VERSIONS = ("v1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
LOOK_S = 3.0  # how often the sockets are looked at while anything is open
CALM_S = 60.0  # ... and while the kubelet has us and their folders tell of changes: a look costs for ever
FIRST_PAUSE_S = 2.0  # after a no
SILENCE = 5  # times as long without a word: the kubelet may take 10 s to dial, 1 s for GetInfo, 5 s to notify
LAST_PAUSE_S = 120.0  # the kubelet's own back-off ends there


class Registrar(pluginregistration_pb2_grpc.RegistrationServicer):
    """Answers the kubelet, and keeps count of what it thinks of us."""

    def __init__(self, driver: str, endpoint: Path, metrics: PluginMetrics) -> None:
        """`endpoint` is the service socket as the kubelet sees it."""
        self._info = api.PluginInfo(
            type="DRAPlugin", name=driver, endpoint=str(endpoint), supported_versions=VERSIONS
        )
        self._metrics = metrics
        self.accepted: bool | None = None  # None: no word since the socket was bound
        self.stirred = asyncio.Event()  # there is something to look at

    async def GetInfo(self, request: Any, context: Any) -> api.PluginInfo:  # noqa: N802, ARG002
        """Who we are; needs no hardware and no cluster."""
        return self._info

    async def NotifyRegistrationStatus(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        """The kubelet's verdict."""
        self.accepted = bool(request.plugin_registered)
        if self.accepted:
            log.info("the kubelet registered this driver")
        else:
            log.error("the kubelet refused to register this driver: %s", request.error)
        self._metrics.registrations.labels("accepted" if self.accepted else "rejected").inc()
        self._metrics.registered.set(self.accepted)
        self.stirred.set()
        return api.RegistrationStatusResponse()

    def forget(self) -> None:
        """The socket is new: nobody has said anything about it."""
        self.accepted = None
        self.stirred.clear()
        self._metrics.registered.set(0)


class Socket(Protocol):
    """What the keeper needs of an endpoint."""

    async def bind(self) -> None:
        """Serve on the path. Raises MachineError."""

    def intact(self) -> bool:
        """Whether the path still leads to our socket."""


class Keeper:
    """Binds the sockets again when somebody removed one, and registers again until the kubelet takes us."""

    def __init__(
        self,
        service: Socket,
        registration: Socket,
        registrar: Registrar,
        metrics: PluginMetrics,
        *,
        renew: bool,
        follow: Callable[[], bool] = lambda: False,
    ) -> None:
        """`renew`: whether a kubelet is expected to answer at all. `follow` begins to watch the folders of
        the sockets as they are now, and says whether they will tell of changes, by the registrar's `stirred`.
        """
        self._service = service
        self._registration = registration
        self._registrar = registrar
        self._metrics = metrics
        self._renew = renew
        self._follow = follow
        self._followed = False
        self._bindings = Attempts()
        self._pause_s = FIRST_PAUSE_S
        self._asked_at = 0.0

    @property
    def serves(self) -> bool:
        """Whether the kubelet would call this instance; true as well where no kubelet is expected."""
        return not self._renew or self._registrar.accepted is True

    async def bind(self) -> None:
        """Service first: it must answer as soon as the other names it. Raises MachineError."""
        await self._service.bind()
        await self._register()

    async def pause(self) -> None:
        """Until the next look is due, a folder changed, or the kubelet has said something.

        After a loss there is a rest first: somebody may remove sockets all the time, or keep us from binding
        one, and what we do about it changes the folders too.
        """
        look_s = CALM_S if self._followed and self.serves else LOOK_S
        rest_s = min(self._bindings.wait(asyncio.get_running_loop().time()), LOOK_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(look_s):
                await asyncio.sleep(rest_s)
                await self._registrar.stirred.wait()
        self._registrar.stirred.clear()

    async def look(self) -> None:
        """One look. A socket that cannot be bound again is tried at the next look. Raises MachineError."""
        if not self._followed:
            self._followed = self._follow()  # before the look: what happens later is told
        lost = [
            word
            for word, endpoint in (("service", self._service), ("registration", self._registration))
            if not endpoint.intact()
        ]
        for word in lost:
            self._metrics.socket_losses.labels(word).inc()
            log.warning("somebody removed the %s socket; it is bound again", word)
        if lost:
            self._followed = False  # the folder itself may be another one now
            self._bindings.did(asyncio.get_running_loop().time())
        if "service" in lost:
            await self._service.bind()
        if lost:
            await self._register()
        elif self._renew and self._is_overdue():
            await self._renew_registration()

    async def _register(self) -> None:
        self._registrar.forget()
        await self._registration.bind()
        self._asked_at = asyncio.get_running_loop().time()

    def _is_overdue(self) -> bool:
        if self._registrar.accepted:
            self._pause_s = FIRST_PAUSE_S
            return False
        return asyncio.get_running_loop().time() - self._asked_at >= self._patience_s()

    def _patience_s(self) -> float:
        rejected = self._registrar.accepted is False
        return min(self._pause_s * (1 if rejected else SILENCE), LAST_PAUSE_S)

    async def _renew_registration(self) -> None:
        if self._registrar.accepted is None:
            self._metrics.registrations.labels("missing").inc()
            log.warning("no word from the kubelet within %.0f s; registering again", self._patience_s())
        self._pause_s = min(self._pause_s * 2, LAST_PAUSE_S)
        await self._register()
