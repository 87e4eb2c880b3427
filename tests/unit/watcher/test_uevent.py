"""The text of uevents, and which of them wake a walk."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.console.uevents import encode
from services.watcher.sources import sees_kernel_events
from services.watcher.uevent import Uevent, counts, parse

USB = "/devices/pci0000:00/0000:00:14.0/usb1/1-4"
DATAGRAM = f"remove@{USB}\0ACTION=remove\0DEVPATH={USB}\0SUBSYSTEM=usb\0SEQNUM=4711\0".encode()


def test_an_event_is_read_from_the_kernels_datagram() -> None:
    assert parse(DATAGRAM) == Uevent("remove", USB)


def test_a_remove_event_needs_nothing_but_its_path() -> None:
    assert counts(parse(f"remove@{USB}\0".encode()))


@pytest.mark.parametrize(
    "datagram", [b"", b"\0", b"libudev\0\xfe\xed\xca\xfe", b"add@devices\0", b"add@/devices/x", b"@/x\0"]
)
def test_what_is_no_uevent_is_refused(datagram: bytes) -> None:
    with pytest.raises(ValueError, match="no uevent"):
        parse(datagram)


@given(st.binary(max_size=300))
def test_any_bytes_are_an_event_or_refused(datagram: bytes) -> None:
    try:
        event = parse(datagram)
    except ValueError as error:
        assert "no uevent" in str(error)  # noqa: PT017 - both outcomes are right
    else:
        assert event.devpath.startswith("/")


def test_played_events_read_back() -> None:
    assert parse(encode("bind", USB, {"SUBSYSTEM": "usb"})) == Uevent("bind", USB)


@pytest.mark.parametrize("action", ["add", "remove", "bind", "unbind"])
def test_arrivals_departures_and_drivers_count(action: str) -> None:
    assert counts(Uevent(action, USB))


@pytest.mark.parametrize("action", ["change", "move", "online", "offline"])
def test_other_actions_do_not_count(action: str) -> None:
    assert not counts(Uevent(action, USB))


@pytest.mark.parametrize(
    "path",
    [
        "/card0",  # a graphics driver's announcement before the device is in its place
        "/module/ch341",
        "/bus/usb/drivers/ch341",
        "/class/drm",
        "/kernel/slab/x",
        "/devices/virtual/net/veth12ab",
        "/devices/virtual/block/loop0",
        "/devices/virtual/block/ram0",
        "/devices/virtual/tty/tty7",
        "/devices/virtual/bdi/8:0",
        "/devices/virtual/workqueue/x",
        "/devices/virtual/miscellaneous",
    ],
)
def test_events_of_what_no_device_depends_on_do_not_count(path: str) -> None:
    assert not any(counts(Uevent(action, path)) for action in ("add", "remove", "change", "bind"))


@pytest.mark.parametrize(
    "path",
    [
        "/devices/virtual/misc/uinput",
        "/devices/virtual/misc/uhid",
        "/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1",
        "/devices/virtual/block/dm-3",
        "/devices/virtual/block/md127",
        "/devices/virtual/block/bcache0",
    ],
)
def test_virtual_devices_that_deliveries_depend_on_count_with_their_changes(path: str) -> None:
    assert all(counts(Uevent(action, path)) for action in ("add", "remove", "change"))
    assert not counts(Uevent("online", path))


def test_a_user_namespace_without_the_hosts_root_sees_no_kernel_events() -> None:
    assert sees_kernel_events("         0          0 4294967295\n")
    assert not sees_kernel_events("         0     100000      65536\n")
