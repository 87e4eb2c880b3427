"""The whole chain on this machine: scheduler, kubelet, our four processes, containerd, runc, and a container.

The hardware is played, the device nodes are real: what a container was given is read inside it.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.api import Api
from tests.cluster.covers import CDI, KUBELET
from tests.cluster.node import Worker
from tests.cluster.objects import (
    MANIFESTS,
    NAMESPACE,
    claim,
    claim_of,
    clear,
    container,
    load,
    log,
    named,
    pod,
    refused_by_scheduler,
    running,
)
from tests.cluster.services import Services
from tests.waiting import eventually

FIRST = 'device.attributes["liken.sh"].address == "0000:00:05.0"'
# What the runtime gives every container.
USUAL = re.compile(
    r"/dev/(core|fd|full|mqueue|null|ptmx|pts|random|shm|std(in|out|err)|termination-log|tty|urandom|zero)\b.*"
)
LOOK = "for n in /dev/* /dev/*/* /dev/*/*/*; do stat -c '%n %t:%T' $n; done 2>/dev/null; echo end"


@pytest.fixture
def api(liken: Services, worker: Worker) -> Iterator[Api]:
    """The cluster with our driver at work; no pod or claim is left afterwards."""
    yield worker.api
    clear(worker.api)


def test_a_pod_sees_exactly_the_nodes_of_its_claim(api: Api) -> None:
    api.create(claim("first", "played", FIRST))

    api.create(pod("first", claim="first", containers=[container(script=LOOK)]))
    running(api, "first")

    assert _nodes(api, "first") == {"/dev/loop5": _number("/dev/loop5")}


def test_a_container_that_names_one_request_gets_the_nodes_of_that_request_alone(api: Api) -> None:
    for thing in load(MANIFESTS / "display-claim.yaml"):
        api.create(named(thing))

    both = [container("compositor", LOOK), container("encoder", LOOK, request="render")]
    api.create(pod("display", template="display-gpu", containers=both))
    running(api, "display")

    render = {"/dev/dri/renderD128": _number("/dev/dri/renderD128")}
    others = {path: _number(path) for path in ("/dev/dri/card0", "/dev/dri/i2c-0")}
    assert _nodes(api, "display", "encoder") == render
    assert _nodes(api, "display", "compositor") == render | others


def test_two_pods_with_claims_of_their_own_share_a_render_node(api: Api) -> None:
    for name in ("one", "two"):
        api.create(claim(name, "gpu-render"))
        api.create(pod(name, claim=name, containers=[container(script=LOOK)]))

    for name in ("one", "two"):
        running(api, name)

    expected = {"/dev/dri/renderD128": _number("/dev/dri/renderD128")}
    assert [_nodes(api, name) for name in ("one", "two")] == [expected, expected]


def test_two_pods_share_one_claim_on_an_exclusive_device(api: Api) -> None:
    api.create(claim("shared", "played", FIRST))
    for name in ("one", "two"):
        api.create(pod(name, claim="shared", containers=[container(script=LOOK)]))

    for name in ("one", "two"):
        running(api, name)

    assert _nodes(api, "one") == _nodes(api, "two") == {"/dev/loop5": _number("/dev/loop5")}


def test_a_second_claim_on_an_exclusive_device_waits_until_the_first_is_gone(api: Api) -> None:
    for name in ("one", "two"):
        api.create(claim(name, "played", FIRST))
    api.create(pod("one", claim="one"))
    running(api, "one")
    api.create(pod("two", claim="two"))
    refused_by_scheduler(api, "two")

    api.delete_and_wait("Pod", "one", NAMESPACE)
    api.delete_and_wait("ResourceClaim", "one", NAMESPACE)

    assert running(api, "two")["spec"]["nodeName"] == "worker"


def test_nothing_is_left_of_a_claim_when_its_last_pod_is_gone(api: Api) -> None:
    api.create(claim("shared", "played", FIRST))
    for name in ("one", "two"):
        api.create(pod(name, claim="shared"))
    for name in ("one", "two"):
        running(api, name)
    uid = api.get("ResourceClaim", "shared", NAMESPACE)["metadata"]["uid"]
    api.delete_and_wait("Pod", "one", NAMESPACE)
    assert _spec(uid).exists()

    api.delete_and_wait("Pod", "two", NAMESPACE)

    # a pod is gone only after the kubelet has unprepared its claims: nothing to wait for
    assert not _spec(uid).exists()
    assert _records(uid) == []


def test_a_container_that_runs_as_nobody_in_particular_opens_its_device(api: Api) -> None:
    api.create(claim("first", "played", FIRST))
    reads = container(script="dd if=/dev/loop5 of=/dev/null bs=1 count=0 2>/dev/null && echo opened")
    reads["securityContext"] = {"runAsUser": 1234, "runAsGroup": Path("/dev/loop5").stat().st_gid}
    unprivileged = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    reads["securityContext"] |= unprivileged

    api.create(pod("nobody", claim="first", containers=[reads]))
    running(api, "nobody")

    assert eventually(lambda: log(api, "nobody"), 10, "the container says something")[-1] == "opened"


def test_a_claim_made_from_a_template_goes_with_its_pod(api: Api) -> None:
    for thing in load(MANIFESTS / "display-claim.yaml"):
        api.create(named(thing))
    api.create(pod("display", template="display-gpu"))
    running(api, "display")
    uid = claim_of(api, "display")["metadata"]["uid"]
    assert _records(uid)

    api.delete_and_wait("Pod", "display", NAMESPACE)

    assert not _spec(uid).exists()
    assert _records(uid) == []


def _nodes(api: Api, pod_name: str, container_name: str = "main") -> dict[str, str]:
    """Path and major:minor of the device nodes in a container beyond those that every container has."""
    lines = eventually(lambda: _whole_log(api, pod_name, container_name), 10, f"{pod_name} has looked")
    found = dict(line.rsplit(" ", 1) for line in lines)
    return {path: number for path, number in found.items() if number != "0:0" and not USUAL.fullmatch(path)}


def _whole_log(api: Api, pod_name: str, container_name: str) -> list[str]:
    lines = log(api, pod_name, container_name)
    return lines[:-1] if lines and lines[-1] == "end" else []


def _number(path: str) -> str:
    """The number of a node of this machine, as stat prints it in a container."""
    number = Path(path).stat().st_rdev
    return f"{os.major(number):x}:{os.minor(number):x}"


def _spec(uid: str) -> Path:
    return CDI / f"liken.sh-device_{uid}.json"


def _records(uid: str) -> list[Path]:
    return sorted((KUBELET / "plugins/liken.sh/claims").glob(f"*/{uid}*"))
