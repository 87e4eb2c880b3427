"""Single facts about recorded machines: the traps that real users met, and what liken does about each."""

import re

import pytest

from common.hardware.machine import Machine
from common.inventory import Device, Inventory
from tests.machines.marks import needs_machines
from tests.machines.opinion import opinion
from tests.machines.product import inventory
from tests.machines.recording import MACHINES, archives, load, machine_name

pytestmark = needs_machines

DGX_DISKS = {"nvme0": "0000:01:00.0", "nvme1": "0000:02:00.0"} | {
    f"nvme{number}": address
    for number, address in zip(
        (2, 3, 4, 5, 6, 7, 8, 9),
        ("2a", "ab", "ac", "2b", "ad", "2c", "ae", "2d"),
        strict=True,
    )
    for address in (f"0000:{address}:00.0",)
}


def of(machine: str, declared: Machine | None = None) -> Inventory:
    return inventory(MACHINES / f"{machine}.tar.xz", declared)


def devices(machine: str, declared: Machine | None = None) -> dict[str, Device]:
    return {device.name: device for device in of(machine, declared).devices}


def nodes(machine: str, name: str, declared: Machine | None = None) -> list[str]:
    return sorted(node.path.removeprefix("/dev/") for node in devices(machine, declared)[name].nodes)


def withheld(machine: str) -> dict[str, str]:
    return {entry.node.removeprefix("/dev/"): entry.reason for entry in of(machine).withheld}


def text(machine: str, name: str, attribute: str) -> object:
    return devices(machine)[name].attributes.get(attribute, {}).get("string")


# -- one machine, two boots


def test_a_reboot_changes_no_name_but_the_nodes() -> None:
    before, after = devices("desktop-usb-disk-boot1"), devices("desktop-usb-disk-boot2")
    assert before.keys() == after.keys()
    assert nodes("desktop-usb-disk-boot1", "usb-1-14-1-0") == ["bsg/6:0:0:0", "bus/usb/001/004", "sdb", "sg1"]
    assert nodes("desktop-usb-disk-boot2", "usb-1-14-1-0") == ["bsg/7:0:0:0", "bus/usb/001/005", "sdc", "sg2"]


def test_a_reboot_changes_no_attribute() -> None:
    before, after = devices("desktop-usb-disk-boot1"), devices("desktop-usb-disk-boot2")
    assert {name: device.attributes for name, device in before.items()} == {
        name: device.attributes for name, device in after.items()
    }


# -- graphics


def test_on_a_pi_the_render_node_and_the_screen_are_two_pieces_of_hardware() -> None:
    found = devices("raspberry-pi-4")
    assert {name for name, device in found.items() if "renderNode" in device.attributes} == {
        "platform-fec00000-v3d"
    }
    assert {name for name, device in found.items() if "displayNode" in device.attributes} == {"platform-gpu"}
    assert found["platform-fec00000-v3d"].address != found["platform-gpu"].address


def test_codec_isp_and_audio_of_a_pi_are_devices_of_their_own() -> None:
    found = devices("raspberry-pi-4")
    children = {"platform-bcm2835-codec", "platform-bcm2835-isp", "platform-bcm2835-audio"}
    assert children <= found.keys()
    assert nodes("raspberry-pi-4", "platform-fe00b840-mailbox") == ["vchiq"]


def test_card_and_render_node_pair_by_the_card_they_are_on() -> None:
    for machine in ("laptop-two-gpus", "laptop-lunar-lake-npu", "workstation-four-gpus-no-facts"):
        opinions = opinion(load(MACHINES / f"{machine}.tar.xz")).owners
        for device in of(machine).devices:
            for node in device.nodes:
                if node.kind == "drm":
                    assert (node.path, opinions[node.path].address) == (node.path, device.address)


def test_a_card_number_and_a_render_number_need_not_agree() -> None:
    assert nodes("laptop-lunar-lake-npu", "pci-0000-00-02-0") == ["dri/renderD128"]
    assert nodes("laptop-lunar-lake-npu", "pci-0000-00-02-0-display") == ["dri/card1"]


def test_four_gpus_without_connectors_are_twelve_devices_that_drive_no_screen() -> None:
    found = devices("workstation-four-gpus-no-facts")
    gpus = [name for name in found if re.match(r"pci-0000-0[78ef]-00-0", name)]
    suffixes = sorted(re.sub(r"pci-0000-0.-00-0", "", name) for name in gpus)
    assert suffixes == [""] * 4 + ["-display"] * 4 + ["-i2c-dev"] * 4
    assert not any("displayNode" in device.attributes for device in found.values())


def test_an_i2c_companion_has_exactly_the_wires_of_its_card() -> None:
    assert nodes("laptop-two-gpus", "pci-0000-01-00-0-i2c-dev") == ["i2c-5"]
    assert nodes("server-power8", "pci-0009-06-00-0-i2c-dev") == ["i2c-13"]
    assert "pci-0000-00-02-0-i2c-dev" not in devices("vm-openstack")


def test_no_claim_delivers_kfd_or_a_framebuffer() -> None:
    for path in archives():
        delivered = {node.path for device in inventory(path).devices for node in device.nodes}
        assert not {path for path in delivered if re.match(r"/dev/(kfd|fb\d+|dri/controlD\d+)$", path)}


def test_hdmi_audio_delivers_its_jack_inputs() -> None:
    assert [
        name for name in nodes("workstation-four-gpus-no-facts", "pci-0000-07-00-1") if "input" in name
    ] == [
        "input/event18",
        "input/event19",
        "input/event21",
    ]


def test_a_card_with_a_mixer_only_runs_no_sound_server() -> None:
    mixer = devices("laptop-docked-wwan")["platform-thinkpad-acpi"]
    assert mixer.attributes["subsystem"] == {"string": "sound"}
    assert "sound.liken.sh/supportsSound" not in mixer.attributes


# -- held


def test_every_console_is_held_and_the_other_ports_are_offered() -> None:
    assert withheld("raspberry-pi-4")["ttyAMA0"] == "console"
    assert "amba-fe201000-serial" not in devices("raspberry-pi-4")
    assert nodes("raspberry-pi-4", "platform-fe215040-serial") == ["ttyS0"]
    assert withheld("vm-openstack")["ttyS0"] == "console"


def test_both_watchdog_nodes_are_held_whatever_their_subsystem() -> None:
    found = withheld("raspberry-pi-4")
    assert (found["watchdog"], found["watchdog0"]) == ("watchdog", "watchdog")


def test_a_released_watchdog_is_offered() -> None:
    declared = Machine(release=frozenset({"watchdog"}))
    assert nodes("raspberry-pi-4", "platform-bcm2835-wdt", declared) == ["watchdog", "watchdog0"]


@pytest.mark.parametrize(
    ("machine", "bus"),
    [
        ("laptop-docked-wwan", "pnp"),
        ("laptop-two-gpus", "platform"),
        ("laptop-lunar-lake-npu", "platform"),
        ("desktop-coral-pcie", "acpi"),
        ("desktop-usb-disk-boot1", "acpi"),
        ("gateway-apollo-lake-emmc", "acpi"),
    ],
)
def test_a_tpm_is_held_by_name_on_every_bus(machine: str, bus: str) -> None:
    kept = [entry for entry in of(machine).withheld if entry.reason == "tpm"]
    assert {entry.bus for entry in kept} == {bus}
    assert "/dev/tpm0" in {entry.node for entry in kept}


def test_flash_and_management_controller_of_a_server_are_held_with_a_reason() -> None:
    found = withheld("server-dgx-b200")
    assert (found["mtd0"], found["mtd0ro"], found["ipmi0"]) == ("flash", "flash", "ipmi")


def test_ports_without_a_uart_are_neither_offered_nor_withheld() -> None:
    delivered = {node for name in devices("desktop-coral-pcie") for node in nodes("desktop-coral-pcie", name)}
    ports = {node for node in delivered | set(withheld("desktop-coral-pcie")) if node.startswith("ttyS")}
    assert ports == {"ttyS0", "ttyS1"}


# -- disks


def test_nothing_of_the_disk_a_machine_runs_from_is_offered() -> None:
    found = withheld("raspberry-pi-4")
    assert {name for name in found if name.startswith("mmcblk0")} == {
        "mmcblk0",
        "mmcblk0p1",
        "mmcblk0p2",
        "mmcblk0p3",
    }


def test_undeclared_disks_of_a_server_are_withheld() -> None:
    details = {
        entry.node: entry.detail for entry in of("server-dgx-b200").withheld if entry.reason == "storage"
    }
    assert {f"/dev/{name}" for name in DGX_DISKS} <= details.keys()
    assert "not declared spare" in details["/dev/nvme1n1"]


def test_declared_roles_offer_every_other_disk_with_its_virtual_namespaces() -> None:
    found = devices("server-dgx-b200", Machine(roles=frozenset({"nvme0n1"})))
    offered = {device.address: {node.path for node in device.nodes} for device in found.values()}
    for name, address in DGX_DISKS.items():
        expected = {f"/dev/{name}", f"/dev/{name}n1", f"/dev/ng{name[4:]}n1"}
        assert offered.get(address) == (None if name == "nvme0" else expected)


def test_without_facts_no_disk_is_offered() -> None:
    found = of("workstation-four-gpus-no-facts")
    assert found.facts.storage == "unknown"
    assert not [device.name for device in found.devices if "block" in device.kinds]


def test_a_spare_sd_card_is_offered_and_the_system_emmc_is_not() -> None:
    assert nodes("gateway-apollo-lake-emmc", "pci-0000-00-1b-0") == ["mmcblk1", "mmcblk1p1"]
    assert "pci-0000-00-1c-0" not in devices("gateway-apollo-lake-emmc")


def test_disks_behind_a_five_digit_domain_are_found_and_withheld() -> None:
    kept = {entry.address for entry in of("server-vmd-fragment").withheld}
    assert kept == {"10001:84:00.0", "10002:01:00.0", "10002:02:00.0"}


# -- usb


def test_a_modem_publishes_exactly_the_interfaces_that_have_nodes() -> None:
    found = [name for name in devices("laptop-docked-wwan") if name.startswith("usb-3-4-")]
    assert found == [f"usb-3-4-1-{number}" for number in (1, 3, 5, 6, 8, 9)]


def test_two_capture_interfaces_of_one_camera_are_two_devices() -> None:
    assert nodes("laptop-two-gpus", "usb-1-5-1-0") == [
        "bus/usb/001/002",
        "input/event8",
        "media0",
        "video0",
        "video1",
    ]
    assert nodes("laptop-two-gpus", "usb-1-5-1-2") == [
        "bus/usb/001/002",
        "input/event9",
        "media1",
        "video2",
        "video3",
    ]


def test_a_reader_whose_first_interface_is_of_another_class_shows_all_its_classes() -> None:
    assert text("laptop-lunar-lake-npu", "usb-1-5", "classCode") == "fe"
    assert text("laptop-lunar-lake-npu", "usb-1-5", "interfaceClasses") == "fe 0b 0b ff"


def test_interfaces_are_ordered_by_number() -> None:
    assert text("laptop-t60p-full-sysfs-2.6.27", "usb-4-1", "interfaceClasses") == "e0 e0 ff fe"


def test_a_usb_device_without_interfaces_is_not_offered() -> None:
    assert "usb-2-2" not in devices("server-power8")


@pytest.mark.parametrize(
    ("machine", "name"), [("laptop-two-gpus", "usb-1-7-1-0"), ("laptop-docked-wwan", "usb-1-1-4-1-0")]
)
def test_a_radio_publishes_once(machine: str, name: str) -> None:
    radios = [
        device.name for device in of(machine).devices if "/dev/uinput" in {n.path for n in device.nodes}
    ]
    assert radios == [name]
    assert len([node for node in nodes(machine, name) if node.startswith("input/event")]) == 32


def test_a_serial_number_with_a_sign_beyond_ascii_is_intact() -> None:
    assert text("laptop-docked-wwan", "usb-3-1-3-1-0", "serial") == "12²"


def test_a_name_is_cut_at_a_character_border() -> None:
    name = text("gateway-apollo-lake-emmc", "usb-2-6-1-0", "name")
    assert isinstance(name, str)
    assert len(name.encode()) <= 64
    assert "\ufffd" not in name


# -- the size and age of machines


def test_more_than_five_hundred_functions_are_walked() -> None:
    recorded = load(MACHINES / "server-dgx-b200.tar.xz")
    assert len(recorded.names("sys/bus/pci/devices")) == 559
    accelerators = [
        entry for entry in of("server-dgx-b200").unclaimed if "v000010DEd00002901" in entry.modalias
    ]
    assert len(accelerators) == 8


def test_dangling_driver_links_name_their_drivers() -> None:
    assert text("server-137-functions-sysfs", "pci-0000-83-00-0", "driver") == "mic"


def test_a_kernel_that_states_no_device_names_yields_the_devices_it_names() -> None:
    assert list(devices("laptop-t60p-full-sysfs-2.6.27")) == ["usb-4-1", "usb-4-2", "usb-5-2-1-0"]


def test_a_machine_without_pci_and_usb_is_no_error() -> None:
    found = of("mainframe-s390x")
    assert found.devices == ()
    assert {entry.node for entry in found.withheld} >= {"/dev/dasda", "/dev/dasdb", "/dev/dasdc"}


def test_no_name_and_no_attribute_comes_from_a_bus_or_device_number() -> None:
    for path in archives():
        for device in inventory(path).devices:
            numbers = [node.path for node in device.nodes if node.kind == "usb"]
            values = {str(value) for attribute in device.attributes.values() for value in attribute.values()}
            for node in numbers:
                assert not values & {node, node.removeprefix("/dev/"), node.rpartition("/")[2]}, machine_name(
                    path
                )
