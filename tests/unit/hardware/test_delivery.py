"""What hardware delivers."""

import pytest

from common.hardware.delivery import natural, node_path
from tests.builders import MachineBuilder
from tests.unit.hardware.ask import SPARE, details, devices, kept, offered


def test_a_port_without_a_uart_is_dropped(machine: MachineBuilder) -> None:
    ports = machine.board("platform", "serial8250", driver="serial8250")
    for number in range(1, 5):
        machine.tty(ports, f"ttyS{number}", port_type=0)
    machine.tty(machine.board("pnp", "00:03", driver="serial"), "ttyS0", port_type=4)
    assert offered(machine) == {"pnp-00-03": ["ttyS0"]}


def test_framebuffers_are_dropped_from_every_delivery(machine: MachineBuilder) -> None:
    only = machine.board("platform", "simple-framebuffer.0", driver="simple-framebuffer")
    machine.node(only, "graphics", "fb0")
    mixed = machine.pci("0000:01:00.0", driver="odd")
    machine.node(mixed, "graphics", "fb1")
    machine.node(mixed, "misc", "odd")
    assert offered(machine) == {"pci-0000-01-00-0": ["odd"]}


def test_a_vfio_handle_is_delivered_by_nothing(machine: MachineBuilder) -> None:
    machine.node(
        machine.pci("0000:01:00.0", driver="vfio-pci"), "vfio-dev", "vfio0", devname="vfio/devices/vfio0"
    )
    assert offered(machine) == {}


def test_a_host_controller_does_not_deliver_its_usb_devices(machine: MachineBuilder) -> None:
    stick = machine.usb("1-4", devnum=3)
    machine.tty(machine.interface(stick, 0, driver="ch341"), "ttyUSB0")
    assert offered(machine) == {"usb-1-4-1-0": ["ttyUSB0", "bus/usb/001/003"]}


def test_usbfs_alone_makes_no_interface_claimable(machine: MachineBuilder) -> None:
    machine.interface(machine.usb("1-4"), 0, driver="usb-wifi")
    assert offered(machine) == {}


def test_an_interface_without_device_numbers_delivers_its_own_nodes_only(machine: MachineBuilder) -> None:
    stick = machine.usb("1-4")
    machine.tty(machine.interface(stick, 0, driver="ch341"), "ttyUSB0")
    machine.path(f"{stick}/devnum").unlink()
    assert offered(machine) == {"usb-1-4-1-0": ["ttyUSB0"]}


@pytest.mark.parametrize(
    "name", ["../etc/passwd", "/etc/passwd", "input/../../x", "a//b", ".", "tty\x1b[2J", "", "caf\udce9"]
)
def test_a_device_name_that_leaves_dev_or_hides_something_is_refused(name: str) -> None:
    assert node_path(b"DEVNAME=" + name.encode("utf-8", "surrogateescape")) == ""


def test_a_device_name_may_lie_in_folders() -> None:
    assert node_path(b"MAJOR=116\nDEVNAME=snd/by/pcmC0D0p\n") == "/dev/snd/by/pcmC0D0p"


def test_a_directory_with_dev_but_without_a_device_name_is_no_node(machine: MachineBuilder) -> None:
    function = machine.pci("0000:01:00.0", driver="old")
    node = machine.node(function, "misc", "old")
    machine.write(f"{node}/uevent", "MAJOR=10\nMINOR=1\n")
    assert offered(machine) == {}


def test_a_network_card_with_a_clock_is_still_a_network_card(machine: MachineBuilder) -> None:
    card = machine.pci("0000:01:00.0", driver="igb", pci_class="020000")
    machine.device(f"{card}/net", "eth0", "net")
    machine.node(card, "ptp", "ptp0")
    assert offered(machine) == {}


def test_a_network_card_whose_interface_is_in_another_namespace_is_still_one(machine: MachineBuilder) -> None:
    card = machine.pci("0000:01:00.0", driver="igb", pci_class="020000")
    machine.remove(machine.device(f"{card}/net", "eth0", "net"))  # the kernel leaves the empty folder visible
    machine.node(card, "ptp", "ptp0")
    assert offered(machine) == {}


def test_a_clock_without_a_network_card_is_offered(machine: MachineBuilder) -> None:
    machine.node(machine.pci("0000:01:00.0", driver="ptp_ocp"), "ptp", "ptp0")
    assert offered(machine) == {"pci-0000-01-00-0": ["ptp0"]}


def test_infiniband_and_modem_nodes_of_a_network_card_count(machine: MachineBuilder) -> None:
    card = machine.pci("0000:01:00.0", driver="mlx5_core")
    machine.device(f"{card}/net", "ib0", "net")
    machine.node(card, "ptp", "ptp0")
    machine.node(card, "infiniband_verbs", "uverbs0", devname="infiniband/uverbs0")
    modem = machine.usb("1-4", devnum=2)
    port = machine.interface(modem, 8, driver="qmi_wwan")
    machine.device(f"{port}/net", "wwan0", "net")
    machine.node(port, "usbmisc", "cdc-wdm0")
    assert offered(machine) == {
        "pci-0000-01-00-0": ["infiniband/uverbs0"],
        "usb-1-4-1-8": ["cdc-wdm0", "bus/usb/001/002"],
    }


def test_nodes_come_in_counting_order_and_usbfs_last(machine: MachineBuilder) -> None:
    mouse = machine.interface(machine.usb("1-4", devnum=2), 0, driver="usbhid")
    for number in (10, 2):
        machine.event(mouse, number)
    machine.hidraw(mouse, "hidraw0")
    assert offered(machine)["usb-1-4-1-0"] == [
        "hidraw0",
        "input/event2",
        "input/event10",
        "bus/usb/001/002",
    ]


def test_counting_order_takes_any_text() -> None:
    assert sorted(["a10", "a2", "a", "", "10", "2", "²"], key=natural) == [
        "",
        "2",
        "10",
        "a",
        "a2",
        "a10",
        "²",
    ]


def multipath(machine: MachineBuilder, controller: int, subsystem: int, address: str, hidden: bool) -> str:
    """An NVMe controller whose only namespace lives below virtual/. Returns the namespace's block device."""
    place = machine.nvme(machine.pci(address, driver="nvme"), controller, namespace=False)
    if hidden:
        machine.device(place, f"nvme{subsystem}c{controller}n1", "block")
    home = machine.device("sys/devices/virtual/nvme-subsystem", f"nvme-subsys{subsystem}", "nvme-subsystem")
    head = f"{home}/nvme{subsystem}n1"
    if not machine.path(head).exists():
        machine.disk(home, f"nvme{subsystem}n1", number=f"259:{subsystem}", folder="")
        machine.node(home, "nvme-generic", f"ng{subsystem}n1", folder="")
    return head


def test_a_controller_delivers_the_namespaces_of_its_subsystem_by_the_hidden_path(
    machine: MachineBuilder,
) -> None:
    multipath(machine, controller=5, subsystem=3, address="0000:01:00.0", hidden=True)
    assert offered(machine, SPARE) == {"pci-0000-01-00-0": ["ng3n1", "nvme3n1", "nvme5"]}


def test_a_controller_delivers_the_namespaces_of_its_subsystem_by_the_link(machine: MachineBuilder) -> None:
    multipath(machine, controller=5, subsystem=3, address="0000:01:00.0", hidden=False)
    machine.link(
        "sys/devices/virtual/nvme-subsystem/nvme-subsys3/nvme5",
        "sys/devices/pci0000:01/0000:01:00.0/nvme/nvme5",
    )
    assert offered(machine, SPARE) == {"pci-0000-01-00-0": ["ng3n1", "nvme3n1", "nvme5"]}


def test_without_links_and_hidden_paths_equal_numbers_belong_together(machine: MachineBuilder) -> None:
    multipath(machine, controller=3, subsystem=3, address="0000:01:00.0", hidden=False)
    assert offered(machine, SPARE) == {"pci-0000-01-00-0": ["ng3n1", "nvme3", "nvme3n1"]}


def test_a_controller_whose_multipath_namespace_is_mounted_is_withheld(machine: MachineBuilder) -> None:
    head = multipath(machine, controller=5, subsystem=3, address="0000:01:00.0", hidden=True)
    machine.mount(head, "/srv")
    assert offered(machine, SPARE) == {}
    assert kept(machine, SPARE) == {"ng3n1": "storage", "nvme3n1": "storage", "nvme5": "storage"}


def test_a_namespace_with_paths_on_two_functions_publishes_nothing(machine: MachineBuilder) -> None:
    multipath(machine, controller=5, subsystem=3, address="0000:01:00.0", hidden=True)
    multipath(machine, controller=6, subsystem=3, address="0000:02:00.0", hidden=True)
    assert offered(machine, SPARE) == {}
    assert "has paths on two PCI functions" in details(machine, SPARE)["nvme5"]


def test_a_used_namespace_of_no_known_controller_withholds_every_controller(machine: MachineBuilder) -> None:
    machine.nvme(machine.pci("0000:01:00.0", driver="nvme"), 0)
    home = machine.device("sys/devices/virtual/nvme-subsystem", "nvme-subsys7", "nvme-subsystem")
    lost = machine.disk(home, "nvme7n1", number="259:7", folder="")
    assert list(offered(machine, SPARE)) == ["pci-0000-01-00-0"]
    machine.mount(lost, "/srv")
    assert offered(machine, SPARE) == {}


def test_a_claim_on_one_capture_interface_has_only_its_nodes(machine: MachineBuilder) -> None:
    camera = machine.usb("1-5", devnum=2)
    for number, first in ((0, 0), (2, 2)):
        part = machine.interface(camera, number, driver="uvcvideo", usb_class="0e")
        machine.node(part, "video4linux", f"video{first}")
        machine.node(part, "video4linux", f"video{first + 1}")
    assert offered(machine) == {
        "usb-1-5-1-0": ["video0", "video1", "bus/usb/001/002"],
        "usb-1-5-1-2": ["video2", "video3", "bus/usb/001/002"],
    }


def test_thirty_six_nodes_of_one_function_are_one_device(machine: MachineBuilder) -> None:
    unit = machine.pci("0000:00:05.0", driver="intel-ipu7")
    for number in range(36):
        machine.node(unit, "video4linux", f"video{number}")
    assert len(devices(machine)["pci-0000-00-05-0"].nodes) == 36
