"""Our service account can write the slices of the node its token is bound to, and nothing else."""

from collections.abc import Iterator

import pytest

from tests.cluster.accounts import POLICY_LIMIT_S, install, node_token, pod_token, unbound_token
from tests.cluster.api import Api, ApiError, Object
from tests.cluster.control_plane import ControlPlane, fake_node
from tests.waiting import eventually

HOME, AWAY = "home", "away"


@pytest.fixture(scope="module")
def guarded(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Two nodes and the policy in force."""
    for node in (HOME, AWAY):
        fake_node(control_plane.api, node)
    install(control_plane)
    liken = control_plane.as_token(pod_token(control_plane.api, HOME))
    eventually(lambda: _refused(liken, _slice(AWAY)), POLICY_LIMIT_S, "the policy is in force", step_s=0.2)
    yield control_plane
    for node in (HOME, AWAY):
        control_plane.api.delete("Pod", f"liken-on-{node}", "liken", grace_s=0)
        control_plane.api.delete("Node", node)
    control_plane.api.delete_all("ResourceSlice")


@pytest.fixture
def liken(guarded: ControlPlane) -> Api:
    """Our account on node HOME."""
    return guarded.as_token(pod_token(guarded.api, HOME))


def test_the_own_nodes_slice_can_be_created_altered_and_deleted(liken: Api) -> None:
    liken.apply(_slice(HOME), "liken")
    altered = liken.apply(_slice(HOME, generation=2), "liken")
    liken.delete("ResourceSlice", _name(HOME))

    assert altered["spec"]["pool"]["generation"] == 2
    assert liken.find("ResourceSlice", _name(HOME)) is None


def test_another_nodes_slice_cannot_be_created(liken: Api) -> None:
    assert _refusal(liken, _slice(AWAY)) == (
        422,
        "a liken pod on node 'home' may not write a slice of node 'away'",
    )


def test_another_nodes_slice_cannot_be_altered(guarded: ControlPlane, liken: Api) -> None:
    guarded.api.apply(_slice(AWAY))

    code, _ = _refusal(liken, _slice(AWAY, generation=7))

    assert code == 422
    assert guarded.api.get("ResourceSlice", _name(AWAY))["spec"]["pool"]["generation"] == 1


def test_another_nodes_slice_cannot_be_deleted(guarded: ControlPlane, liken: Api) -> None:
    guarded.api.apply(_slice(AWAY))

    with pytest.raises(ApiError, match="may not write a slice of node 'away'"):
        liken.delete("ResourceSlice", _name(AWAY))

    assert guarded.api.find("ResourceSlice", _name(AWAY))


def test_another_drivers_slice_cannot_be_written(liken: Api) -> None:
    code, message = _refusal(liken, _slice(HOME, driver="other.example"))

    assert (code, message) == (422, "liken may only write slices of the driver liken.sh")


def test_a_token_bound_to_no_pod_writes_nothing(guarded: ControlPlane) -> None:
    code, message = _refusal(guarded.as_token(unbound_token(guarded.api)), _slice(HOME))

    assert code == 422
    assert "not bound to a pod" in message


def test_a_token_bound_to_the_node_is_as_good_as_one_bound_to_a_pod_there(guarded: ControlPlane) -> None:
    liken = guarded.as_token(node_token(guarded.api, HOME))

    written = liken.apply(_slice(HOME), "liken")

    assert written["spec"]["nodeName"] == HOME
    assert _refused(liken, _slice(AWAY, generation=3))


def test_our_account_may_do_nothing_else(liken: Api) -> None:
    for kind in ("Pod", "ResourceClaim", "Node"):
        with pytest.raises(ApiError) as refused:
            liken.list(kind)
        assert refused.value.code == 403, kind
    assert liken.get("Node", AWAY)["metadata"]["name"] == AWAY


def _name(node: str, driver: str = "liken.sh") -> str:
    return f"{node}-{driver}"


def _slice(node: str, generation: int = 1, driver: str = "liken.sh") -> Object:
    pool = {"name": node, "generation": generation, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": _name(node, driver)},
        "spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": []},
    }


def _refusal(api: Api, item: Object) -> tuple[int, str]:
    """Code and last words of the refusal that a write must meet."""
    with pytest.raises(ApiError) as refused:
        api.apply(item, "liken")
    return refused.value.code, str(refused.value).rpartition("denied request: ")[2]


def _refused(api: Api, item: Object) -> bool:
    try:
        api.apply(item, "liken", dry=True)
    except ApiError as error:
        return error.code == 422
    return False
