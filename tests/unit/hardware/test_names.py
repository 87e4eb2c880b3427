"""Names: DNS labels made of bus and address."""

import hashlib
import re

from hypothesis import given
from hypothesis import strategies as st

from common.hardware.names import MAX_NAME, assign_names, device_name, variant_label
from tests.builders import MachineBuilder
from tests.unit.hardware.ask import devices

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
WORDS = st.text(st.characters(exclude_characters="/\x00"), min_size=1, max_size=90)


def digits(bus: str, address: str) -> str:
    return hashlib.sha256(f"{bus}/{address}".encode()).hexdigest()[:8]


def test_a_name_is_bus_and_address_with_dashes() -> None:
    assert [
        device_name("pci", "0000:00:02.0"),
        device_name("usb", "2-1:1.0"),
        device_name("platform", "MSFT0101:00"),
        device_name("platform", "ibm,opal:flash@0", "cec"),
    ] == ["pci-0000-00-02-0", "usb-2-1-1-0", "platform-msft0101-00", "platform-ibm-opal-flash-0-cec"]


def test_runs_are_kept_and_ends_are_trimmed() -> None:
    assert device_name("acpi", "_SB.._") == "acpi--sb"


def test_a_name_of_63_characters_stays() -> None:
    assert device_name("platform", "a" * 54) == "platform-" + "a" * 54


def test_a_longer_name_is_cut_and_ends_in_a_hash() -> None:
    address = "a" * 55
    assert device_name("platform", address) == "platform-" + "a" * 45 + "-" + digits("platform", address)


def test_the_suffix_comes_after_the_hash() -> None:
    address = "3e00000000000.memory-buffer:i2cm@a0000:i2c-bus@0"
    bare, companion = device_name("platform", address), device_name("platform", address, "i2c-dev")
    assert bare == "platform-3e00000000000-memory-buffer-i2cm-a0000-i2c-bus-0"
    assert (
        companion == f"platform-3e00000000000-memory-buffer-i2cm-a000-{digits('platform', address)}-i2c-dev"
    )
    assert len(companion) == MAX_NAME


def test_a_kind_becomes_a_suffix_with_dashes() -> None:
    assert variant_label("drm_dp_aux_dev") == "drm-dp-aux-dev"


def test_the_second_of_two_equal_names_takes_the_hash_form(machine: MachineBuilder) -> None:
    for name in ("A:0", "a.0"):
        machine.i2c(machine.board("platform", name, driver="i2c"), 1 if name == "A:0" else 2)
    found = {name: device.address for name, device in devices(machine).items()}
    assert found == {"platform-a-0": "A:0", f"platform-a-0-{digits('platform', 'a.0')}": "a.0"}


def test_a_bare_name_can_meet_a_companion() -> None:
    slots = [("pci", "x", ("", "display")), ("pci", "x-display", ("",))]
    assert assign_names(slots) == {("pci", "x"): False, ("pci", "x-display"): True}


@given(slots=st.sets(st.tuples(WORDS, WORDS), max_size=12), variants=st.sets(WORDS.map(variant_label)))
def test_names_of_any_hardware_are_unique_labels(slots: set[tuple[str, str]], variants: set[str]) -> None:
    all_variants = ("", *sorted(variants - {""}))
    hashed = assign_names((bus, address, all_variants) for bus, address in slots)
    names = [
        device_name(bus, address, variant, hashed[bus, address])
        for bus, address in slots
        for variant in all_variants
    ]
    assert len(set(names)) == len(names)
    assert all(LABEL.fullmatch(name) and len(name) <= MAX_NAME for name in names)


@given(slots=st.lists(st.tuples(WORDS, WORDS), max_size=8, unique=True))
def test_names_do_not_depend_on_the_order_of_discovery(slots: list[tuple[str, str]]) -> None:
    forward = assign_names((bus, address, ("",)) for bus, address in slots)
    assert assign_names((bus, address, ("",)) for bus, address in reversed(slots)) == forward
