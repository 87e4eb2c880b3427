"""Which hardware exists, and who owns a node."""

from common.hardware.discovery import Ownership, usb_devices
from tests.builders import MachineBuilder
from tests.unit.hardware.ask import devices, offered, texts


def test_a_pci_function_with_a_driver_and_a_node_is_offered(machine: MachineBuilder) -> None:
    machine.node(machine.pci("0000:01:00.0", driver="gasket"), "apex", "apex_0")
    assert offered(machine) == {"pci-0000-01-00-0": ["apex_0"]}


def test_a_pci_function_without_a_driver_is_not_offered(machine: MachineBuilder) -> None:
    machine.node(machine.pci("0000:01:00.0"), "apex", "apex_0")
    assert offered(machine) == {}


def test_a_pci_function_without_nodes_is_not_offered(machine: MachineBuilder) -> None:
    machine.pci("0000:01:00.0", driver="e1000e")
    assert offered(machine) == {}


def test_a_pci_domain_may_have_five_digits(machine: MachineBuilder) -> None:
    machine.node(machine.pci("10001:84:00.0", driver="gasket"), "apex", "apex_0")
    device = devices(machine)["pci-10001-84-00-0"]
    assert "resource.kubernetes.io/pciBusID" not in device.attributes
    assert texts(device)["address"] == "10001:84:00.0"


def test_a_pcie_port_is_plumbing(machine: MachineBuilder) -> None:
    port = machine.pci("0000:00:1c.0", driver="pcieport", pci_class="060400")
    machine.node(port, "misc", "odd")
    assert offered(machine) == {}


def test_what_lies_behind_a_bridge_belongs_to_the_function_behind_it(machine: MachineBuilder) -> None:
    port = machine.pci("0000:00:1c.0", driver="pcieport", pci_class="060400")
    machine.node(machine.pci("0000:01:00.0", driver="gasket", parent=port), "apex", "apex_0")
    assert offered(machine) == {"pci-0000-01-00-0": ["apex_0"]}


def test_each_driven_interface_with_a_node_is_a_device_with_the_usbfs_node(machine: MachineBuilder) -> None:
    board = machine.usb("1-4", vendor="0451", product="bef3", devnum=7)
    machine.tty(machine.interface(board, 0, driver="cdc_acm"), "ttyACM0")
    machine.interface(board, 1, driver="cdc_acm")
    machine.tty(machine.interface(board, 3, driver="cdc_acm"), "ttyACM1")
    assert offered(machine) == {
        "usb-1-4-1-0": ["ttyACM0", "bus/usb/001/007"],
        "usb-1-4-1-3": ["ttyACM1", "bus/usb/001/007"],
    }


def test_interfaces_come_in_order_of_their_number(machine: MachineBuilder) -> None:
    phone = machine.usb("1-4")
    for number in (10, 2, 0):
        machine.interface(phone, number)
    found = [interface.address for interface in usb_devices(machine.tree())[0].interfaces]
    assert found == ["1-4:1.0", "1-4:1.2", "1-4:1.10"]


def test_a_device_without_any_interface_driver_publishes_whole(machine: MachineBuilder) -> None:
    camera = machine.usb("1-4", vendor="03e7", product="2485", devnum=9)
    machine.interface(camera, 0)
    machine.interface(camera, 1)
    assert offered(machine) == {"usb-1-4": ["bus/usb/001/009"]}


def test_a_device_driver_on_the_device_itself_does_not_count(machine: MachineBuilder) -> None:
    phone = machine.usb("1-4", driver="apple-mfi-fastcharge")
    machine.interface(phone, 0)
    assert list(offered(machine)) == ["usb-1-4"]


def test_a_device_with_one_driven_interface_does_not_publish_whole(machine: MachineBuilder) -> None:
    key = machine.usb("1-4", vendor="1050", product="0407")
    machine.hidraw(machine.interface(key, 0, driver="usbhid", usb_class="03"), "hidraw0")
    machine.interface(key, 1, usb_class="0b")
    assert list(offered(machine)) == ["usb-1-4-1-0"]


def test_a_device_without_interfaces_is_not_published(machine: MachineBuilder) -> None:
    machine.usb("1-4")
    assert offered(machine) == {}


def test_a_device_whose_interface_a_program_holds_publishes_in_no_form(machine: MachineBuilder) -> None:
    radio = machine.usb("1-4", vendor="0bda", product="2838")
    machine.interface(radio, 0, driver="usbfs")
    machine.interface(radio, 1)
    assert offered(machine) == {}


def test_hubs_publish_nothing(machine: MachineBuilder) -> None:
    hub = machine.usb("1-4")
    machine.interface(hub, 0, driver="hub", usb_class="09")
    assert offered(machine) == {}


def test_devices_behind_a_hub_are_named_by_their_ports(machine: MachineBuilder) -> None:
    hub = machine.usb("1-4")
    machine.interface(hub, 0, driver="hub", usb_class="09")
    machine.interface(machine.usb("1-4.2"), 0)
    assert list(offered(machine)) == ["usb-1-4-2"]


def test_a_board_device_is_the_nearest_driven_one_that_the_firmware_describes(
    machine: MachineBuilder,
) -> None:
    bus = machine.board("platform", "soc", driver="simple-pm-bus")
    port = machine.board("amba", "fe201000.serial", driver="uart-pl011", parent=bus)
    machine.tty(port, "ttyAMA0")
    assert offered(machine) == {"amba-fe201000-serial": ["ttyAMA0"]}


def test_children_of_a_described_device_belong_to_it(machine: MachineBuilder) -> None:
    controller = machine.board("platform", "i8042", driver="i8042")
    keyboard = machine.board("serio", "serio0", driver="atkbd", parent=controller)
    machine.event(keyboard, 3)
    touchpad = machine.board("serio", "serio1", driver="psmouse", parent=controller)
    machine.event(touchpad, 4)
    assert offered(machine) == {"platform-i8042": ["input/event3", "input/event4"]}


def test_vmbus_devices_are_owners_below_their_acpi_root(machine: MachineBuilder) -> None:
    root = machine.board("acpi", "VMBUS:00", driver="hv_vmbus")
    keyboard = machine.board(
        "vmbus", "d34b2567-b9b6-42b9-8778-0a4ec0b955bf", driver="hid_hyperv", parent=root
    )
    machine.hidraw(keyboard, "hidraw0")
    assert list(offered(machine)) == ["vmbus-d34b2567-b9b6-42b9-8778-0a4ec0b955bf"]


def test_off_the_described_buses_the_outermost_driven_device_owns(machine: MachineBuilder) -> None:
    host = machine.board("spi", "spi0.0", driver="max3107", parent="sys/devices/odd")
    chip = machine.board("i2c", "0-0050", driver="at24", parent=host)
    machine.node(chip, "misc", "thing")
    assert offered(machine) == {"spi-spi0-0": ["thing"]}


def test_an_iscsi_disk_has_no_owner(machine: MachineBuilder) -> None:
    disk = machine.scsi_disk("sys/devices/platform", "sdz")
    owner = Ownership(machine.tree()).owner(disk)
    assert (owner.owner, owner.why) == (None, "undriven")


def test_virtual_nodes_belong_to_nobody(machine: MachineBuilder) -> None:
    places = [machine.virtual("misc", "kvm"), machine.virtual("sound", "timer", "snd/timer")]
    vkms = machine.board("faux", "vkms", driver="faux_driver", parent="sys/devices/faux")
    places.append(machine.node(vkms, "drm", "card0", devname="dri/card0"))
    why = [Ownership(machine.tree()).owner(place).why for place in places]
    assert (offered(machine), why) == ({}, ["virtual", "virtual", "virtual"])


def test_a_described_device_below_an_undriven_function_is_a_board_device(machine: MachineBuilder) -> None:
    bridge = machine.pci("0000:00:1f.0", pci_class="060100")
    port = machine.board("pnp", "00:05", driver="serial", parent=bridge)
    machine.tty(port, "ttyS1", port_type=4)
    assert offered(machine) == {"pnp-00-05": ["ttyS1"]}


def test_a_described_device_below_a_driven_function_belongs_to_the_function(machine: MachineBuilder) -> None:
    function = machine.pci("0000:00:15.0", driver="intel-lpss")
    i2c = machine.board("platform", "i2c_designware.0", driver="i2c_designware", parent=function)
    machine.i2c(i2c, 6)
    assert offered(machine) == {"pci-0000-00-15-0": ["i2c-6"]}


def test_a_board_behind_pci_owns_what_its_device_tree_describes(machine: MachineBuilder) -> None:
    chip = machine.pci("0002:01:00.0", driver="rp1")
    uart = machine.board("amba", "1f00030000.serial", driver="uart-pl011", parent=chip, of_node=True)
    machine.tty(uart, "ttyAMA0")
    i2c = machine.board("platform", "1f00074000.i2c", driver="i2c_designware", parent=chip, of_node=True)
    machine.i2c(i2c, 1)
    machine.node(chip, "misc", "rp1-firmware")
    assert offered(machine) == {
        "amba-1f00030000-serial": ["ttyAMA0"],
        "pci-0002-01-00-0": ["rp1-firmware"],
        "platform-1f00074000-i2c": ["i2c-1"],
    }


def test_usb_behind_a_board_controller_keeps_its_own_names(machine: MachineBuilder) -> None:
    controller = machine.board("platform", "xhci-hcd.0", driver="xhci-hcd")
    hub = machine.root_hub(3, superspeed=True, parent=controller)
    machine.interface(machine.usb("3-2", parent=hub, devnum=5), 0)
    assert offered(machine) == {"usb-3-2": ["bus/usb/003/005"]}


def test_a_serial_base_layer_between_port_and_tty_changes_nothing(machine: MachineBuilder) -> None:
    port = machine.board("pnp", "00:03", driver="serial")
    controller = machine.board("serial-base", "00:03:0", driver="ctrl", parent=port)
    base = machine.board("serial-base", "00:03:0.0", driver="port", parent=controller)
    machine.tty(base, "ttyS0", port_type=4)
    assert offered(machine) == {"pnp-00-03": ["ttyS0"]}


def test_a_machine_without_pci_and_usb_is_normal(machine: MachineBuilder) -> None:
    for bus in ("pci", "usb"):
        (machine.path(f"sys/bus/{bus}/devices")).rmdir()
        (machine.path(f"sys/bus/{bus}")).rmdir()
    machine.tty(machine.board("ccw", "0.0.0009", driver="3215"), "3215")
    assert list(offered(machine)) == ["ccw-0-0-0009"]


def test_dangling_driver_links_count_as_drivers(machine: MachineBuilder) -> None:
    function = machine.pci("0000:01:00.0", driver="gasket")
    machine.node(function, "apex", "apex_0")
    assert not machine.path("sys/bus/pci/drivers/gasket").joinpath("bind").exists()
    (machine.path("sys/bus/pci/drivers/gasket/0000:01:00.0")).unlink()
    machine.path("sys/bus/pci/drivers/gasket").rmdir()
    assert texts(devices(machine)["pci-0000-01-00-0"])["driver"] == "gasket"
