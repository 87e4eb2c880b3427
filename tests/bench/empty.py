"""A DRA plugin that does nothing, in a process of its own like ours: what gRPC itself costs."""

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any, NamedTuple

import grpc
import grpc.aio

from services.plugin.api import dra_v1_pb2, dra_v1_pb2_grpc
from tests.bench.plain import running

CALLS = 300  # of one caller
RATE_CALLS = 2000  # of several


class Servicer(dra_v1_pb2_grpc.DRAPluginServicer):
    async def NodePrepareResources(self, request: Any, context: Any) -> Any:
        return dra_v1_pb2.NodePrepareResourcesResponse()


class Taken(NamedTuple):
    """Seconds of each call, and calls per second of all callers together."""

    seconds: list[float]
    per_s: float


def calls(callers: int) -> Taken:
    """Call a servicer that does nothing, from so many threads at once."""
    count = CALLS if callers == 1 else RATE_CALLS
    with _stub() as stub, futures.ThreadPoolExecutor(callers) as pool:
        begin = time.perf_counter()
        seconds = list(pool.map(_timed, [stub] * count))
        return Taken(seconds, count / (time.perf_counter() - begin))


def _timed(stub: Any) -> float:
    begin = time.perf_counter()
    stub.NodePrepareResources(dra_v1_pb2.NodePrepareResourcesRequest())
    return time.perf_counter() - begin


@contextmanager
def _stub() -> Iterator[Any]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        address = f"unix:{folder}/s"
        with (
            running("-m", "tests.bench.empty", address),
            grpc.insecure_channel(address) as channel,
        ):
            stub = dra_v1_pb2_grpc.DRAPluginStub(channel)  # type: ignore[no-untyped-call]
            _timed(stub)  # connects
            yield stub


async def _serve(address: str) -> None:
    server = grpc.aio.server()
    dra_v1_pb2_grpc.add_DRAPluginServicer_to_server(Servicer(), server)  # type: ignore[no-untyped-call]
    server.add_insecure_port(address)
    await server.start()
    print("listens", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
