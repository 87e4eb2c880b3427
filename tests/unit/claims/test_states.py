"""The state of a claimed device, for every hardware there could be."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.cdi import Specs
from common.claims import Result, Store
from common.hardware.slot import Slot
from common.hardware.tree import TreeError
from common.inventory import Device, DeviceNode, Withheld
from common.projection import state_of
from common.slots import Standing
from tests.builders import BOOT_ID

UID = "0a1b2c3d-0000-4000-8000-000000000001"
kinds = st.lists(st.sampled_from(["tty", "block", "hidraw", "input", "drm"]), unique=True, max_size=3).map(
    tuple
)
variants = st.sampled_from(["", "display", "i2c-dev"])
places = st.sampled_from([("usb", "1-2"), ("usb", "1-2:1.0"), ("pci", "0000:00:02.0")])
ports = st.sampled_from(["", "0000:00:14.0/usb2/2", "0000:00:14.0/usb2/2:1.0"])
drivers = st.dictionaries(
    st.sampled_from(["1-2:1.0", "1-2:1.1"]), st.sampled_from(["", "usbfs", "ch341"]), max_size=2
)


@st.composite
def results(draw: st.DrawFn) -> Result:
    bus, address = draw(places)
    return Result("r", "p", "d", bus, address, draw(ports), draw(variants), draw(kinds))


@st.composite
def slots(draw: st.DrawFn) -> Slot:
    held = [Withheld("usb", "1-2", "/dev/x", draw(st.sampled_from(["storage", "console", "serio"])), "why")]
    devices = tuple(
        Device("n", "usb", "1-2", variant, draw(kinds), False, (DeviceNode("/dev/now", "k"),), {})
        for variant in draw(st.lists(variants, unique=True, max_size=3))
    )
    return Slot(
        draw(st.booleans()), devices, tuple(held[: draw(st.integers(0, 1))]), draw(ports), draw(st.booleans())
    )


@settings(deadline=None)
@given(results(), st.builds(Standing, slots(), drivers) | st.just(TreeError("cannot read /sys")))
def test_only_a_device_that_is_there_unchanged_gives_its_nodes(
    result: Result, standing: Standing | TreeError
) -> None:
    found = state_of(result, standing)
    assert (found.pool, found.device) == ("p", "d")
    assert bool(found.nodes) == (found.state == "present")
    assert bool(found.reason) == (found.state != "present")
    if isinstance(standing, TreeError):
        assert found.state == "unknown"
    elif not standing.slot.exists:
        assert found.state == "absent"
    elif standing.slot.physical_path != result.physicalPath:
        assert found.state == "changed"
    elif found.state == "present":
        given_now = {device.variant: device for device in standing.slot.devices}[result.variant]
        assert "block" not in given_now.kinds or "block" in result.kinds
        assert not result.kinds or not given_now.kinds or set(result.kinds) & set(given_now.kinds)


@settings(deadline=None, max_examples=200)
@given(
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["schema", "namespace", "name", "uid", "results", "device", "bus"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode())
)
def test_whatever_lies_in_a_records_or_a_specs_place_is_no_crash(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    folder: Path = tmp_path_factory.mktemp("any")
    store, specs = Store(folder, BOOT_ID), Specs(folder / "cdi", "liken.sh")
    store.make_folders()
    specs.make_folder()
    (folder / "claims" / BOOT_ID / f"{UID}.json").write_bytes(content)
    specs.path(UID).write_bytes(content)
    (entry,) = store.entries()
    assert entry.form in ("broken", "newer")
    assert specs.nodes(UID) == {}
