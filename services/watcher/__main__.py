"""The watcher: uevents -> settle -> walk -> inventory on the bus."""

import gc
import sys
import time
from datetime import UTC, datetime

from common.bus import BusSender
from common.hardware.machine import load_machine
from common.hardware.strings import PatientReader
from common.hardware.tree import Tree
from common.hardware.walk import walk
from common.inventory import Inventory
from common.process import Context, run_service
from services.watcher.listener import TICK_PERIOD_S, Listening, ListeningThread, Mounts, Stirred, Uevents
from services.watcher.metrics import Metrics
from services.watcher.mounts import MountWatch
from services.watcher.settle import Settle, Throttle
from services.watcher.sources import open_source
from services.watcher.watch import Watch, boot_seconds

SWITCH_S = 0.0005  # a tick waits this long for the interpreter at the most while a walk runs


def start(context: Context) -> None:
    settings = context.settings
    machine = load_machine(settings.machine)
    tree = Tree(settings.root, proc=settings.host_proc, modules=settings.host_modules)
    metrics = Metrics(context.registry)
    bus = BusSender(settings.bus_dir, "watcher")

    def take(previous: Inventory | None) -> Inventory:
        taken = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return walk(tree, machine, settings.node_name, taken, previous, strings)

    watch = Watch(context, lambda message: bus.state("inventory", message), take, metrics)
    settle = Settle(settings.settle_s, settings.settle_ceiling_s, boot_seconds)
    throttle = Throttle(TICK_PERIOD_S, boot_seconds)
    stirred = Stirred(settle, throttle, lambda: bus.tick("stirred"), watch.wake)
    strings = PatientReader(answered=stirred.stir)
    context.stop.call(watch.wake)
    # they listen from here on, and the first walk comes after: what happens during a walk is seen by the next
    sources: tuple[Listening, ...] = (
        Uevents(lambda: open_source(settings), stirred, metrics, time.monotonic),
        Mounts(MountWatch(settings.host_proc), stirred, metrics),
    )
    sys.setswitchinterval(SWITCH_S)
    gc.freeze()
    watch.run(stirred, [ListeningThread(source, stirred, context.stop, watch.wake) for source in sources])
    bus.close()


if __name__ == "__main__":
    sys.exit(run_service("watcher", start))
