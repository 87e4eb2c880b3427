"""One call of the kubelet with many claims: an answer for each of them, in time."""

import asyncio
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from services.plugin.api import dra_v1_pb2 as api
from services.plugin.dra import PREPARE_THREADS, DraPlugin
from services.plugin.metrics import PluginMetrics
from tests.claim_bench import Bench
from tests.waiting import eventually


class Call:
    """What gRPC tells of a call: how long it lasts."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def time_remaining(self) -> float:
        return self._seconds


class SilentCluster:
    """A cluster that keeps whoever asks, until it is let go."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.let_go = threading.Event()

    def claim(self, namespace: str, name: str, timeout_s: float) -> dict[str, Any]:
        self.asked.set()
        self.let_go.wait(30)
        return {}


@pytest.fixture
def silent() -> Iterator[SilentCluster]:
    cluster = SilentCluster()
    yield cluster
    cluster.let_go.set()


def plugin(bench: Bench, ticks: list[None]) -> DraPlugin:
    return DraPlugin(bench.desk, PluginMetrics(CollectorRegistry()), lambda: ticks.append(None))


def request(count: int) -> api.NodePrepareResourcesRequest:
    uids = [str(uuid.uuid4()) for _ in range(count)]
    claims = [api.Claim(namespace="default", name=f"c{uid[:8]}", uid=uid) for uid in uids]
    return api.NodePrepareResourcesRequest(claims=claims)


def test_claims_whose_turn_never_comes_have_their_answer_before_the_call_ends(
    tmp_path: Path, silent: SilentCluster
) -> None:
    bench = Bench(tmp_path)
    bench.cluster = cast(Any, silent)
    bench.desk = bench.new_desk()
    asked = request(3 * PREPARE_THREADS)
    start = time.monotonic()
    answer = asyncio.run(plugin(bench, []).NodePrepareResources(asked, cast(Any, Call(0.6))))
    assert time.monotonic() - start < 0.6
    assert {claim.uid for claim in asked.claims} == set(answer.claims)
    assert all("the time of the kubelet's call was over" in one.error for one in answer.claims.values())


def test_a_call_without_claims_has_an_answer_without_claims(tmp_path: Path) -> None:
    answer = asyncio.run(plugin(Bench(tmp_path), []).NodePrepareResources(request(0), cast(Any, Call(5.0))))
    assert len(answer.claims) == 0


def test_what_ends_after_the_kubelet_gave_the_call_up_is_told_all_the_same(
    tmp_path: Path, silent: SilentCluster
) -> None:
    bench, ticks = Bench(tmp_path), list[None]()
    bench.cluster = cast(Any, silent)
    bench.desk = bench.new_desk()
    served = plugin(bench, ticks)

    async def give_up() -> None:
        running = asyncio.create_task(served.NodePrepareResources(request(1), cast(Any, Call(5.0))))
        await asyncio.to_thread(eventually, silent.asked.is_set, 5, "the claim is asked for")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(give_up())
    assert len(ticks) == 1
    silent.let_go.set()
    eventually(lambda: len(ticks) == 2, 5, "the end of the work is told")
