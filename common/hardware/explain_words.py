"""The sentences of `liken explain`: what a rule means and what to do, for somebody who meets it first."""

import re
from typing import NamedTuple

MACHINE_FILE = "/etc/liken/machine.yaml"

DROPPED = {
    "phantom": "is a serial port that the kernel reserves although no chip answers there (its type reads 0)",
    "graphics": "is a framebuffer: whoever holds it has the whole display, so no claim delivers one",
    "control": "is a control node of old graphics drivers, which nothing uses any more",
    "network": "belongs to a network card, which is reached by its network interface and not through /dev",
}
FOREIGN = {
    "bluetooth": "belongs to a peripheral connected over Bluetooth, not to the adapter it goes through",
    "vfio": "is a handle for passing whole PCI functions to virtual machines; liken gives it to nobody",
    "unlisted": "hangs on hardware that its bus does not list at the moment",
    "undriven": "has no driver above it that would make it a piece of hardware somebody can claim",
    "scsi": "is a disk that comes over a network or a virtual controller: no hardware here owns it",
    "plumbing": "belongs to the structure that peripherals attach to (hubs and ports), not to a peripheral",
    "interface": "belongs to a USB interface that no kernel driver holds",
    "nameless": "has no name: the kernel states none, so nothing can be delivered",
    "border": "lies below hardware that does not deliver it",
}
_ONE = "for one claim at a time"
FORMS = {  # what a published device is; the key is the shape the rules saw, or the part of a graphics device
    "render": "the render node of a graphics device, for any number of claims at once",
    "display": f"the card node of a graphics device, {_ONE}: modesetting has one master",
    "card": f"the card node of a graphics device, {_ONE}; it has no connector, so it drives no screen",
    "companion": f"the {{kind}} nodes of a graphics device, {_ONE}",
    "single": f"a device with {{kind}} nodes, {_ONE}",
    "sound": f"a sound card with all its nodes, {_ONE}",
    "mix": f"a device with nodes of several kinds ({{kinds}}), {_ONE}",
    "unreadable": f"a device with nodes whose kind cannot be read, {_ONE}",
    "whole": f"a USB device that a program drives through its usbfs node, {_ONE}",
    "bluetooth": f"a Bluetooth radio with its usbfs node and what a Bluetooth stack needs beside it, {_ONE}",
    "line": f"the {{kind}} node of a serial line that the machine keeps attached, {_ONE}",
}
UNREAD = "its hardware cannot be read at the moment, so it keeps the form it had"
NOTHING = {  # why hardware offers nothing; the key is the verdict's shape
    "plumbing": "is structure that peripherals attach to (driver {driver}) and is never offered itself",
    "usbfs": "is in use: a program holds it through usbfs; it returns when the program lets go",
    "companion-radio": "is a further interface of a Bluetooth adapter, which publishes once",
    "line": "is a declared serial line that is not attached: -cec and -input appear once it is",
    "empty": "has the driver {driver} and no device node that a claim could deliver",
}
NETWORK = (
    "has the driver {driver} and network interfaces, which are no device nodes: a container reaches them"
    " through its network, not through a claim"
)
USB = {
    "interfaces": "has interfaces with drivers, which publish one by one",
    "interfaces-withheld": "has an interface that is withheld",
    "interfaces-empty": "has interfaces with drivers, but none has a device node; usbfs alone is not offered",
    "plumbing-hub": "is a USB hub: structure that peripherals attach to, never offered itself",
    "usbfs": "is in use: a program holds an interface through usbfs; it returns when the program lets go",
}
ROOT_HUB = "is a root hub, a part of the USB controller: structure, never offered itself"
UNCONFIGURED = "has no interfaces at the moment, so there is nothing to drive"
BLOCKLESS = "reaches a disk that has no block device now, so nothing tells whether the machine needs it"
NO_NODES = "and no device node that a claim could deliver"
KNOWN_WORDS = (
    "give a name from liken devices, a path below /dev, a bus address such as 0000:00:02.0 or 1-4, or a claim"
)
PLACEHOLDER = {
    "absent": "never exists: it stands in a claim for the device {device} while its hardware is away",
    "withheld": "never exists: it stands in a claim for the device {device} while that is not to be had",
}
CLAIM_ADVICE = {
    "absent": "plug the hardware back into the same port; the container then starts without a new claim",
    "withheld": "see liken explain for the hardware",
    "changed": "make a new claim; see liken devices for what is there now",
}
PLACEHOLDER_ADVICE = {
    "absent": "plug the hardware back into the same port; the container then starts without a new claim",
    "withheld": "see liken explain for the hardware; a claim on hardware that changed has to be made anew",
}
UNDECLARED = (
    "an internal disk that is not declared spare: a mount table does not show every user of a disk"
    " (a virtual machine, an iSCSI target, another system)"
)


class Virtual(NamedTuple):
    """A row for nodes that no hardware owns: by name below /dev, or by subsystem; what it is, what to do."""

    names: str
    kinds: frozenset[str]
    what: str
    advice: str = ""


_NO_CLAIM = "a workload that needs it has to get it in another way than by a claim"
_ONE_FOR_ALL = "there is one for the whole machine"
VIRTUAL = (
    Virtual(
        r"kfd", frozenset(), f"the compute interface of all AMD graphics cards; {_ONE_FOR_ALL}", _NO_CLAIM
    ),
    Virtual(r"dma_heap/.*", frozenset(), f"a pool of memory that devices share; {_ONE_FOR_ALL}", _NO_CLAIM),
    Virtual(r"snd/(seq|timer)", frozenset(), f"ALSA's sequencer or timer; {_ONE_FOR_ALL}", _NO_CLAIM),
    Virtual(r"kvm|vhost-.*|net/tun|fuse|cuse|vfio/.*", frozenset(), "a service of the kernel", _NO_CLAIM),
    Virtual(
        r"uinput|uhid",
        frozenset(),
        "the kernel's inlet for input devices that programs make",
        "a claim on a Bluetooth adapter delivers it; no other does",
    ),
    Virtual(r"input/mice", frozenset(), "all mice of the machine in one"),
    Virtual(
        r"(loop|dm-|md|bcache|zram|ram|nbd|zd)\d+.*",
        frozenset({"block"}),
        "a disk made of other disks or of memory",
    ),
    Virtual(
        r".*", frozenset({"tty", "vc"}), "a terminal that the kernel makes, without a serial port behind it"
    ),
    Virtual(r".*", frozenset({"mem"}), "a service of the kernel that every container has or must not have"),
    Virtual(r".*", frozenset({"misc"}), "a service of the kernel, not a piece of hardware"),
)
_ROWS = tuple((row, re.compile(row.names)) for row in VIRTUAL)


def virtual(name: str, kind: str) -> tuple[str, tuple[str, ...]]:
    """What a node without hardware is, and what to do. `name` is the path below /dev."""
    for row, pattern in _ROWS:
        if pattern.fullmatch(name) and (not row.kinds or kind in row.kinds):
            return row.what, (row.advice,) if row.advice else ()
    return "made by the kernel and not by a piece of hardware", ()


def modules_advice(modules: tuple[str, ...], missing: tuple[str, ...]) -> tuple[str, ...]:
    """What to do about hardware without a driver."""
    found = []
    for module in modules:
        if module in missing:
            found.append(
                f"the module {module} would drive it, but is not on this machine:"
                " install the package of your distribution that holds it (often linux-modules-extra)"
            )
        else:
            found.append(f"the module {module} would drive it: modprobe {module}")
    if found:
        found.append("liken unclaimed -o modules-load prints the lines that load such modules at every boot")
    return tuple(found)


def release_advice(kind: str) -> tuple[str, ...]:
    """How to get a held node of this kind offered all the same."""
    return (f"to offer it all the same, put this into {MACHINE_FILE}:", "spec:", f"  release: [{kind}]")


def roles_advice(used: tuple[str, ...]) -> tuple[str, ...]:
    """How to declare which disks the machine needs. `used`: those that are known to be in use."""
    seen = f"in use now: {', '.join(used)}; add what else is needed" if used else "none was seen in use"
    return (
        f"list every disk this machine needs in {MACHINE_FILE} ({seen}); liken then offers the others:",
        "spec:",
        "  storage:",
        f"    roles: [{', '.join(used) or 'NAME'}]",
    )
