"""CDI specs as files, checked by rules that share nothing with the writer."""

import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from common.cdi import Specs
from common.errors import MachineError
from common.inventory import DeviceNode
from tests.cdi_rules import check_file

UID = "0a1b2c3d-0000-4000-8000-000000000001"
TTY = (DeviceNode("/dev/ttyUSB0", "tty"), DeviceNode("/dev/bus/usb/001/004", "usb"))
EVENTS = tuple(
    DeviceNode(f"/dev/input/event{number}", "input", "c", 13, 64 + number, 0o600) for number in range(32)
)


FullDisk = Callable[[], AbstractContextManager[None]]


@pytest.fixture
def full_disk() -> FullDisk:
    """While it lasts this process can make and remove files, and write nothing into them."""

    @contextmanager
    def full() -> Iterator[None]:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    return full


@pytest.fixture
def specs(tmp_path: Path) -> Specs:
    return Specs(tmp_path / "cdi", "liken.sh")


def test_a_spec_follows_the_rules_of_a_runtime(specs: Specs) -> None:
    """R6, P1: nodes by path alone, without numbers, owner or mode."""
    specs.write(
        UID, specs.render(UID, {"usb-1-1-1-0": TTY, "gpu": (DeviceNode("/dev/dri/renderD128", "drm"),)})
    )
    found = check_file(specs.path(UID))
    assert found == {
        f"{UID}-gpu": [{"path": "/dev/dri/renderD128"}],
        f"{UID}-usb-1-1-1-0": [{"path": "/dev/ttyUSB0"}, {"path": "/dev/bus/usb/001/004"}],
    }


def test_the_32_input_nodes_are_stated_one_by_one_with_their_numbers(specs: Specs) -> None:
    """D5: a rule for a whole major would be dropped while the major has no device."""
    specs.write(UID, specs.render(UID, {"bt": EVENTS}))
    nodes = check_file(specs.path(UID))[f"{UID}-bt"]
    assert [node["minor"] for node in nodes] == list(range(64, 96))
    assert {node["major"] for node in nodes} == {13}


def test_placeholders_lie_where_nobody_creates_a_node(specs: Specs) -> None:
    """D9, D10: a device in trouble still has a node, and one that never exists."""
    nodes = {"a": specs.absent("a"), "w": specs.withheld("w")}
    specs.write(UID, specs.render(UID, nodes))
    assert check_file(specs.path(UID)) == {
        f"{UID}-a": [{"path": "/dev/liken.sh/absent/a"}],
        f"{UID}-w": [{"path": "/dev/liken.sh/withheld/w"}],
    }


@pytest.mark.parametrize("nodes", [{}, {"a": ()}])
def test_a_spec_without_a_node_is_never_written(
    specs: Specs, nodes: dict[str, tuple[DeviceNode, ...]]
) -> None:
    """D10: a runtime would refuse the whole file."""
    with pytest.raises(ValueError, match="without a node"):
        specs.render(UID, nodes)


def test_the_same_nodes_give_the_same_bytes(specs: Specs) -> None:
    one = specs.render(UID, {"a": TTY, "b": EVENTS})
    other = specs.render(UID, {"b": EVENTS, "a": TTY})
    assert one == other


def test_what_a_spec_says_can_be_read_back(specs: Specs) -> None:
    specs.write(UID, specs.render(UID, {"bt": (*TTY, *EVENTS)}))
    read = specs.nodes(UID)["bt"]
    assert [(node.path, node.minor) for node in read] == [(node.path, node.minor) for node in (*TTY, *EVENTS)]
    assert specs.nodes("0a1b2c3d-0000-4000-8000-000000000009") == {}


def test_files_of_other_writers_are_not_ours(specs: Specs, tmp_path: Path) -> None:
    specs.make_folder()
    others = ["display.liken.sh-device_x.json", "nvidia.com-gpu.yaml", "liken.sh-other_x.json", ".tmp"]
    for name in others:
        (tmp_path / "cdi" / name).write_text("{}")
    specs.write(UID, specs.render(UID, {"a": TTY}))
    assert specs.identifiers() == [UID]
    specs.sweep()
    assert sorted(path.name for path in (tmp_path / "cdi").iterdir()) == sorted(
        [*others, f"liken.sh-device_{UID}.json"]
    )


def test_only_our_own_temporary_files_are_swept(specs: Specs, tmp_path: Path) -> None:
    specs.make_folder()
    for name in (f".liken-liken.sh-device_{UID}.json-abc", ".liken-other.sh-device_x.json-abc", ".hidden"):
        (tmp_path / "cdi" / name).write_text("")
    assert specs.leftovers()
    assert specs.sweep() == 1
    assert not specs.leftovers()
    assert len(list((tmp_path / "cdi").iterdir())) == 2


def test_a_folder_that_somebody_removed_is_made_again(specs: Specs, tmp_path: Path) -> None:
    specs.write(UID, specs.render(UID, {"a": TTY}))
    specs.remove(UID)
    (tmp_path / "cdi").rmdir()
    specs.write(UID, specs.render(UID, {"a": TTY}))
    assert specs.path(UID).is_file()


def test_a_folder_that_cannot_be_made_is_told_with_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    specs = Specs(tmp_path / "file" / "cdi", "liken.sh")
    with pytest.raises(MachineError, match="LIKEN_CDI"):
        specs.write(UID, specs.render(UID, {"a": TTY}))


def test_a_spec_that_cannot_be_renewed_is_taken_away(specs: Specs, full_disk: FullDisk) -> None:
    """A full disk must not leave the nodes of yesterday where a runtime reads them."""
    specs.write(UID, specs.render(UID, {"usb-1-1-1-0": TTY}))
    with full_disk(), pytest.raises(MachineError, match="cannot write"):
        specs.write(UID, specs.render(UID, {"usb-1-1-1-0": specs.absent("usb-1-1-1-0")}))
    assert specs.read(UID) is None
    specs.write(UID, specs.render(UID, {"usb-1-1-1-0": TTY}))
    assert [node.path for node in specs.nodes(UID)["usb-1-1-1-0"]] == [node.path for node in TTY]
