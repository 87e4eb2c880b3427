"""The rules a container runtime applies to a CDI file, written from its specification.

Shares nothing with the writer in common/cdi.py.

Source: SPEC.md and the checks in pkg/cdi and internal/validation of cncf-tags/container-device-interface.
"""

import json
import re
from pathlib import Path
from typing import Any

_VENDOR = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_DEVICE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_TOP = {"cdiVersion", "kind", "annotations", "devices", "containerEdits"}
_EDITS = {"env", "deviceNodes", "mounts", "hooks", "additionalGids"}
_NODE = {"path", "hostPath", "type", "major", "minor", "fileMode", "permissions", "uid", "gid"}
_KNOWN_TO_0_6 = {"cdiVersion", "kind", "annotations", "devices", "containerEdits"}


def check_file(path: Path, vendor: str = "liken.sh") -> dict[str, list[dict[str, Any]]]:
    """The device nodes of each device of the file, by CDI device name. AssertionError for a broken rule."""
    assert path.suffix == ".json", path
    identifier = path.stem.removeprefix(f"{vendor}-device_")
    assert path.name == f"{vendor}-device_{identifier}.json", "transient specs are called vendor-class_id"
    assert path.stat().st_mode & 0o777 == 0o644, "every runtime can read it"
    document = json.loads(path.read_bytes())
    assert set(document) <= _TOP & _KNOWN_TO_0_6, document
    assert document["cdiVersion"] == "0.6.0"
    _check_kind(document["kind"], vendor)
    assert document["devices"], "a spec has at least one device"
    names = [device["name"] for device in document["devices"]]
    assert len(names) == len(set(names)), f"a device is named twice: {names}"
    assert names == sorted(names)
    return {device["name"]: _check_device(device, identifier) for device in document["devices"]}


def _check_kind(kind: str, vendor: str) -> None:
    first, _, second = kind.partition("/")
    assert _VENDOR.fullmatch(first), kind
    assert _VENDOR.fullmatch(second), kind
    assert (first, second) == (vendor, "device")


def _check_device(device: dict[str, Any], identifier: str) -> list[dict[str, Any]]:
    assert set(device) == {"name", "containerEdits"}
    assert _DEVICE.fullmatch(device["name"]), device["name"]
    assert device["name"].startswith(f"{identifier}-")
    edits = device["containerEdits"]
    assert set(edits) <= _EDITS
    assert set(edits) == {"deviceNodes"}, "a claim gives device nodes and nothing else"
    nodes: list[dict[str, Any]] = edits["deviceNodes"]
    assert nodes, "a device without any edit makes a runtime refuse the file"
    assert len({node["path"] for node in nodes}) == len(nodes), f"a path twice: {nodes}"
    for node in nodes:
        _check_node(node)
    return nodes


def _check_node(node: dict[str, Any]) -> None:
    assert set(node) <= _NODE
    path = node["path"]
    assert path.startswith("/dev/"), path
    assert not {"", ".", ".."} & set(path.split("/")[1:]), path
    if set(node) == {"path"}:
        return
    # stated by numbers: only the 32 input event nodes, and then whole
    assert set(node) == {"path", "type", "major", "minor", "fileMode"}, node
    number = re.fullmatch(r"/dev/input/event(\d+)", path)
    assert number is not None, f"{path} may not be stated by numbers"
    assert (node["type"], node["major"], node["minor"]) == ("c", 13, 64 + int(number[1])), node
    assert node["fileMode"] == 0o600
    assert int(number[1]) < 32
