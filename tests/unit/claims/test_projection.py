"""From record and hardware to spec: the five states, and what each writes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from common.hardware.machine import Machine, SerialLine
from common.hardware.tree import Tree, TreeError
from tests.claim_bench import Bench
from tests.unit.claims.shapes import ADAPTER, adapter, graphics_card, modem, radio, undriven

ABSENT, WITHHELD = "/dev/liken.sh/absent/", "/dev/liken.sh/withheld/"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_an_unplugged_device_gets_a_node_that_does_not_exist_and_its_own_again_when_it_is_back(
    bench: Bench,
) -> None:
    """R11: the same allocation works again."""
    device = adapter(bench.machine)
    claim = bench.take(ADAPTER)
    bench.machine.remove(device)
    assert bench.reconcile() == {ADAPTER: "absent"}
    assert bench.paths(claim) == {ADAPTER: [ABSENT + ADAPTER]}
    adapter(bench.machine)
    assert bench.reconcile() == {ADAPTER: "present"}
    assert bench.paths(claim) == {ADAPTER: ["/dev/ttyUSB0", "/dev/bus/usb/001/003"]}


def test_a_device_that_enumerates_anew_keeps_its_name_and_gets_its_new_node(bench: Bench) -> None:
    """R1, R2: other ids, another number, the same port."""
    device = undriven(bench.machine, "1-2", vendor="1a6e", product="089a")
    claim = bench.take("usb-1-2")
    assert bench.paths(claim) == {"usb-1-2": ["/dev/bus/usb/001/002"]}
    bench.machine.remove(device)
    undriven(bench.machine, "1-2", vendor="18d1", product="9302")
    assert bench.reconcile() == {"usb-1-2": "present"}
    assert bench.paths(claim) == {"usb-1-2": ["/dev/bus/usb/001/003"]}


def test_two_adapters_that_swap_their_ttys_keep_their_ports(bench: Bench) -> None:
    """R7."""
    first, second = adapter(bench.machine, "1-1", "ttyUSB0"), adapter(bench.machine, "1-2", "ttyUSB1")
    one, two = bench.take("usb-1-1-1-0"), bench.take("usb-1-2-1-0")
    bench.machine.remove(first)
    bench.machine.remove(second)
    adapter(bench.machine, "1-2", "ttyUSB0")
    adapter(bench.machine, "1-1", "ttyUSB1")
    bench.reconcile()
    assert bench.paths(one)["usb-1-1-1-0"][0] == "/dev/ttyUSB1"
    assert bench.paths(two)["usb-1-2-1-0"][0] == "/dev/ttyUSB0"


def test_a_higher_tty_number_at_the_same_port_is_the_same_device(bench: Bench) -> None:
    """R8."""
    device = adapter(bench.machine, tty="ttyACM0")
    claim = bench.take(ADAPTER)
    bench.machine.remove(device)
    adapter(bench.machine, tty="ttyACM2")
    assert bench.reconcile() == {ADAPTER: "present"}
    assert bench.paths(claim)[ADAPTER][0] == "/dev/ttyACM2"


def test_two_interfaces_of_one_camera_stay_two_devices(bench: Bench) -> None:
    """R9: the order of /dev/video* differs per enumeration."""
    camera = bench.machine.usb("1-5")
    colour = bench.machine.interface(camera, 0, driver="uvcvideo", usb_class="0e")
    infrared = bench.machine.interface(camera, 2, driver="uvcvideo", usb_class="0e")
    bench.machine.node(colour, "video4linux", "video0")
    bench.machine.node(infrared, "video4linux", "video2")
    claim = bench.take("usb-1-5-1-2")
    bench.machine.remove(camera)
    camera = bench.machine.usb("1-5")
    colour = bench.machine.interface(camera, 0, driver="uvcvideo", usb_class="0e")
    infrared = bench.machine.interface(camera, 2, driver="uvcvideo", usb_class="0e")
    bench.machine.node(infrared, "video4linux", "video0")
    bench.machine.node(colour, "video4linux", "video2")
    bench.reconcile()
    assert bench.paths(claim)["usb-1-5-1-2"][0] == "/dev/video0"


def test_another_disk_that_becomes_the_same_sdx_is_never_given(bench: Bench) -> None:
    """R10."""

    def stick(address: str) -> str:
        device = bench.machine.usb(address)
        interface = bench.machine.interface(device, 0, driver="usb-storage", usb_class="08")
        bench.machine.scsi_disk(interface, "sda", host=6)
        return device

    device = stick("1-3")
    claim = bench.take("usb-1-3-1-0")
    assert "/dev/sda" in bench.paths(claim)["usb-1-3-1-0"]
    bench.machine.remove(device)
    stick("1-4")
    assert bench.reconcile() == {"usb-1-3-1-0": "absent"}
    assert bench.paths(claim) == {"usb-1-3-1-0": [ABSENT + "usb-1-3-1-0"]}


def test_a_number_that_the_kernel_changes_leaves_nothing_stale(bench: Bench) -> None:
    """R6, R12: neither record nor spec holds a major or minor."""
    device = adapter(bench.machine)
    claim = bench.take(ADAPTER)
    before = bench.files()
    tty = f"{device}/1-1:1.0/tty/ttyUSB0"
    bench.machine.write(f"{tty}/dev", "511:7\n")
    assert bench.reconcile() == {ADAPTER: "present"}
    assert bench.files() == before
    assert "511" not in bench.specs.path(claim.uid).read_text()


def test_a_driver_that_takes_an_undriven_device_changes_it(bench: Bench) -> None:
    """W1: the claim on the whole device never gets the other form."""
    device = undriven(bench.machine, "1-2")
    claim = bench.take("usb-1-2")
    bench.machine.bind(f"{device}/1-2:1.0", "dvb_usb_rtl28xxu")
    bench.machine.node(f"{device}/1-2:1.0", "dvb", "dvb0.frontend0", devname="dvb/adapter0/frontend0")
    assert bench.reconcile() == {"usb-1-2": "changed"}
    assert bench.paths(claim) == {"usb-1-2": [WITHHELD + "usb-1-2"]}
    bench.machine.remove(f"{device}/1-2:1.0/dvb/dvb0.frontend0")
    bench.machine.unbind(f"{device}/1-2:1.0")
    assert bench.reconcile() == {"usb-1-2": "present"}


def test_a_driver_that_lets_go_changes_the_claim_on_its_interface(bench: Bench) -> None:
    """W1, the other way: the device publishes whole now, under another name."""
    device = adapter(bench.machine)
    claim = bench.take(ADAPTER)
    bench.machine.remove(f"{device}/1-1:1.0/tty/ttyUSB0")
    bench.machine.unbind(f"{device}/1-1:1.0")
    assert bench.reconcile() == {ADAPTER: "changed"}
    assert bench.paths(claim) == {ADAPTER: [WITHHELD + ADAPTER]}


def test_an_interface_that_a_program_took_from_its_driver_keeps_the_usbfs_node(bench: Bench) -> None:
    device = adapter(bench.machine)
    claim = bench.take(ADAPTER)
    bench.machine.remove(f"{device}/1-1:1.0/tty/ttyUSB0")
    bench.machine.bind(f"{device}/1-1:1.0", "usbfs")
    assert bench.reconcile() == {ADAPTER: "present"}
    assert bench.paths(claim) == {ADAPTER: ["/dev/bus/usb/001/002"]}


def test_usbfs_on_an_interface_of_a_claimed_whole_device_changes_nothing(bench: Bench) -> None:
    device = undriven(bench.machine, "1-2")
    claim = bench.take("usb-1-2")
    before = bench.files()
    bench.machine.bind(f"{device}/1-2:1.0", "usbfs")
    assert bench.reconcile() == {"usb-1-2": "present"}
    assert bench.files() == before
    assert bench.paths(claim) == {"usb-1-2": ["/dev/bus/usb/001/002"]}


def test_a_driver_of_the_device_itself_does_not_count(bench: Bench) -> None:
    """W8: apple-mfi-fastcharge replaces usb on the device; only interface drivers decide."""
    device = undriven(bench.machine, "1-2")
    claim = bench.take("usb-1-2")
    bench.machine.bind(device, "apple-mfi-fastcharge")
    assert bench.reconcile() == {"usb-1-2": "present"}
    assert bench.paths(claim) == {"usb-1-2": ["/dev/bus/usb/001/002"]}


def test_a_modem_that_was_a_cd_rom_never_gives_its_serial_ports_to_the_old_claim(bench: Bench) -> None:
    """W7: same slot, another kind of thing."""
    device = modem(bench.machine, "1-6", storage=True)
    claim = bench.take("usb-1-6-1-0")
    bench.machine.remove(device)
    modem(bench.machine, "1-6", storage=False)
    assert bench.reconcile() == {"usb-1-6-1-0": "changed"}
    assert bench.paths(claim) == {"usb-1-6-1-0": [WITHHELD + "usb-1-6-1-0"]}


def test_a_serial_port_that_became_a_disk_is_changed(bench: Bench) -> None:
    device = modem(bench.machine, "1-6", storage=False)
    claim = bench.take("usb-1-6-1-0")
    bench.machine.remove(device)
    modem(bench.machine, "1-6", storage=True)
    assert bench.reconcile() == {"usb-1-6-1-0": "changed"}
    assert bench.paths(claim) == {"usb-1-6-1-0": [WITHHELD + "usb-1-6-1-0"]}


def test_kinds_that_join_or_leave_are_normal(bench: Bench) -> None:
    device = adapter(bench.machine)
    claim = bench.take(ADAPTER)
    bench.machine.hidraw(f"{device}/1-1:1.0", "hidraw3")
    assert bench.reconcile() == {ADAPTER: "present"}
    assert bench.paths(claim)[ADAPTER] == ["/dev/hidraw3", "/dev/ttyUSB0", "/dev/bus/usb/001/002"]
    bench.machine.remove(f"{device}/1-1:1.0/hidraw/hidraw3")
    assert bench.reconcile() == {ADAPTER: "present"}


def test_a_ups_gets_its_usbfs_node_besides_its_hid_nodes(bench: Bench) -> None:
    """W5."""
    ups = bench.machine.usb("1-1", vendor="051d", product="0002")
    interface = bench.machine.interface(ups, 0, driver="usbhid", usb_class="03")
    bench.machine.hidraw(interface, "hidraw0")
    bench.machine.node(interface, "usbmisc", "hiddev0", devname="usb/hiddev0")
    claim = bench.take(ADAPTER)
    assert bench.paths(claim)[ADAPTER] == ["/dev/hidraw0", "/dev/usb/hiddev0", "/dev/bus/usb/001/002"]


def test_two_claims_on_two_interfaces_hold_the_same_usbfs_node(bench: Bench) -> None:
    """W4: usbfs has no border between interfaces."""
    device = bench.machine.usb("1-1", vendor="0451", product="bef3")
    for number, tty in ((0, "ttyACM0"), (3, "ttyACM1")):
        bench.machine.tty(bench.machine.interface(device, number, driver="cdc_acm", usb_class="02"), tty)
    one, two = bench.take("usb-1-1-1-0"), bench.take("usb-1-1-1-3")
    assert bench.paths(one)["usb-1-1-1-0"] == ["/dev/ttyACM0", "/dev/bus/usb/001/002"]
    assert bench.paths(two)["usb-1-1-1-3"] == ["/dev/ttyACM1", "/dev/bus/usb/001/002"]
    bench.unprepare(one)
    assert bench.paths(two)["usb-1-1-1-3"] == ["/dev/ttyACM1", "/dev/bus/usb/001/002"]


def test_a_claimed_disk_that_the_machine_mounts_is_withheld(bench: Bench) -> None:
    device = bench.machine.usb("1-3")
    interface = bench.machine.interface(device, 0, driver="usb-storage", usb_class="08")
    disk = bench.machine.scsi_disk(interface, "sda", host=6)
    claim = bench.take("usb-1-3-1-0")
    bench.machine.mount(disk, at="/data")
    presence = bench.reconciler.run(write=True)
    (one,) = presence.claims[0].devices
    assert one.state == "withheld"
    assert "/data" in one.reason
    assert bench.paths(claim) == {"usb-1-3-1-0": [WITHHELD + "usb-1-3-1-0"]}


def test_a_disk_is_withheld_while_nobody_can_tell_who_uses_it(bench: Bench) -> None:
    device = bench.machine.usb("1-3")
    interface = bench.machine.interface(device, 0, driver="usb-storage", usb_class="08")
    bench.machine.scsi_disk(interface, "sda", host=6)
    adapter(bench.machine)
    disk, tty = bench.take("usb-1-3-1-0"), bench.take(ADAPTER)
    table = (bench.machine.root / "proc/1/mountinfo").read_bytes()
    bench.machine.write("proc/1/mountinfo", "")
    assert bench.reconcile() == {"usb-1-3-1-0": "withheld", ADAPTER: "present"}
    assert bench.paths(disk) == {"usb-1-3-1-0": [WITHHELD + "usb-1-3-1-0"]}
    assert bench.paths(tty)[ADAPTER][0] == "/dev/ttyUSB0"
    bench.machine.write("proc/1/mountinfo", table)
    assert bench.reconcile()["usb-1-3-1-0"] == "present"


def test_a_port_that_became_the_console_is_withheld(bench: Bench) -> None:
    adapter(bench.machine)
    claim = bench.take(ADAPTER)
    bench.machine.console("tty0", "ttyUSB0")
    assert bench.reconcile() == {ADAPTER: "withheld"}
    assert bench.paths(claim) == {ADAPTER: [WITHHELD + ADAPTER]}


def test_an_older_claim_on_a_line_that_was_declared_later_is_withheld(bench: Bench) -> None:
    device = bench.machine.usb("1-1", vendor="2548", product="1002")
    interface = bench.machine.interface(device, 0, driver="cdc_acm", usb_class="02")
    bench.machine.tty(interface, "ttyACM0")
    claim = bench.take(ADAPTER)
    bench.declared = Machine(serio=(SerialLine("pulse8-cec", "2548", "1002"),))
    bench.restart()
    assert bench.reconcile() == {ADAPTER: "withheld"}
    serio = bench.machine.board("serio", "serio0", driver="pulse8_cec", parent=interface)
    bench.machine.node(serio, "cec", "cec0")
    assert bench.reconcile() == {ADAPTER: "withheld"}
    assert bench.paths(claim) == {ADAPTER: [WITHHELD + ADAPTER]}


def test_an_attached_line_gives_its_cec_bus_and_its_remote_apart_and_without_usbfs(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Machine(serio=(SerialLine("pulse8-cec", "2548", "1002"),)))
    device = bench.machine.usb("1-1", vendor="2548", product="1002")
    interface = bench.machine.interface(device, 0, driver="cdc_acm", usb_class="02")
    bench.machine.tty(interface, "ttyACM0")
    serio = bench.machine.board("serio", "serio0", driver="pulse8_cec", parent=interface)
    bench.machine.node(serio, "cec", "cec0")
    bench.machine.event(serio, 5)
    bus, remote = bench.take(f"{ADAPTER}-cec"), bench.take(f"{ADAPTER}-input")
    assert bench.paths(bus) == {f"{ADAPTER}-cec": ["/dev/cec0"]}
    assert bench.paths(remote) == {f"{ADAPTER}-input": ["/dev/input/event5"]}
    bench.machine.remove(serio)
    assert bench.reconcile() == {f"{ADAPTER}-cec": "absent", f"{ADAPTER}-input": "absent"}


def test_a_radio_gets_its_inlets_and_the_32_input_nodes(bench: Bench) -> None:
    """D5, D6: nodes of peripherals that connect later are in the container from its start."""
    radio(bench.machine, "1-7")
    bench.machine.virtual("misc", "uinput")
    bench.machine.virtual("misc", "uhid")
    claim = bench.take("usb-1-7-1-0")
    paths = bench.paths(claim)["usb-1-7-1-0"]
    assert paths[:3] == ["/dev/bus/usb/001/002", "/dev/uinput", "/dev/uhid"]
    assert paths[3:] == [f"/dev/input/event{number}" for number in range(32)]


def test_a_render_node_that_changes_its_number_is_followed_by_every_claim(bench: Bench) -> None:
    card = graphics_card(bench.machine, render=128)
    one, two = bench.take("pci-0000-00-02-0"), bench.take("pci-0000-00-02-0")
    bench.machine.remove(card)
    graphics_card(bench.machine, render=129)
    bench.reconcile()
    assert bench.paths(one) == {"pci-0000-00-02-0": ["/dev/dri/renderD129"]}
    assert bench.paths(two) == {"pci-0000-00-02-0": ["/dev/dri/renderD129"]}


def test_a_pci_function_without_its_driver_is_absent(bench: Bench) -> None:
    card = graphics_card(bench.machine)
    claim = bench.take("pci-0000-00-02-0")
    bench.machine.remove(f"{card}/drm/renderD128")
    bench.machine.unbind(card)
    assert bench.reconcile() == {"pci-0000-00-02-0": "absent"}
    assert bench.paths(claim) == {"pci-0000-00-02-0": [ABSENT + "pci-0000-00-02-0"]}


class Unreadable(Tree):
    """A tree in which one path cannot be read."""

    def __init__(self, tree: Tree, broken: Callable[[str], bool]) -> None:
        super().__init__(tree.root)
        entries = self.entries

        def listed(path: str):  # type: ignore[no-untyped-def]
            if broken(path):
                raise TreeError(f"cannot read /{path}: Input/output error")
            return entries(path)

        self.entries = listed


def test_what_cannot_be_read_keeps_its_spec(bench: Bench) -> None:
    adapter(bench.machine)
    claim = bench.take(ADAPTER)
    before = bench.files()
    bench.restart(tree=Unreadable(bench.machine.tree(), lambda path: "usb" in path))
    presence = bench.reconciler.run(write=True)
    (one,) = presence.claims[0].devices
    assert one.state == "unknown"
    assert "Input/output error" in one.reason
    assert bench.files() == before
    assert bench.paths(claim)[ADAPTER][0] == "/dev/ttyUSB0"


def test_a_sysfs_that_is_not_mounted_makes_nothing_absent(bench: Bench) -> None:
    adapter(bench.machine)
    bench.take(ADAPTER)
    before = bench.files()
    (bench.machine.root / "sys").rename(bench.machine.root / "elsewhere")
    assert bench.reconcile() == {ADAPTER: "unknown"}
    assert bench.files() == before


def test_a_spec_that_vanished_while_the_hardware_cannot_be_read_withholds(bench: Bench) -> None:
    adapter(bench.machine)
    claim = bench.take(ADAPTER)
    bench.specs.remove(claim.uid)
    (bench.machine.root / "sys").rename(bench.machine.root / "elsewhere")
    assert bench.reconcile() == {ADAPTER: "unknown"}
    assert bench.paths(claim) == {ADAPTER: [WITHHELD + ADAPTER]}


def test_another_port_at_the_same_address_is_changed(bench: Bench) -> None:
    """Bus numbers may be given anew within a boot, when a controller is bound again."""
    adapter(bench.machine)
    claim = bench.take(ADAPTER)
    bench.machine.remove("sys/devices/pci0000:00/0000:00:14.0")
    other = bench.machine.pci("0000:00:15.0", driver="xhci_hcd", pci_class="0c0330")
    hub = bench.machine.root_hub(1, parent=other)
    device = bench.machine.usb("1-1", parent=hub)
    bench.machine.tty(bench.machine.interface(device, 0, driver="ch341"), "ttyUSB0")
    assert bench.reconcile() == {ADAPTER: "changed"}
    assert bench.paths(claim) == {ADAPTER: [WITHHELD + ADAPTER]}


def test_a_ups_that_resets_a_hundred_times_stays_the_same_device(bench: Bench) -> None:
    """R4, R3: another number each time; no udev is asked, and nothing piles up."""
    device = undriven(bench.machine, "1-2", vendor="051d", product="0002")
    claim = bench.take("usb-1-2")
    files = len(bench.files())
    for number in range(3, 103):
        bench.machine.remove(device)
        assert bench.reconcile() == {"usb-1-2": "absent"}
        undriven(bench.machine, "1-2", vendor="051d", product="0002")
        assert bench.reconcile() == {"usb-1-2": "present"}
        assert bench.paths(claim) == {"usb-1-2": [f"/dev/bus/usb/001/{number:03d}"]}
    assert len(bench.files()) == files


def test_no_claim_has_a_node_of_vfio_or_of_another_virtual_device(bench: Bench) -> None:
    """W9: /dev/vfio/N belongs to no hardware."""
    graphics_card(bench.machine)
    bench.machine.virtual("vfio", "7", "vfio/7")
    bench.machine.virtual("misc", "kvm")
    claim = bench.take("pci-0000-00-02-0", "pci-0000-00-02-0-display", "pci-0000-00-02-0-i2c-dev")
    assert sorted(path for paths in bench.paths(claim).values() for path in paths) == [
        "/dev/dri/card1",
        "/dev/dri/renderD128",
        "/dev/i2c-4",
    ]


def test_a_key_with_one_driven_interface_gives_that_interface_and_usbfs(bench: Bench) -> None:
    """W6: its smart-card interface has no driver, so the key is not published whole."""
    key = bench.machine.usb("1-1", vendor="1050", product="0407")
    bench.machine.hidraw(bench.machine.interface(key, 0, driver="usbhid", usb_class="03"), "hidraw0")
    bench.machine.interface(key, 2, usb_class="0b")
    assert [device.name for device in bench.walk().devices if device.bus == "usb"] == [ADAPTER]
    claim = bench.take(ADAPTER)
    assert bench.paths(claim) == {ADAPTER: ["/dev/hidraw0", "/dev/bus/usb/001/002"]}
    bench.unprepare(claim)
    assert bench.probe.read_bytes() == b"1-1:1.2"  # the kernel may find a driver for it by now
