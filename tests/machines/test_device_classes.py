"""Every selector that ships evaluates, without an error, on every device of every recorded machine: one error
on one device stops the scheduling of a pod."""

from pathlib import Path

import pytest

from tests.machines.cel import (
    REPOSITORY,
    SEED_CLASSES,
    as_seen_by_selectors,
    expressions,
    foreign_device,
    program,
    selects,
)
from tests.machines.marks import needs_machines
from tests.machines.product import inventory
from tests.machines.recording import MACHINES, archives, machine_name

CLASSES = {**SEED_CLASSES, **expressions(REPOSITORY / "deploy"), **expressions(REPOSITORY / "docs")}
RECORDINGS = [pytest.param(path, id=machine_name(path)) for path in archives()]


def selected(expression: str, machine: str) -> list[str]:
    devices = inventory(MACHINES / f"{machine}.tar.xz").devices
    return [device.name for device in devices if selects(expression, as_seen_by_selectors(device))]


@pytest.mark.parametrize("name", CLASSES)
def test_every_selector_compiles(name: str) -> None:
    assert program(CLASSES[name]) is not None


@pytest.mark.parametrize("path", RECORDINGS)
def test_every_selector_evaluates_on_every_device(path: Path) -> None:
    failures = []
    for device in inventory(path).devices:
        seen = as_seen_by_selectors(device)
        for name, expression in CLASSES.items():
            try:
                selects(expression, seen)
            except Exception as error:  # noqa: BLE001 - whatever it is, the scheduler would stop
                failures.append(f"{name} on {device.name}: {error}")
    assert failures == []


@pytest.mark.parametrize("name", CLASSES)
def test_no_selector_takes_another_drivers_device(name: str) -> None:
    assert not selects(CLASSES[name], foreign_device())


@needs_machines
@pytest.mark.parametrize(
    ("seed", "machine", "expected"),
    [
        ("seed: render node", "laptop-two-gpus", ["pci-0000-00-02-0", "pci-0000-01-00-0"]),
        ("seed: render node", "raspberry-pi-4", ["platform-fec00000-v3d"]),
        ("seed: card node", "raspberry-pi-4", ["platform-gpu"]),
        ("seed: card node", "laptop-two-gpus", ["pci-0000-00-02-0-display"]),
        (
            "seed: monitor wires",
            "laptop-two-gpus",
            ["pci-0000-00-02-0-i2c-dev", "pci-0000-01-00-0-i2c-dev"],
        ),
        ("seed: monitor wires", "server-power8", ["pci-0009-06-00-0-i2c-dev"]),
    ],
)
def test_the_seed_classes_select_what_they_mean(seed: str, machine: str, expected: list[str]) -> None:
    assert selected(SEED_CLASSES[seed], machine) == expected


@needs_machines
def test_one_expression_without_has_fails_as_it_does_in_the_scheduler() -> None:
    careless = 'device.attributes["liken.sh"].renderNode'
    devices = inventory(MACHINES / "laptop-two-gpus.tar.xz").devices
    keyboard = next(device for device in devices if device.name == "platform-i8042")
    with pytest.raises(Exception, match="renderNode"):
        selects(careless, as_seen_by_selectors(keyboard))
