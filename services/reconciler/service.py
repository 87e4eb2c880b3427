"""The reconciler as a process: waits on the bus, runs passes, tells the states."""

import gc
import logging
import time

from common.bus import BusReader, BusSender, Message, decode
from common.errors import MachineError
from common.hardware.machine import load_machine
from common.hardware.tree import Tree
from common.inventory import InventoryMessage, Presence
from common.locks import LifeLock
from common.prepared import Prepared, open_prepared
from common.process import Context
from services.reconciler.metrics import ReconcilerMetrics
from services.reconciler.passes import LOCK_S, Reconciler
from services.reconciler.schedule import Cause, Schedule

log = logging.getLogger(__name__)

ACTIVE_LOCK = "reconciler.active.lock"
# A pass for records at most as often: the plugin made those specs true itself. What the hardware does comes
# at once all the same; if that were lost, this is within the 50 ms that a spec may be wrong after a removal.
RECORDS_S = 0.04
STANDBY_LOOK_S = 1.0  # how often one that stands by asks for the lock


def start(context: Context) -> None:
    """Run until told to stop. Raises RequestError or MachineError when it cannot start."""
    settings = context.settings
    tree = Tree(settings.root, settings.host_proc, settings.host_modules)
    prepared = open_prepared(settings, tree, load_machine(settings.machine))
    prepared.store.make_folders()
    reader = BusReader(settings.bus_dir, "reconciler", ("inventory", "stirred", "claims"))
    sender = BusSender(settings.bus_dir, "reconciler")
    context.stop.call(reader.wake)
    gc.freeze()
    try:
        Loop(context, prepared, reader, sender).run()
    finally:
        sender.close()
        reader.close()


class Loop:
    """One pass for every event, and without events as the schedule says."""

    def __init__(self, context: Context, prepared: Prepared, reader: BusReader, sender: BusSender) -> None:
        self._context = context
        self._prepared = prepared
        self._reader = reader
        self._sender = sender
        self._metrics = ReconcilerMetrics(context.registry)
        self._reconciler = Reconciler(prepared, self._metrics)
        self._schedule = Schedule(context.settings.pass_s, time.monotonic())
        self._lock = LifeLock(context.settings.plugin_dir / ACTIVE_LOCK)
        self._active: bool | None = None
        self._told: Presence | None = None
        self._complaint = ""  # why there is no pass now
        self._topics: set[str] = set()  # came during a pass
        self._records_at = float("-inf")  # when the last pass for records ended
        self._plugin = False  # whether it was connected when last looked at

    def run(self) -> None:
        """Turn until the process is told to stop."""
        while not self._context.stop.is_set():
            self._context.beat()
            took_over = self._take_over()
            topics = self._topics or self._hear(0.0 if took_over else self._pause())
            self._topics = set()
            while topics == {"claims"} and (left := self._records_at + RECORDS_S - time.monotonic()) > 0:
                topics |= self._hear(left)
            self._schedule.watcher(self._reader.peer_connected("watcher"))
            if topics == {"claims"} and not self._reconciler.failed:
                self._pass("records")
            elif topics or took_over:
                self._pass("event")
            elif cause := self._schedule.due(time.monotonic()):
                self._pass(cause)

    def _hear(self, timeout_s: float) -> set[str]:
        """The topics that came, and "plugin" when that came or went. What an inventory says is taken over."""
        messages = self._reader.wait(timeout_s)
        topics = {message.topic for message in messages}
        if self._reader.peer_connected("plugin") != self._plugin:
            # it may have ended half-way through a claim, without a tick
            self._plugin = not self._plugin
            topics.add("plugin")
        for message in messages:
            if message.topic == "inventory" and message.payload is not None:
                self._schedule.inventory(time.monotonic())
                self._metrics.inventory.came()
                self._learn(message)
        return topics

    def _learn(self, message: Message) -> None:
        try:
            inventory = decode(message.topic, message.payload or b"", InventoryMessage).inventory
        except MachineError as error:
            log.error("%s", error)
            return
        if inventory is not None:
            self._prepared.slots.hear(inventory)

    def _stirred(self) -> bool:
        """Whether the hardware changed while a pass runs; what came waits for the next pass as well."""
        topics = self._hear(0.0)
        self._topics |= topics
        return "stirred" in topics

    def _pause(self) -> float:
        due_in = self._schedule.due_in(time.monotonic())
        return due_in if self._active else min(due_in, STANDBY_LOOK_S)

    def _take_over(self) -> bool:
        """Whether this process became the one that writes just now."""
        if self._active:
            return False
        try:
            active = self._lock.try_take()
        except MachineError as error:
            log.error("%s", error)
            active = False
        if active != self._active:
            log.info("writes the specs from now on" if active else "stands by: another reconciler writes")
        changed = active and not self._active
        self._active = active
        self._metrics.active.set(active)
        return changed

    def _pass(self, cause: Cause) -> None:
        begin = time.monotonic()
        try:
            presence = self._reconciler.run(
                write=bool(self._active),
                backstop=cause == "backstop",
                records_only=cause == "records",
                stirred=self._stirred,
            )
        except MachineError as error:
            self._no_pass(str(error))
            return
        self._complaint = ""
        if cause == "backstop":
            self._sweep()
        self._metrics.passes.labels(cause).observe(time.monotonic() - begin)
        self._metrics.presence(presence)
        self._context.ready()
        if presence != self._told or cause == "backstop":
            self._tell(presence)
        if cause == "records":
            self._records_at = time.monotonic()
        if cause != "records" or self._reconciler.failed:
            self._schedule.passed(time.monotonic(), undone=self._reconciler.failed)

    def _no_pass(self, reason: str) -> None:
        """The records cannot be listed: say so once, and let nobody take the last states for those of now."""
        if reason != self._complaint:
            self._complaint = reason
            log.error("no pass: %s", reason)
        if (presence := self._reconciler.blind(reason)) is not None and presence != self._told:
            self._tell(presence)
        self._schedule.passed(time.monotonic(), undone=True)

    def _tell(self, presence: Presence) -> None:
        self._sender.state("presence", presence)
        self._told = presence

    def _sweep(self) -> None:
        """Temporary files that a killed process left; nobody writes while we hold the lock."""
        try:
            if self._active and (self._prepared.store.leftovers() or self._prepared.specs.leftovers()):
                with self._prepared.store.lock(LOCK_S):
                    self._prepared.store.sweep()
                    self._prepared.specs.sweep()
        except MachineError as error:
            log.warning("leftovers of killed processes stay: %s", error)
