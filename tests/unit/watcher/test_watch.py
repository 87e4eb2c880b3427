"""The watcher's loop on a clock of its own: what it sends, when it walks again, what it measures."""

import itertools
import logging
import threading
from collections.abc import Callable
from functools import partial

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from common.errors import MachineError
from common.inventory import SCHEMA, Device, Facts, Inventory, InventoryMessage, Unclaimed
from services.watcher.listener import Stirred
from services.watcher.metrics import Metrics
from services.watcher.settle import Settle, Throttle
from services.watcher.watch import HEARTBEAT_S, RETRY_LAST_S, Watch

EMPTY = Inventory(SCHEMA, "n1", "b", "2026-01-01T00:00:00Z", Facts("observed"))


class Frame:
    def __init__(self) -> None:
        self.stop = threading.Event()
        self.is_ready = False
        self.beats = 0

    def beat(self) -> None:
        self.beats += 1

    def ready(self, yes: bool = True) -> None:
        self.is_ready = yes


class Rig:
    """A Watch whose clock, walk and bus are plain values."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.frame = Frame()
        self.sent: list[InventoryMessage] = []
        self.given: list[Inventory | None] = []
        self.result: Callable[[], Inventory] = lambda: EMPTY
        self.registry = CollectorRegistry()
        self.watch = Watch(self.frame, self.sent.append, self._walk, Metrics(self.registry), lambda: self.now)
        clock = lambda: self.now  # noqa: E731 - one value for both
        self.stirred = Stirred(Settle(1.0, 5.0, clock), Throttle(0.01, clock), lambda: None, self.watch.wake)

    def _walk(self, previous: Inventory | None) -> Inventory:
        self.given.append(previous)
        return self.result()

    def turn(self, seconds: float = 0.0) -> None:
        self.now += seconds
        self.watch.turn(self.stirred)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


def unreadable() -> Inventory:
    raise MachineError("/sys cannot be read")


def device(name: str, word: str) -> Device:
    return Device(name, "usb", name, "", (), False, (), {"class": {"string": word}})


def test_the_first_walk_is_sent_and_makes_the_process_ready() -> None:
    rig = Rig()
    rig.watch.walk_once(0.0)
    assert rig.sent == [InventoryMessage(SCHEMA, EMPTY)]
    assert rig.frame.is_ready


def test_a_settled_burst_is_one_walk_that_names_the_moment_it_began() -> None:
    rig = Rig()
    rig.watch.walk_once(0.0)
    rig.stirred.stir()
    rig.turn(0.5)
    rig.stirred.stir()
    rig.turn(0.9)
    assert len(rig.sent) == 1
    rig.turn(0.1)
    rig.turn(0.1)
    assert [message.stirred for message in rig.sent] == [0.0, 1000.0]


def test_the_heartbeat_sends_the_cached_inventory_without_a_walk() -> None:
    rig = Rig()
    rig.watch.walk_once(7.0)
    rig.turn(HEARTBEAT_S - 1)
    assert len(rig.sent) == 1
    rig.turn(1)
    assert rig.sent == [InventoryMessage(SCHEMA, EMPTY, stirred=7.0), InventoryMessage(SCHEMA, EMPTY)]
    assert len(rig.given) == 1


def test_an_unreadable_sys_is_an_error_and_never_an_empty_inventory() -> None:
    rig = Rig()
    rig.result = unreadable
    rig.watch.walk_once(0.0)
    assert rig.sent == [InventoryMessage(SCHEMA, error="/sys cannot be read")]
    assert not rig.frame.is_ready
    assert rig.value("liken_walk_failed") == 1


def test_a_failed_walk_is_tried_again_with_growing_pauses() -> None:
    rig = Rig()
    rig.result = unreadable
    rig.watch.walk_once(0.0)
    walked = []
    for second in range(1, 200):
        before = len(rig.given)
        rig.turn(1.0)
        if len(rig.given) > before:
            walked.append(second)
    assert [later - earlier for earlier, later in itertools.pairwise([0, *walked])][:4] == [1, 2, 4, 8]
    assert walked[-1] - walked[-2] == RETRY_LAST_S


def test_the_inventory_is_whole_again_after_an_error_and_knows_what_was_before() -> None:
    rig = Rig()
    rig.watch.walk_once(0.0)
    rig.result = unreadable
    rig.watch.walk_once(0.0)
    rig.result = lambda: EMPTY
    rig.turn(1.0)
    assert rig.given == [None, EMPTY, EMPTY]
    assert [message.error for message in rig.sent] == ["", "/sys cannot be read", ""]
    assert rig.value("liken_walk_failed") == 0


def test_what_is_to_say_of_storage_is_logged_once_per_change(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    caplog.set_level(logging.INFO)
    for reason in ("", "no disk goes by sdq", "no disk goes by sdq", "", ""):
        rig.result = partial(msgspec.structs.replace, EMPTY, facts=Facts("roles", reason))
        rig.watch.walk_once(0.0)
    told = [
        (each.levelname, each.getMessage()) for each in caplog.records if "storage roles:" in each.message
    ]
    assert told == [
        ("WARNING", "storage roles: no disk goes by sdq"),
        ("INFO", "storage roles: all is well again"),
    ]


def test_metrics_count_devices_by_class_and_unclaimed_hardware_by_bus() -> None:
    rig = Rig()
    hardware = Unclaimed("pci", "0000:01:00.0", "", "", ())
    found = Inventory(
        SCHEMA,
        "n1",
        "b",
        "t",
        Facts("unknown", "x"),
        (device("usb-1-1", "hid"), device("usb-1-2", "hid"), device("usb-1-3", "audio")),
        (),
        (hardware,),
    )
    rig.result = lambda: found
    rig.watch.walk_once(0.0)
    assert rig.value("liken_inventory_devices", **{"class": "hid"}) == 2
    assert rig.value("liken_inventory_devices", **{"class": "audio"}) == 1
    assert rig.value("liken_unclaimed", bus="pci") == 1
    assert rig.value("liken_storage_known") == 0
    rig.result = lambda: EMPTY
    rig.watch.walk_once(0.0)
    assert rig.value("liken_inventory_devices", **{"class": "hid"}) is None
    assert rig.value("liken_storage_known") == 1
