"""Requests that no kubelet would send: nothing crashes, and no file is written outside the two folders."""

import contextlib
import shutil
import tempfile
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.plugin.api import dra_v1_pb2, dra_v1_pb2_grpc
from tests.services.kubelet_stand_in import Claim
from tests.services.played_node import DRIVER, PlayedNode
from tests.services.process import Process
from tests.unit.claims.shapes import ADAPTER, adapter

METHODS = ("NodePrepareResources", "NodeUnprepareResources")
SERVICE = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
UID = str(uuid.UUID(int=5))

words = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        ["..", ".", "/", "a/b", "../../../../tmp/x", "default", ADAPTER, "a.b.c", "\x00", UID, " "]
    ),
)
uids = st.one_of(words, st.uuids().map(str), st.uuids().map(lambda uid: f"../{uid}"), st.just("x" * 10_000))
requests = st.lists(st.tuples(words, words, uids), max_size=8)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlayedNode]:
    folder = Path(tempfile.mkdtemp(prefix="liken-"))
    node = PlayedNode(folder)
    adapter(node.machine)
    node.start("plugin")
    node.registered()
    yield node
    node.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def plugin(node: PlayedNode) -> Process:
    return node.processes[0]


@pytest.fixture(scope="module")
def channel(node: PlayedNode) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"unix:{node.kubelet.instances[0].endpoint}") as channel:
        yield channel


def outside(node: PlayedNode) -> set[str]:
    """Every file of the node that is neither in the claims folder nor a spec of ours."""
    return {
        str(path.relative_to(node.run))
        for path in node.run.rglob("*")
        if not path.is_relative_to(node.plugin_dir / "claims")
        and not (path.parent == node.cdi and path.name.startswith(f"{DRIVER}-device_"))
        and path.suffix != ".log"
        and path != node.cdi
    }


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(method=st.sampled_from(METHODS), claims=requests)
def test_any_words_are_answered_claim_by_claim(
    node: PlayedNode, plugin: Process, channel: grpc.Channel, method: str, claims: list[tuple[str, str, str]]
) -> None:
    before = outside(node)
    request: Any = getattr(dra_v1_pb2, f"{method}Request")(
        claims=[dra_v1_pb2.Claim(namespace=namespace, name=name, uid=uid) for namespace, name, uid in claims]
    )
    stub: Any = dra_v1_pb2_grpc.DRAPluginStub(channel)  # type: ignore[no-untyped-call]
    answer = getattr(stub, method)(request, timeout=20)
    assert set(answer.claims) == {uid for _, _, uid in claims}
    if method == METHODS[0]:
        assert all(one.error and "\n" not in one.error for one in answer.claims.values())
    else:
        assert not any(one.error for one in answer.claims.values())
    assert plugin.popen.poll() is None
    assert outside(node) == before
    assert node.records() == []


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(method=st.sampled_from(METHODS), content=st.binary(max_size=300))
def test_bytes_that_are_no_message_are_refused_by_the_call_and_harm_nobody(
    node: PlayedNode, plugin: Process, channel: grpc.Channel, method: str, content: bytes
) -> None:
    before = outside(node)
    call: Any = channel.unary_unary(f"/{SERVICE}/{method}", None, None)
    with contextlib.suppress(grpc.RpcError):  # some bytes are a message
        call(content, timeout=20)
    assert plugin.popen.poll() is None
    assert outside(node) == before
    assert node.kubelet.unprepare(Claim("default", "c", UID)) == {UID: ""}


def test_a_call_with_thousands_of_claims_is_answered(node: PlayedNode, plugin: Process) -> None:
    claims = [Claim("default", f"c{number}", str(uuid.UUID(int=number))) for number in range(3000)]
    answer = node.kubelet.prepare(*claims)
    assert len(answer) == len(claims)
    assert {one.error for one in answer.values()} != {""}
    assert plugin.popen.poll() is None


def test_a_claim_with_everything_the_api_allows_is_prepared_and_released(node: PlayedNode) -> None:
    """32 results, of which one is ours; and a text of a megabyte beside it."""
    others = [
        {"request": f"o{number}", "driver": "other", "pool": "p", "device": f"d{number}"}
        for number in range(31)
    ]
    claim = node.claim(ADAPTER, results=others)
    body = {
        "allocation": {
            "devices": {
                "results": [{"request": "r", "driver": DRIVER, "pool": "n1", "device": ADAPTER}, *others],
                "config": [{"opaque": {"driver": DRIVER, "parameters": {"text": "x" * 1_000_000}}}],
            }
        }
    }
    node.put_claim(claim, body)
    assert node.kubelet.prepare(claim)[claim.uid].error == ""
    assert node.kubelet.unprepare(claim) == {claim.uid: ""}


def test_a_call_that_is_larger_than_grpc_takes_is_refused_and_the_next_one_works(node: PlayedNode) -> None:
    huge = Claim("default", "x" * 5_000_000, UID)
    with pytest.raises(grpc.RpcError):
        node.kubelet.prepare(huge)
    claim = node.claim(ADAPTER)
    assert node.kubelet.prepare(claim)[claim.uid].error == ""
    assert node.kubelet.unprepare(claim) == {claim.uid: ""}


def test_calls_that_are_cancelled_half_way_leave_what_the_next_call_completes(node: PlayedNode) -> None:
    """K8."""
    claim = node.claim(ADAPTER)
    stub: Any = dra_v1_pb2_grpc.DRAPluginStub(node.kubelet.instances[-1].channel)  # type: ignore[no-untyped-call]
    request = dra_v1_pb2.NodePrepareResourcesRequest(
        claims=[dra_v1_pb2.Claim(namespace=claim.namespace, name=claim.name, uid=claim.uid)]
    )

    def is_cancelled(delay_s: float) -> bool:
        call = stub.NodePrepareResources.future(request, timeout=20)
        timer = threading.Timer(delay_s, call.cancel)
        timer.start()
        try:
            call.result()
        except grpc.FutureCancelledError:
            return True
        finally:
            timer.cancel()
        return False

    cancelled = [is_cancelled(0.0002 * step) for step in range(20)]
    assert True in cancelled
    assert node.kubelet.prepare(claim)[claim.uid].error == ""
    assert node.records() == [claim.uid]
    assert node.paths(claim)[ADAPTER][0] == "/dev/ttyUSB0"
    assert node.kubelet.unprepare(claim) == {claim.uid: ""}
    assert node.leftovers() == []
