"""Nodes that the machine keeps for itself, by name and by kind."""

import re
from collections.abc import Iterable

import msgspec

from common.hardware.model import Node


class Row(msgspec.Struct, frozen=True):
    """One held kind. A node is held when its name below /dev matches `names`, or its subsystem is in `kinds`.

    `releasable`: spec.release of the machine file may give it back.
    """

    reason: str
    detail: str
    names: str = ""
    kinds: frozenset[str] = frozenset()
    releasable: bool = True


HELD = (
    Row("rtc", "the clock that keeps the machine's time", r"rtc0", releasable=False),
    Row("tpm", "the TPM: whoever opens it can clear it for everybody", r"tpm(rm)?\d+", releasable=False),
    Row(
        "watchdog",
        "the watchdog: a wrong close resets the machine",
        r"watchdog\d*",
        frozenset({"watchdog"}),
    ),
    Row("flash", "flash memory with the machine's firmware", r"mtd.*", frozenset({"mtd"})),
    Row("nvram", "the firmware's settings memory", r"nvram"),
    Row("ipmi", "the management controller, which can power the machine off", r"ipmi.*", frozenset({"ipmi"})),
    Row("mei", "the management engine", r"mei\d*", frozenset({"mei"})),
    Row("usbmon", "the monitor of all USB traffic", r"usbmon\d*", frozenset({"usbmon"})),
    Row(
        "rpmb",
        "the boot and replay-protected areas of the built-in flash",
        r".*rpmb|mmcblk\d+boot\d+",
        frozenset({"mmc_rpmb", "rpmb"}),
    ),
    Row(
        "nvdimm",
        "the control channel of non-volatile memory",
        r"ndctl\d*|cxl/.*",
        frozenset({"nd", "cxl"}),
    ),
    Row("firmware", "the firmware channel of a device", r"fwctl/.*", frozenset({"fwctl"})),
    Row(
        "guest",
        "a channel between this virtual machine and its host",
        r"vport.*",
        frozenset({"virtio-ports"}),
    ),
)
_HBA = Row("hba", "the command channel of a storage controller", kinds=frozenset({"bsg"}))
_NAMES = tuple((row, re.compile(row.names) if row.names else None) for row in HELD)

CONSOLE_DETAIL = "the kernel's console: it carries the boot and the kernel's messages"
SERIO_DETAIL = "a serial line that spec.serio of the machine file declares: the machine keeps it attached"
REASONS = ("console", *(row.reason for row in HELD), "hba", "serio")
RELEASABLE = frozenset({row.reason for row in HELD if row.releasable} | {"hba"})


def held(
    node: Node, consoles: Iterable[str], release: frozenset[str], with_disk: bool
) -> tuple[str, str] | None:
    """The held kind of a node and what it is, in words; None when the machine does not keep it.

    `consoles`: the names in class/tty/console/active. `release`: kinds given back. `with_disk`: the same
    hardware delivers a block device, which a bsg node then belongs to.
    """
    name = node.devname
    if name in consoles:
        return "console", CONSOLE_DETAIL
    for row, pattern in _NAMES:
        matches = node.nature in row.kinds or (pattern is not None and pattern.fullmatch(name) is not None)
        if matches and not (row.releasable and row.reason in release):
            return row.reason, row.detail
    if node.nature in _HBA.kinds and not with_disk and _HBA.reason not in release:
        return _HBA.reason, _HBA.detail
    return None
