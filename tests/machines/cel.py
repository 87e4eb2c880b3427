"""DeviceClass selectors evaluated as the scheduler does, on cel-python.

What differs from Kubernetes' own CEL: cel-python has no optional syntax (`.?name.orValue(...)`) and none of
Kubernetes' extension functions (semver, quantity, regex.find); an expression that uses them does not compile
here, and the test that compiles it says so. has(), &&, ||, `in`, string functions and the error for a missing
name are as in the scheduler; an unknown attribute domain reads as an empty map, as there.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import celpy
import yaml
from celpy import celtypes
from celpy.adapter import json_to_cel

from common.inventory import Device

REPOSITORY = Path(__file__).resolve().parents[2]

# The classes that the specification's guide starts from; they hold even if no example shipped.
SEED_CLASSES = {
    "seed: render node": 'device.driver == "liken.sh" && has(device.attributes["liken.sh"].renderNode)',
    "seed: card node": 'device.driver == "liken.sh" && has(device.attributes["liken.sh"].displayNode)',
    "seed: monitor wires": (
        'device.driver == "liken.sh" && has(device.attributes["liken.sh"].subsystem)'
        ' && device.attributes["liken.sh"].subsystem == "i2c-dev"'
        ' && device.attributes["liken.sh"].class == "display"'
    ),
    "seed: smart card reader": (
        'device.driver == "liken.sh" && has(device.attributes["liken.sh"].classCode)'
        ' && device.attributes["liken.sh"].classCode == "0b"'
    ),
}


class _Domains(celtypes.MapType):
    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key) if key in self else celtypes.MapType({})


def expressions(folder: Path) -> dict[str, str]:
    """Every CEL selector below a folder of manifests, by file, object and position."""
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text("utf-8")):
            where = f"{path.relative_to(REPOSITORY)}: {(document or {}).get('metadata', {}).get('name', '?')}"
            for number, expression in enumerate(_selectors(document)):
                found[f"{where} [{number}]"] = expression
    return found


def _selectors(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        cel = value.get("cel")
        if isinstance(cel, dict) and "expression" in cel:
            yield cel["expression"]
        for inner in value.values():
            yield from _selectors(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _selectors(inner)


@cache
def program(expression: str) -> celpy.Runner:
    """A compiled selector. Raises celpy.CELParseError."""
    environment = celpy.Environment()
    return environment.program(environment.compile(expression))


def as_seen_by_selectors(device: Device, driver: str = "liken.sh") -> celtypes.MapType:
    """The variable `device`: bare attribute names appear under the driver's domain."""
    domains: dict[str, dict[str, Any]] = {driver: {}}
    for key, value in device.attributes.items():
        domain, _, name = key.rpartition("/")
        (plain,) = value.values()
        domains.setdefault(domain or driver, {})[name] = plain
    return _device(driver, domains, device.shareable)


def foreign_device() -> celtypes.MapType:
    """A device of another driver, which every selector meets too."""
    return _device("gpu.example.com", {"gpu.example.com": {"index": 0}}, False)


def _device(driver: str, domains: dict[str, dict[str, Any]], shareable: bool) -> celtypes.MapType:
    attributes = {domain: json_to_cel(names) for domain, names in domains.items()}
    return celtypes.MapType(
        {
            celtypes.StringType("driver"): celtypes.StringType(driver),
            celtypes.StringType("attributes"): _Domains(
                {celtypes.StringType(domain): names for domain, names in attributes.items()}
            ),
            celtypes.StringType("capacity"): _Domains({}),
            celtypes.StringType("allowMultipleAllocations"): celtypes.BoolType(shareable),
        }
    )


def selects(expression: str, device: celtypes.MapType) -> bool:
    """Whether a selector takes a device. Raises what the scheduler would stop at."""
    result = program(expression).evaluate({"device": device})
    if not isinstance(result, (bool, celtypes.BoolType)):
        raise TypeError(f"gives {result!r}, no truth value")
    return bool(result)
