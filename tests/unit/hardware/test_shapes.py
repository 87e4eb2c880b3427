"""What one piece of hardware publishes: the table of shapes, in its order."""

import pytest

from common.hardware.model import Delivery, Hardware, Node, Situation
from common.hardware.policy import publish
from tests.builders import MachineBuilder
from tests.unit.hardware.ask import devices, offered, paths, texts


def graphics(machine: MachineBuilder, address: str = "0000:00:02.0") -> str:
    return machine.pci(address, driver="i915", pci_class="030000")


def test_a_render_node_is_shareable_and_the_card_is_exclusive(machine: MachineBuilder) -> None:
    machine.drm(graphics(machine), card=0, render=128, connectors=["HDMI-A-1"])
    found = devices(machine)
    summary = {
        name: (device.variant, device.shareable, paths(device), device.kinds)
        for name, device in found.items()
    }
    assert summary == {
        "pci-0000-00-02-0": ("", True, ["dri/renderD128"], ("drm",)),
        "pci-0000-00-02-0-display": ("display", False, ["dri/card0"], ("drm",)),
    }
    bare, display = (texts(found[name]) for name in sorted(found))
    assert (bare["renderNode"], bare["subsystem"], "displayNode" in bare) == (True, "drm", False)
    assert (display["displayNode"], display["subsystem"], "renderNode" in display) == (True, "drm", False)


def test_a_lone_card_carries_the_bare_name(machine: MachineBuilder) -> None:
    machine.drm(graphics(machine), card=0, connectors=["VGA-1"])
    device = devices(machine)["pci-0000-00-02-0"]
    assert (device.shareable, paths(device), texts(device)["displayNode"]) == (False, ["dri/card0"], True)


def test_a_card_without_connectors_drives_no_screen(machine: MachineBuilder) -> None:
    machine.drm(graphics(machine), card=1, render=129)
    assert "displayNode" not in devices(machine)["pci-0000-00-02-0-display"].attributes


def test_card_and_render_numbers_pair_by_their_parent(machine: MachineBuilder) -> None:
    machine.drm(graphics(machine, "0000:00:02.0"), card=1, render=128, connectors=["eDP-1"])
    machine.drm(graphics(machine, "0000:01:00.0"), card=0, render=129)
    assert offered(machine) == {
        "pci-0000-00-02-0": ["dri/renderD128"],
        "pci-0000-00-02-0-display": ["dri/card1"],
        "pci-0000-01-00-0": ["dri/renderD129"],
        "pci-0000-01-00-0-display": ["dri/card0"],
    }


def test_each_further_kind_of_a_graphics_device_is_an_exclusive_companion(machine: MachineBuilder) -> None:
    gpu = graphics(machine)
    card = machine.drm(gpu, card=0, render=128, connectors=["DP-1"])
    machine.i2c(gpu, 0)
    machine.i2c(gpu, 1)
    machine.node(f"{card}/card0-DP-1", "drm_dp_aux_dev", "drm_dp_aux0", folder="")
    machine.node(f"{card}/card0-DP-1", "cec", "cec0", folder="")
    machine.event(f"{card}/card0-DP-1", 7)
    found = devices(machine)
    companions = {
        name: (paths(device), texts(device)["subsystem"], device.shareable)
        for name, device in found.items()
        if device.variant not in {"", "display"}
    }
    assert companions == {
        "pci-0000-00-02-0-cec": (["cec0"], "cec", False),
        "pci-0000-00-02-0-drm-dp-aux-dev": (["drm_dp_aux0"], "drm_dp_aux_dev", False),
        "pci-0000-00-02-0-i2c-dev": (["i2c-0", "i2c-1"], "i2c-dev", False),
        "pci-0000-00-02-0-input": (["input/event7"], "input", False),
    }


def test_companions_carry_the_attributes_of_their_hardware(machine: MachineBuilder) -> None:
    gpu = graphics(machine)
    machine.drm(gpu, card=0, render=128)
    machine.i2c(gpu, 0)
    found = [texts(device) for device in devices(machine).values()]
    assert {(each["address"], each["resource.kubernetes.io/pciBusID"], each["class"]) for each in found} == {
        ("0000:00:02.0", "0000:00:02.0", "display")
    }


def test_legacy_control_nodes_are_delivered_by_nothing(machine: MachineBuilder) -> None:
    gpu = graphics(machine)
    machine.drm(gpu, card=0, render=128)
    machine.node(gpu, "drm", "controlD64", devname="dri/controlD64")
    delivered = {path for nodes in offered(machine).values() for path in nodes}
    assert delivered == {"dri/card0", "dri/renderD128"}


def test_a_framebuffer_is_no_companion(machine: MachineBuilder) -> None:
    gpu = graphics(machine)
    machine.drm(gpu, card=0, render=128)
    machine.node(gpu, "graphics", "fb0")
    assert sorted(offered(machine)) == ["pci-0000-00-02-0", "pci-0000-00-02-0-display"]


def test_a_sound_card_is_one_device_with_its_jacks(machine: MachineBuilder) -> None:
    machine.sound(machine.pci("0000:00:1f.3", driver="snd_hda_intel"), card=0, jacks=[5, 12])
    device = devices(machine)["pci-0000-00-1f-3"]
    assert paths(device) == ["input/event5", "input/event12", "snd/controlC0", "snd/pcmC0D0p"]
    assert (texts(device)["subsystem"], texts(device)["sound.liken.sh/supportsSound"]) == ("sound", True)
    assert device.shareable is False


def test_a_card_with_a_mixer_only_runs_no_sound_server(machine: MachineBuilder) -> None:
    machine.sound(machine.board("platform", "thinkpad_acpi", driver="thinkpad_acpi"), card=29, pcm=False)
    found = texts(devices(machine)["platform-thinkpad-acpi"])
    assert (found["subsystem"], "sound.liken.sh/supportsSound" in found) == ("sound", False)


def test_sound_beside_other_nodes_is_a_mix(machine: MachineBuilder) -> None:
    unit = machine.pci("0000:00:1f.3", driver="sof-audio-pci")
    machine.sound(unit, card=0)
    machine.node(unit, "gpio", "gpiochip6", folder="")
    device = devices(machine)["pci-0000-00-1f-3"]
    assert "subsystem" not in device.attributes
    assert "sound.liken.sh/supportsSound" not in device.attributes
    assert device.kinds == ("gpio", "sound")


def test_one_kind_is_named_as_the_subsystem(machine: MachineBuilder) -> None:
    machine.tty(machine.interface(machine.usb("1-4"), 0, driver="ch341"), "ttyUSB0")
    device = devices(machine)["usb-1-4-1-0"]
    assert (device.kinds, texts(device)["subsystem"]) == (("tty",), "tty")


def test_a_mix_has_no_subsystem(machine: MachineBuilder) -> None:
    chip = machine.interface(machine.usb("1-4"), 0, driver="ftdi_sio")
    machine.tty(chip, "ttyUSB0")
    machine.node(chip, "gpio", "gpiochip0", folder="")
    device = devices(machine)["usb-1-4-1-0"]
    assert (device.kinds, "subsystem" in device.attributes) == (("gpio", "tty"), False)


def test_a_whole_device_has_no_kinds_and_no_subsystem(machine: MachineBuilder) -> None:
    machine.interface(machine.usb("1-4"), 0)
    device = devices(machine)["usb-1-4"]
    assert (device.kinds, device.shareable, "subsystem" in device.attributes) == ((), False, False)


def test_an_unreadable_subsystem_makes_one_exclusive_device(machine: MachineBuilder) -> None:
    gpu = graphics(machine)
    machine.drm(gpu, card=0, render=128)
    odd = machine.node(gpu, "misc", "odd")
    machine.path(f"{odd}/subsystem").unlink()
    (device,) = devices(machine).values()
    assert (device.name, device.shareable, paths(device)) == (
        "pci-0000-00-02-0",
        False,
        ["dri/card0", "dri/renderD128", "odd"],
    )
    assert "subsystem" not in device.attributes


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("block", "sda"), ("nvme", "nvme0"), ("scsi_generic", "sg0"), ("bsg", "bsg/0:0:0:0")),
        *(
            ("graphics", "fb0"),
            ("vfio-dev", "vfio/devices/vfio0"),
            ("usb", "bus/usb/001/001"),
            ("tpm", "tpm0"),
        ),
    ],
)
def test_what_must_not_be_given_away_stays_so_without_its_subsystem(
    machine: MachineBuilder, kind: str, name: str
) -> None:
    function = machine.pci("0000:01:00.0", driver="odd")
    node = machine.node(function, kind, name.rpartition("/")[2], devname=name)
    machine.path(f"{node}/subsystem").unlink()
    assert offered(machine) == {}


def test_a_shareable_device_on_usb_carries_no_usbfs_node(machine: MachineBuilder) -> None:
    card = machine.interface(machine.usb("1-4"), 0, driver="gud")
    machine.drm(card, card=2, render=130)
    assert offered(machine) == {"usb-1-4-1-0": ["dri/renderD130"], "usb-1-4-1-0-display": ["dri/card2"]}


def test_a_display_on_usb_carries_the_usbfs_node_with_its_card(machine: MachineBuilder) -> None:
    card = machine.interface(machine.usb("1-4", devnum=2), 0, driver="udl")
    machine.drm(card, card=2, connectors=["DVI-I-1"])
    machine.i2c(card, 9)
    assert offered(machine) == {
        "usb-1-4-1-0": ["dri/card2", "bus/usb/001/002"],
        "usb-1-4-1-0-i2c-dev": ["i2c-9"],
    }


def test_only_render_nodes_are_shareable(machine: MachineBuilder) -> None:
    machine.drm(graphics(machine), card=0, render=128)
    machine.node(machine.pci("0000:00:0b.0", driver="intel_vpu"), "accel", "accel0", devname="accel/accel0")
    machine.sound(machine.pci("0000:00:1f.3", driver="snd_hda_intel"), card=0)
    assert [name for name, device in devices(machine).items() if device.shareable] == ["pci-0000-00-02-0"]


def test_kinds_that_would_take_one_suffix_share_a_companion() -> None:
    gpu = Hardware("pci", "0000:00:02.0", "sys/devices/pci0000:00/0000:00:02.0", "odd", "function")
    nodes = tuple(
        Node(f"/dev/{name}", kind, f"{gpu.directory}/{name}")
        for name, kind in (
            ("dri/renderD128", "drm"),
            ("a", "a_b"),
            ("b", "a-b"),
            ("c", "display"),
            ("d", "__"),
        )
    )
    verdict = publish(gpu, Delivery(nodes=nodes), Situation())
    assert [(offer.variant, offer.subsystem, len(offer.nodes)) for offer in verdict.offers] == [
        ("", "drm", 1),
        ("a-b", "", 2),
        ("other", "", 2),
    ]
