"""Every manifest that is shipped, in a strict dry run on real API servers."""

from pathlib import Path

import pytest
import yaml

from tests.cluster.accounts import LIKEN
from tests.cluster.api import KINDS, Api, Object
from tests.cluster.binaries import find
from tests.cluster.control_plane import ControlPlane
from tests.cluster.objects import DEPLOY, load, named
from tests.cluster.processes import run

FOLDERS = sorted(path.parent for path in DEPLOY.rglob("kustomization.yaml"))
WORKLOADS = sorted((DEPLOY / "examples/workloads").glob("*.yaml"))
# Kinds of other projects, which no API server has by itself: only their being well-formed is checked here.
FOREIGN = {"PodMonitor", "PrometheusRule"}


@pytest.mark.parametrize("folder_of_kustomization", FOLDERS, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_a_kustomization_is_accepted(control_plane: ControlPlane, folder_of_kustomization: Path) -> None:
    things = kustomized(folder_of_kustomization)

    refused = [problem for thing in things if (problem := _problem(control_plane.api, thing))]

    assert things
    assert refused == []


@pytest.mark.parametrize("path", WORKLOADS, ids=lambda path: path.stem)
def test_an_example_is_accepted(control_plane: ControlPlane, path: Path) -> None:
    things = load(path)

    refused = [problem for thing in things if (problem := _problem(control_plane.api, thing))]

    assert things
    assert refused == []


def test_the_base_is_accepted_by_the_oldest_api_server(oldest: ControlPlane) -> None:
    things = kustomized(DEPLOY / "base")

    assert [problem for thing in things if (problem := _problem(oldest.api, thing))] == []


def kustomized(folder: Path) -> list[Object]:
    """What `kubectl kustomize` makes of a folder."""
    return [thing for thing in yaml.safe_load_all(run(find("kubectl"), "kustomize", folder)) if thing]


def _problem(api: Api, thing: Object) -> str:
    """Why a strict dry run refuses an object; nothing when it does not."""
    kind = thing["kind"]
    if kind in FOREIGN:
        return "" if {"apiVersion", "metadata", "spec"} <= thing.keys() else f"{kind} has no spec"
    if kind not in KINDS:
        return f"{kind} is unknown to this test"
    if not api.find("Namespace", LIKEN):
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LIKEN}})
    if KINDS[kind][2]:
        thing = named(thing, namespace=thing["metadata"].get("namespace") or LIKEN)
    try:
        api.apply(thing, dry=True)
    except Exception as error:  # noqa: BLE001 - every refusal is a finding
        return f"{kind} {thing['metadata']['name']}: {error}"
    return ""
