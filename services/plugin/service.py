"""The plugin as a process: one event loop for the sockets, threads for what blocks, one for the bus."""

import asyncio
import contextlib
import gc
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import grpc.aio

from common.bus import BusReader, BusSender
from common.cluster import Cluster, connect
from common.errors import MachineError
from common.hardware.machine import load_machine
from common.hardware.strings import PatientReader
from common.hardware.tree import Tree
from common.inventory import Inventory, Presence
from common.prepared import look, open_prepared, presence
from common.process import Context
from common.settings import Settings
from services.plugin.api import (
    dra_v1_pb2_grpc,
    health_v1_pb2_grpc,
    health_v1alpha1_pb2_grpc,
    pluginregistration_pb2_grpc,
)
from services.plugin.boots import remove_other_boots
from services.plugin.desk import Desk
from services.plugin.dra import DraPlugin
from services.plugin.folders import Folders
from services.plugin.health import HealthHub, HealthV1, HealthV1Alpha1
from services.plugin.listener import BusListener
from services.plugin.metrics import PluginMetrics
from services.plugin.offers import Offers
from services.plugin.pool import Pool
from services.plugin.rebind import Rebinder
from services.plugin.registration import Keeper, Registrar
from services.plugin.sockets import Endpoint, Names, remove_leftovers, socket_names
from services.plugin.ticks import ClaimTicks

log = logging.getLogger(__name__)

GRACE_S = 5.0  # for running calls at the end; the kubelet repeats what is cut off
SYS_BUS = Path("/sys/bus")


def start(context: Context) -> None:
    """Run the plugin until it is told to stop. Raises RequestError or MachineError when it cannot start."""
    PluginService(context).run()


class PluginService:
    """Wires the parts of the plugin, by layer: hardware and records, calls, sockets."""

    def __init__(self, context: Context) -> None:
        """Reads the machine file; touches no socket. Raises RequestError, MachineError."""
        settings = context.settings
        self._context = context
        self._settings = settings
        self._metrics = PluginMetrics(context.registry)
        self._tree = Tree(settings.root, settings.host_proc, settings.host_modules)
        self._machine = load_machine(settings.machine)
        self._prepared = open_prepared(settings, self._tree, self._machine)
        self._cluster: Cluster = connect(settings)
        self._pool = Pool(2, "plugin")
        self._strings = PatientReader()  # a device that resets must not hold up a prepare
        self._offers = Offers(self._walk)
        self._blind = ""  # why the prepared claims cannot be looked at

    def run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()
        self._context.stop.call(lambda: _call_in(loop, stopped.set))
        self._prepared.store.make_folders()
        names = self._names()
        with contextlib.ExitStack() as ends:
            sender = BusSender(self._settings.bus_dir, "plugin")
            ends.callback(sender.close)
            ends.callback(self._cluster.close)
            hub = HealthHub(self._look, self._settings.node_name)
            self._metrics.health_streams.set_function(lambda: hub.streams)
            ticks = ClaimTicks(lambda: sender.tick("claims"))
            plugin = DraPlugin(self._desk(), self._metrics, ticks.changed)
            registrar = Registrar(self._settings.driver, names.service, self._metrics)
            service = Endpoint(names.service, lambda server: _add_service(server, plugin, hub))
            registration = Endpoint(names.registration, lambda server: _add_registration(server, registrar))
            renew = self._settings.cluster == "kubernetes"
            folders = Folders((names.service.parent, names.registration.parent), registrar.stirred.set)
            ends.callback(folders.close)
            keeper = Keeper(
                service, registration, registrar, self._metrics, renew=renew, follow=folders.follow
            )
            await keeper.bind()
            reader = BusReader(self._settings.bus_dir, "plugin", ("inventory", "presence"))
            listener = BusListener(reader, self._offers, hub, self._prepared.slots, self._metrics)
            listener.start()
            ends.callback(listener.stop)
            self._pool.submit(lambda: remove_other_boots(self._prepared))
            self._context.ready(keeper.serves)
            gc.freeze()
            gc.enable()
            keeping = asyncio.create_task(self._keep(keeper))
            await stopped.wait()
            keeping.cancel()
            await registration.stop(None)  # first: the kubelet asks for nothing new from here on
            hub.close()
            await service.stop(GRACE_S)

    def _names(self) -> Names:
        settings = self._settings
        names = socket_names(settings.plugin_dir, settings.registry_dir, settings.driver, settings.pod_uid)
        for path in remove_leftovers(names, settings.driver):
            log.info("removed the socket %s, which nobody served", path)
        return names

    def _desk(self) -> Desk:
        rebinder = Rebinder(
            bus_folder(self._settings) / "usb/drivers_probe",
            self._prepared.slots.drivers,
            lambda outcome: self._metrics.rebinds.labels(outcome).inc(),
        )
        return Desk(
            claims=self._cluster,
            store=self._prepared.store,
            specs=self._prepared.specs,
            slots=self._prepared.slots,
            offers=self._offers,
            rebinder=rebinder,
            driver=self._settings.driver,
            pool=self._settings.node_name,
            waited=self._metrics.lock_wait.observe,
        )

    async def _keep(self, keeper: Keeper) -> None:
        await keeper.pause()
        # not before: what it imports would take the interpreter from the answers that the kubelet waits for
        self._pool.submit(self._cluster.warm)
        while True:
            self._context.beat()
            try:
                await keeper.look()
            except MachineError as error:
                self._context.ready(False)
                log.error("%s", error)
            else:
                # bound is not enough: a rolling update ends the old pod as soon as this one is ready, and the
                # kubelet takes up to a second to register what it finds
                self._context.ready(keeper.serves)
            await keeper.pause()

    def _walk(self) -> Inventory:
        from common.hardware.walk import walk  # late: while the bus tells of every device, nobody walks here

        taken = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return walk(self._tree, self._machine, self._settings.node_name, taken, strings=self._strings)

    async def _look(self) -> Presence | None:
        """The states by our own eyes, while the reconciler is away."""
        try:
            claimed = await asyncio.wrap_future(self._pool.submit(lambda: look(self._prepared)))
        except MachineError as error:
            if str(error) != self._blind:  # there is a look every second
                log.warning("the health of the prepared claims is not known: %s", error)
            self._blind = str(error)
            return None
        self._blind = ""
        return presence(self._prepared.store.boot, claimed)


def _call_in(loop: asyncio.AbstractEventLoop, work: Callable[[], object]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(work)


def bus_folder(settings: Settings) -> Path:
    """Where drivers_probe is written. Never below this machine's /sys while another machine is played."""
    if settings.played and settings.host_bus == SYS_BUS:
        return settings.root / "sys/bus"
    return settings.host_bus


def _add_service(server: grpc.aio.Server, plugin: DraPlugin, hub: HealthHub) -> None:
    dra_v1_pb2_grpc.add_DRAPluginServicer_to_server(plugin, server)  # type: ignore[no-untyped-call]
    health_v1_pb2_grpc.add_DRAResourceHealthServicer_to_server(HealthV1(hub), server)  # type: ignore[no-untyped-call]
    health_v1alpha1_pb2_grpc.add_DRAResourceHealthServicer_to_server(HealthV1Alpha1(hub), server)  # type: ignore[no-untyped-call]


def _add_registration(server: grpc.aio.Server, registrar: Registrar) -> None:
    pluginregistration_pb2_grpc.add_RegistrationServicer_to_server(registrar, server)  # type: ignore[no-untyped-call]
