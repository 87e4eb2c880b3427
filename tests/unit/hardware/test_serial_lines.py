"""Serial lines that the machine file declares (spec.serio)."""

from common.hardware.machine import Machine, SerialLine
from common.hardware.slot import inspect, serial_lines
from tests.builders import MachineBuilder
from tests.unit.hardware.ask import devices, inventory, kept, offered, slot, texts

PULSE8 = Machine(serio=(SerialLine("pulse8-cec", "2548", "1002"),))
ONE_OF_TWINS = Machine(serio=(SerialLine("pulse8-cec", "2548", "1002", "A1"),))


def adapter(machine: MachineBuilder, address: str = "1-2", serial: str | None = None) -> str:
    """A Pulse-Eight adapter: a serial line and a HID interface. Returns the tty's directory."""
    device = machine.usb(address, vendor="2548", product="1002", serial=serial, devnum=int(address[-1]))
    tty = machine.tty(machine.interface(device, 0, driver="cdc_acm", usb_class="02"), f"ttyACM{address[-1]}")
    machine.interface(device, 1, driver="cdc_acm", usb_class="0a")
    machine.hidraw(machine.interface(device, 2, driver="usbhid", usb_class="03"), f"hidraw{address[-1]}")
    return tty


def attach(machine: MachineBuilder, tty: str, remote: bool = True) -> None:
    """What the kernel makes once the line is attached: a serio port, the CEC adapter, the remote."""
    port = machine.board("serio", "serio3", driver="pulse8-cec", parent=tty)
    machine.node(port, "cec", "cec0", folder="")
    if remote:
        machine.event(port, 20)


def test_undeclared_it_is_a_serial_port_like_any_other(machine: MachineBuilder) -> None:
    adapter(machine)
    assert offered(machine) == {
        "usb-1-2-1-0": ["ttyACM2", "bus/usb/001/002"],
        "usb-1-2-1-2": ["hidraw2", "bus/usb/001/002"],
    }


def test_before_the_attachment_the_line_publishes_nothing(machine: MachineBuilder) -> None:
    adapter(machine)
    assert offered(machine, PULSE8) == {"usb-1-2-1-2": ["hidraw2"]}
    assert kept(machine, PULSE8) == {"ttyACM2": "serio"}


def test_after_the_attachment_it_publishes_bus_and_remote_and_never_tty_or_usbfs(
    machine: MachineBuilder,
) -> None:
    attach(machine, adapter(machine))
    assert offered(machine, PULSE8) == {
        "usb-1-2-1-0-cec": ["cec0"],
        "usb-1-2-1-0-input": ["input/event20"],
        "usb-1-2-1-2": ["hidraw2"],
    }
    found = devices(machine, PULSE8)
    assert [texts(found[f"usb-1-2-1-0-{kind}"])["subsystem"] for kind in ("cec", "input")] == ["cec", "input"]
    assert not any(device.shareable for device in found.values())


def test_an_attachment_without_remote_publishes_the_bus_only(machine: MachineBuilder) -> None:
    attach(machine, adapter(machine), remote=False)
    assert [name for name in offered(machine, PULSE8) if name.startswith("usb-1-2-1-0")] == [
        "usb-1-2-1-0-cec"
    ]


def test_a_declared_device_without_any_driver_publishes_nothing(machine: MachineBuilder) -> None:
    device = machine.usb("1-2", vendor="2548", product="1002", devnum=2)
    machine.interface(device, 0)
    assert offered(machine, PULSE8) == {}
    assert kept(machine, PULSE8) == {"bus/usb/001/002": "serio"}


def test_a_serial_in_the_entry_picks_one_of_twins(machine: MachineBuilder) -> None:
    adapter(machine, "1-2", serial="A1")
    adapter(machine, "1-3", serial="B2")
    assert sorted(offered(machine, ONE_OF_TWINS)) == ["usb-1-2-1-2", "usb-1-3-1-0", "usb-1-3-1-2"]


def test_a_slot_follows_the_last_inventory_where_an_entry_asks_for_a_serial(machine: MachineBuilder) -> None:
    adapter(machine, "1-2", serial="A1")
    adapter(machine, "1-3", serial="B2")
    lines = serial_lines(inventory(machine, ONE_OF_TWINS))
    tree = machine.tree()
    found = {
        address: len(inspect(tree, ONE_OF_TWINS, "usb", f"{address}:1.0", lines=lines).devices)
        for address in ("1-2", "1-3")
    }
    assert (sorted(lines), found) == (["1-2"], {"1-2": 0, "1-3": 1})


def test_a_slot_without_an_inventory_withholds_every_device_with_the_ids(machine: MachineBuilder) -> None:
    adapter(machine, "1-3", serial="B2")
    found = slot(machine, "usb", "1-3:1.0", ONE_OF_TWINS)
    assert ([each.reason for each in found.withheld], found.devices) == (["serio"], ())


def test_an_older_claim_on_the_bare_name_finds_it_withheld(machine: MachineBuilder) -> None:
    attach(machine, adapter(machine))
    found = slot(machine, "usb", "1-2:1.0", PULSE8)
    assert [device.variant for device in found.devices] == ["cec", "input"]
    assert [(each.node, each.reason) for each in found.withheld] == [("/dev/ttyACM2", "serio")]


def test_a_cec_bus_below_a_graphics_card_is_no_serial_line(machine: MachineBuilder) -> None:
    gpu = machine.pci("0000:00:02.0", driver="i915")
    card = machine.drm(gpu, card=0, render=128, connectors=["HDMI-A-1"])
    machine.node(f"{card}/card0-HDMI-A-1", "cec", "cec0", folder="")
    assert offered(machine, PULSE8)["pci-0000-00-02-0"] == ["dri/renderD128"]
    assert offered(machine, PULSE8)["pci-0000-00-02-0-cec"] == ["cec0"]
