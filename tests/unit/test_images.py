"""The images: each locked wheel has a place, the Containerfile the same layers, nothing unwanted is named."""

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from common.settings import SERVICES

REPOSITORY = Path(__file__).resolve().parents[2]
IMAGES = REPOSITORY / "images"
LAYERS: dict[str, Any] = tomllib.loads((IMAGES / "layers.toml").read_text())
FORBIDDEN = re.compile(r"(ba|da|z)?sh|pip|.*-pip|gcc(-\d+)?|.*-dev|apt|dpkg|busybox|coreutils|perl.*")


def test_every_locked_wheel_is_in_exactly_one_layer_or_left_out_on_purpose() -> None:
    placed = [name for layer in LAYERS["layers"].values() for name in layer.get("wheels", [])]
    placed += LAYERS["left_out"]["wheels"]

    # markers that hold on no Linux with CPython are not for an image
    locked = re.findall(r"^(\S+?)==\S+(.*)$", (REPOSITORY / "requirements.txt").read_text(), re.MULTILINE)
    wanted = [name for name, rest in locked if "pypy" not in rest and "win32" not in rest]
    assert sorted(placed) == sorted(wanted)


def test_each_service_has_an_image_that_starts_it_and_holds_no_more_code_than_it_needs() -> None:
    for service in SERVICES:
        image = LAYERS["images"][f"liken-{service}"]
        code = [LAYERS["layers"][layer].get("services", []) for layer in image["layers"]]

        assert image["entrypoint"][-2:] == ["-m", f"services.{service}"]
        # an administrator enters the plugin's container for the command: it has the mounts that this reads
        whole = [*SERVICES, "console"]
        assert [names for names in code if names] == [whole if service == "plugin" else [service]]


def test_no_layer_has_a_shell_a_compiler_or_a_tool_to_install_more() -> None:
    named = [*LAYERS["layers"]["python"]["debian"], *LAYERS["layers"]["python"]["parts"]]
    named += [name for layer in LAYERS["layers"].values() for name in layer.get("wheels", [])]

    assert [name for name in named if FORBIDDEN.fullmatch(name)] == []


@pytest.mark.parametrize("image", sorted(LAYERS["images"]))
def test_the_containerfile_stacks_the_same_layers(image: str) -> None:
    stages = _stages((IMAGES / "Containerfile").read_text())
    wanted = LAYERS["images"][image]

    lines = _with_bases(stages, image)

    copied = [
        match.group(1) for line in lines if (match := re.match(r"COPY --from=build /layers/(\S+)/ /$", line))
    ]
    words = {line.partition(" ")[0]: line.partition(" ")[2] for line in lines}
    assert copied == wanted["layers"]
    assert _list(words["ENTRYPOINT"]) == wanted["entrypoint"]
    assert _list(words.get("CMD", "[]")) == wanted.get("command", [])


def test_the_images_have_the_python_that_the_project_supports() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    (python,) = {image["entrypoint"][0] for image in LAYERS["images"].values()}

    assert project["requires-python"] == ">=" + python.removeprefix("/usr/bin/python")
    assert sys.version_info >= (3, 11)


def _stages(text: str) -> dict[str, tuple[str, list[str]]]:
    """Base and instructions of each stage by name."""
    stages: dict[str, tuple[str, list[str]]] = {}
    for part in re.split(r"^FROM ", text, flags=re.MULTILINE)[1:]:
        first, *lines = part.splitlines()
        base, _, name = first.partition(" AS ")
        stages[name] = (base, [line for line in lines if line and not line.startswith("#")])
    return stages


def _with_bases(stages: dict[str, tuple[str, list[str]]], name: str) -> list[str]:
    """The instructions of a stage after those of the stages below it."""
    if name not in stages:
        return []
    base, lines = stages[name]
    return [*_with_bases(stages, base), *lines]


def _list(text: str) -> list[str]:
    return re.findall(r'"([^"]*)"', text)
