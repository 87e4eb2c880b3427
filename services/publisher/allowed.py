"""What the Kubernetes API accepts of a device: one it would refuse costs that device, never the slice.

Limits: k8s.io/api resource/v1 types.go and the API server's validation of ResourceSlices.
"""

import functools
import re
from typing import NamedTuple

from common.cluster import Raw
from common.inventory import AttributeValue, Device

MAX_DEVICE_NAME = 63  # DNS label
MAX_ATTRIBUTES = 32  # of one device, capacities included
MAX_STRING_BYTES = 64
MAX_IDENTIFIER = 32  # attribute name without its domain
MAX_DOMAIN = 63
INT64 = range(-(2**63), 2**63)

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER = r"(0|[1-9][0-9]*)"
_PRERELEASE = rf"({_NUMBER}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRERELEASE}(\.{_PRERELEASE})*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
)


class LeftOut(NamedTuple):
    """Something that is not published. `attribute` is "" when it is the whole device."""

    device: str
    attribute: str
    reason: str

    def __str__(self) -> str:
        what = f"attribute {self.attribute!r} of {self.device}" if self.attribute else f"device {self.device}"
        return f"{what} is not published: {self.reason}"


def allowed(device: Device, driver: str) -> tuple[Raw | None, list[LeftOut]]:
    """The device as a ResourceSlice holds it (None: not at all), and what had to be left out of it."""
    if len(device.name) > MAX_DEVICE_NAME or not _LABEL.fullmatch(device.name):
        reason = f"its name is no DNS label of at most {MAX_DEVICE_NAME} characters"
        return None, [LeftOut(device.name, "", reason)]
    attributes: dict[str, AttributeValue] = {}
    left_out = []
    for name in sorted(device.attributes):
        problem = _problem(name, device.attributes, driver)
        if not problem and len(attributes) == MAX_ATTRIBUTES:
            problem = f"a device has at most {MAX_ATTRIBUTES} attributes"
        if problem:
            left_out.append(LeftOut(device.name, name, problem))
        else:
            attributes[name] = device.attributes[name]
    raw: Raw = {"name": device.name, "attributes": attributes}
    if device.shareable:
        raw["allowMultipleAllocations"] = True
    return raw, left_out


def _problem(name: str, attributes: dict[str, AttributeValue], driver: str) -> str:
    own = name.removeprefix(f"{driver}/")
    if own != name and own in attributes:
        return "it is there twice, with and without the driver's own domain"
    return _name_problem(name) or _value_problem(attributes[name])


@functools.lru_cache(maxsize=256)  # a handful of names, on every device
def _name_problem(name: str) -> str:
    domain, slash, identifier = name.rpartition("/")
    if len(identifier) > MAX_IDENTIFIER or not _IDENTIFIER.fullmatch(identifier):
        return f"its name is no C identifier of at most {MAX_IDENTIFIER} characters"
    if slash and (len(domain) > MAX_DOMAIN or not _SUBDOMAIN.fullmatch(domain)):
        return f"its domain is no DNS subdomain of at most {MAX_DOMAIN} characters"
    return ""


def _value_problem(value: AttributeValue) -> str:
    if len(value) != 1:
        return "it needs exactly one of bool, int, string, version"
    ((kind, content),) = value.items()
    if kind in ("string", "version") and isinstance(content, str):
        return _text_problem(content, version=kind == "version")
    if kind == "bool" and isinstance(content, bool):
        return ""
    if kind == "int" and isinstance(content, int) and not isinstance(content, bool):
        return "" if content in INT64 else "the number does not fit 64 bits"
    return f"a {type(content).__name__} is no value of kind {kind!r}"


def _text_problem(content: str, *, version: bool) -> str:
    try:
        size = len(content.encode())
    except UnicodeEncodeError:
        return "its text is no valid UTF-8"
    if size > MAX_STRING_BYTES:
        return f"its text has {size} bytes, allowed are {MAX_STRING_BYTES}"
    if version and not _SEMVER.fullmatch(content):
        return "it is no semantic version of three numbers"
    return ""
