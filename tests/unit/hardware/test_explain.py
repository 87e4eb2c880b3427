"""`explain` on built machines: the rules that no recording shows."""

import pytest

from common.hardware.explain import Answer, Facts
from common.hardware.explain_lookup import Lookup
from common.hardware.machine import Machine, SerialLine
from common.hardware.survey import survey
from common.hardware.walk import walk
from tests.builders import MachineBuilder

CH340 = "usb:v1A86p7523d0264dcFFdsc00dp00icFFisc01ip02in00"


def lookup(machine: MachineBuilder, declared: Machine | None = None) -> Lookup:
    tree, given = machine.tree(), declared or Machine()
    inventory = walk(tree, given, "n1", "2026-01-01T00:00:00Z")
    return Lookup(Facts(tree, survey(tree, given), inventory))


def ask(machine: MachineBuilder, what: str, declared: Machine | None = None) -> Answer:
    return lookup(machine, declared).find(what)[0]


def with_modules(machine: MachineBuilder, aliases: str, dep: str) -> None:
    machine.write("lib/modules/6.12.0/modules.alias", aliases)
    machine.write("lib/modules/6.12.0/modules.dep", dep)


def serial_stick(machine: MachineBuilder) -> None:
    stick = machine.usb("1-4", vendor="1a86", product="7523")
    interface = machine.interface(stick, 0)
    machine.write(f"{interface}/modalias", CH340)


def test_hardware_without_driver_names_the_module_to_load(machine: MachineBuilder) -> None:
    serial_stick(machine)
    with_modules(machine, "alias usb:v1A86p7523* ch341\n", "kernel/drivers/usb/serial/ch341.ko:\n")
    assert ask(machine, "1-4:1.0").advice[0] == "the module ch341 would drive it: modprobe ch341"


def test_a_device_that_publishes_whole_names_the_module_too(machine: MachineBuilder) -> None:
    serial_stick(machine)
    with_modules(machine, "alias usb:v1A86p7523* ch341\n", "kernel/drivers/usb/serial/ch341.ko:\n")
    answers = lookup(machine).find("1-4")
    assert answers[0].why.startswith("1-4 has no driver; it publishes whole as usb-1-4")
    assert "modprobe ch341" in answers[1].advice[0]


def test_a_module_that_is_not_here_is_to_be_installed(machine: MachineBuilder) -> None:
    serial_stick(machine)
    with_modules(machine, "alias usb:v1A86p7523* ch341\n", "")
    assert "is not on this machine" in ask(machine, "1-4:1.0").advice[0]


def test_hardware_that_no_module_drives_says_so(machine: MachineBuilder) -> None:
    machine.pci("0000:00:05.0")
    with_modules(machine, "alias usb:v1A86p7523* ch341\n", "")
    assert ask(machine, "0000:00:05.0").why.endswith("no module of this kernel would drive it")


def test_a_node_of_a_bluetooth_peripheral_belongs_to_the_peripheral(machine: MachineBuilder) -> None:
    radio = machine.interface(machine.usb("1-7"), 0, driver="btusb", usb_class="e0")
    hci = machine.device(f"{radio}/bluetooth", "hci0", "bluetooth")
    gamepad = machine.device(f"{hci}/hci0:12", "0005:054C:09CC.0001", "hid", "sony")
    machine.hidraw(gamepad, "hidraw3")
    assert (ask(machine, "/dev/hidraw3").state, ask(machine, "/dev/hidraw3").rule) == ("ignored", "bluetooth")


def test_an_interface_that_a_program_holds_returns_later(machine: MachineBuilder) -> None:
    machine.interface(machine.usb("1-4"), 0, driver="usbfs")
    assert [answer.rule for answer in lookup(machine).find("1-4")] == ["usbfs", "usbfs"]
    assert "returns" in ask(machine, "1-4:1.0").why


def test_a_declared_serial_line_points_at_its_devices(machine: MachineBuilder) -> None:
    line = machine.interface(machine.usb("1-3", vendor="2548", product="1002"), 0, driver="cdc_acm")
    machine.tty(line, "ttyACM0")
    declared = Machine(serio=(SerialLine("pulse8-cec", "2548", "1002"),))
    answer = ask(machine, "/dev/ttyACM0", declared)
    assert (answer.state, answer.rule) == ("withheld", "serio")
    assert "-cec" in answer.advice[0]


def test_a_held_node_shows_how_to_release_it(machine: MachineBuilder) -> None:
    machine.node(machine.board("platform", "iTCO_wdt", driver="iTCO_wdt"), "watchdog", "watchdog0")
    assert ask(machine, "/dev/watchdog0").advice[-2:] == ("spec:", "  release: [watchdog]")


def test_a_tpm_cannot_be_released(machine: MachineBuilder) -> None:
    machine.node(machine.board("acpi", "MSFT0101:00", driver="tpm_crb"), "tpm", "tpm0")
    assert ask(machine, "/dev/tpm0").advice == ()


def test_a_spare_disk_beside_one_in_use_is_not_called_used(machine: MachineBuilder) -> None:
    controller = machine.pci("0000:00:17.0", driver="ahci", pci_class="010601")
    machine.mount(machine.scsi_disk(controller, "sda", host=0), at="/data")
    machine.scsi_disk(controller, "sdb", host=1)
    assert ask(machine, "0000:00:17.0").why == (
        "0000:00:17.0 carries sda, which this machine uses: sda is mounted at /data"
    )


def test_an_sg_node_of_a_disk_without_driver_says_that_nothing_can_be_told(machine: MachineBuilder) -> None:
    machine.remove(machine.scsi_disk(machine.pci("0000:00:17.0", driver="ahci"), "sda"))
    declared = Machine(roles=frozenset())
    assert "has no block device now" in ask(machine, "/dev/sg0", declared).why


def test_a_namespace_with_two_paths_is_given_as_the_reason(machine: MachineBuilder) -> None:
    subsystem = "sys/devices/virtual/nvme-subsystem/nvme-subsys3"
    for number, address in ((5, "0000:01:00.0"), (6, "0000:02:00.0")):
        controller = machine.nvme(machine.pci(address, driver="nvme"), number, namespace=False)
        machine.link(f"{subsystem}/nvme{number}", controller)
    machine.disk(subsystem, "nvme3n1", folder="")
    answer = ask(machine, "0000:01:00.0", Machine(roles=frozenset()))
    assert answer.why == "0000:01:00.0 is withheld with its disk: nvme3n1 has paths on two PCI functions"


def test_a_placeholder_says_what_it_stands_for(machine: MachineBuilder) -> None:
    machine.interface(machine.usb("1-4"), 0)
    answer = ask(machine, "/dev/liken.sh/absent/usb-1-4")
    assert "while its hardware is away" in answer.why
    assert "now usb-1-4 is published" in answer.why


def test_a_machine_with_hostile_names_is_explained_in_plain_text(machine: MachineBuilder) -> None:
    stick = machine.usb("1-4", name=b"[/red]\x1b[2J\xff", manufacturer=b"[bold]")
    machine.hidraw(machine.interface(stick, 0, driver="usbhid", usb_class="03"), "hidraw0")
    answers = lookup(machine).everything()
    assert all(text.isprintable() for answer in answers for text in (answer.why, answer.name, answer.subject))


def test_everything_answers_for_each_subject_once(machine: MachineBuilder) -> None:
    machine.tty(machine.interface(machine.usb("1-4"), 0, driver="ch341"), "ttyUSB0")
    machine.virtual("misc", "kvm")
    subjects = [answer.subject for answer in lookup(machine).everything()]
    assert len(subjects) == len(set(subjects))
    assert {"1-4", "1-4:1.0", "/dev/ttyUSB0", "/dev/kvm", "0000:00:14.0"} <= set(subjects)


@pytest.mark.parametrize("what", ["1-5", "usb 1-5", "usb-1-5"])
def test_a_usb_device_without_interfaces_says_so_by_address_and_by_name(
    machine: MachineBuilder, what: str
) -> None:
    machine.usb("1-5")
    found = lookup(machine)
    (answer,) = found.unpublished(what) if what == "usb-1-5" else found.find(what)
    assert (answer.rule, answer.hardware) == ("unconfigured", "usb 1-5")
    assert "1-5 has no interfaces at the moment" in answer.why


@pytest.mark.parametrize("what", ["pci-0000-00-17-0", "0000:00:17.0", "/dev/sda"])
def test_a_disk_that_is_offered_says_which_role_no_disk_goes_by(machine: MachineBuilder, what: str) -> None:
    machine.scsi_disk(machine.pci("0000:00:17.0", driver="ahci", pci_class="010601"), "sda")
    slip, right = Machine(roles=frozenset({"sdq"})), Machine(roles=frozenset())
    assert "spec.storage.roles names sdq" in ask(machine, what, slip).advice[0]
    assert ask(machine, what, right).advice == ()


def test_everything_begins_with_the_roles_that_no_disk_goes_by(machine: MachineBuilder) -> None:
    machine.drm(machine.pci("0000:00:02.0", driver="i915"), card=0, render=128)
    given = lookup(machine, Machine(roles=frozenset({"sdq"})))
    (said,) = given.roles("sdq")
    assert (given.everything()[0].why, said.subject, given.roles("sdb")) == (said.why, "sdq", [])
    assert [answer for answer in given.everything()[1:] if "sdq" in " ".join(answer.advice)] == []
