"""The claim of a display operator against the real scheduler, on nodes whose slices come from recordings."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from common.inventory import Inventory
from services.publisher.slices import slices
from tests.cluster.api import Api, Object
from tests.cluster.control_plane import ControlPlane, fake_node
from tests.cluster.objects import (
    DEPLOY,
    MANIFESTS,
    NAMESPACE,
    allocated,
    claim,
    claim_of,
    clear,
    load,
    named,
    pod,
    refused_by_scheduler,
    results,
)
from tests.machines.product import inventory
from tests.machines.recording import MACHINES
from tests.waiting import eventually

NODES = {"one-card": "laptop-lunar-lake-npu", "two-cards": "laptop-two-gpus", "no-card": "vm-openstack"}
CODECS = "media.example"

pytestmark = pytest.mark.skipif(not MACHINES.is_dir(), reason=f"no recordings in {MACHINES}")


@pytest.fixture(scope="module")
def api(control_plane: ControlPlane) -> Iterator[Api]:
    """Three nodes with the slices of three recordings, and the shipped DeviceClasses."""
    api = control_plane.api
    classes = [*load(DEPLOY / "examples/deviceclasses.yaml"), *load(MANIFESTS / "classes.yaml")]
    for thing in classes:
        api.apply(thing)
    for node in NODES:
        _publish(api, node)
    yield api
    for node in NODES:
        api.delete("Node", node)
    api.delete_all("ResourceSlice")


@pytest.fixture
def cluster(api: Api) -> Iterator[Api]:
    """The same with the claim template and without pods."""
    for thing in load(MANIFESTS / "display-claim.yaml"):
        api.apply(named(thing))
    yield api
    clear(api, force=True)


def test_one_card_gives_card_render_node_and_wires(cluster: Api) -> None:
    cluster.create(pod("display", template="display-gpu", node="one-card"))

    got = allocated(cluster, "display")

    assert set(got) == {"display", "render", "wires"}
    assert {_address("one-card", device) for device in got.values()} == {"0000:00:02.0"}
    assert _attribute("one-card", got["display"], "displayNode") is True
    assert _attribute("one-card", got["render"], "renderNode") is True
    assert _attribute("one-card", got["wires"], "subsystem") == "i2c-dev"


def test_card_and_wires_are_of_one_card_where_there_are_two(cluster: Api) -> None:
    cluster.create(pod("display", template="display-gpu", node="two-cards"))

    got = allocated(cluster, "display")

    assert _address("two-cards", got["display"]) == _address("two-cards", got["wires"])


def test_a_second_display_claim_waits_on_a_node_with_one_card(cluster: Api) -> None:
    cluster.create(pod("first", template="display-gpu", node="one-card"))
    allocated(cluster, "first")

    cluster.create(pod("second", template="display-gpu", node="one-card"))

    assert "cannot allocate all claims" in refused_by_scheduler(cluster, "second")


def test_a_second_claim_shares_the_render_node(cluster: Api) -> None:
    cluster.create(pod("display", template="display-gpu", node="one-card"))
    render = allocated(cluster, "display")["render"]
    cluster.create(claim("encode", "gpu-render"))

    cluster.create(pod("encoder", claim="encode", node="one-card"))

    assert eventually(lambda: _results_of(cluster, "encode"), 20, "encode is allocated") == {"main": render}
    assert _share_id(cluster.get("ResourceClaim", "encode", NAMESPACE)) != _share_id(
        claim_of(cluster, "display"), "render"
    )


def test_a_node_without_a_card_leaves_the_pod_pending(cluster: Api) -> None:
    cluster.create(pod("display", template="display-gpu", node="no-card"))

    assert "cannot allocate all claims" in refused_by_scheduler(cluster, "display")


def test_a_class_may_read_the_class_of_wires_without_has(cluster: Api) -> None:
    cluster.create(claim("wires", "display-i2c-unguarded"))

    cluster.create(pod("probe", claim="wires", node="one-card"))

    got = eventually(lambda: _results_of(cluster, "wires"), 20, "wires is allocated")
    assert _attribute("one-card", got["main"], "subsystem") == "i2c-dev"


def test_a_second_drivers_device_pairs_by_pci_address(cluster: Api) -> None:
    addresses = sorted({_address("two-cards", name) for name in _renderers("two-cards")})
    cluster.apply(_codecs("two-cards", addresses), CODECS)
    both = claim("both", "gpu-render")
    both["spec"]["devices"]["requests"].append({"name": "codec", "exactly": {"deviceClassName": "codec"}})
    both["spec"]["devices"]["constraints"] = [{"matchAttribute": "resource.kubernetes.io/pciBusID"}]
    cluster.create(both)

    cluster.create(pod("transcoder", claim="both", node="two-cards"))

    got = eventually(lambda: _results_of(cluster, "both"), 20, "both is allocated")
    assert got["codec"] == f"codec-{addresses.index(_address('two-cards', got['main']))}"


def _publish(api: Api, node: str) -> None:
    uid = fake_node(api, node)["metadata"]["uid"]
    for item in slices(_inventory(node), node, node_uid=uid).slices:
        api.apply(item, "liken")


def _inventory(node: str) -> Inventory:
    return inventory(Path(MACHINES) / f"{NODES[node]}.tar.xz")


def _attribute(node: str, device: str, name: str) -> str | bool | int | None:
    found = next(one for one in _inventory(node).devices if one.name == device)
    return next(iter(found.attributes.get(name, {}).values()), None)


def _address(node: str, device: str) -> str:
    return str(_attribute(node, device, "address"))


def _renderers(node: str) -> list[str]:
    return [device.name for device in _inventory(node).devices if "renderNode" in device.attributes]


def _results_of(api: Api, name: str) -> dict[str, str]:
    return results(api.get("ResourceClaim", name, NAMESPACE))


def _share_id(claimed: Object, request: str = "main") -> str:
    found = claimed["status"]["allocation"]["devices"]["results"]
    return str(next(result for result in found if result["request"] == request)["shareID"])


def _codecs(node: str, addresses: list[str]) -> Object:
    """The slice of another driver: one device for each card."""
    devices = [
        {"name": f"codec-{number}", "attributes": {"resource.kubernetes.io/pciBusID": {"string": address}}}
        for number, address in enumerate(addresses)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{CODECS}"},
        "spec": {"driver": CODECS, "nodeName": node, "pool": pool, "devices": devices},
    }
