"""The service DRAPlugin: the kubelet's batches become single claims in a pool of threads."""

import asyncio
import contextlib
import functools
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import grpc.aio
from prometheus_client import Histogram

from common.errors import LikenError, RequestError
from common.logs import claim_log
from services.plugin.api import dra_v1_pb2 as api
from services.plugin.api import dra_v1_pb2_grpc
from services.plugin.calls import TIME_OVER, CallTime, ClaimName
from services.plugin.desk import Desk, Prepared
from services.plugin.metrics import PluginMetrics
from services.plugin.pool import Pool

log = logging.getLogger(__name__)

T = TypeVar("T")
Context = grpc.aio.ServicerContext[Any, Any]
# Threads wait for the API server or the lock. Unprepare needs no API and has its own, so that an API server
# that does not answer holds no pod in Terminating.
PREPARE_THREADS = 16
UNPREPARE_THREADS = 8


class DraPlugin(dra_v1_pb2_grpc.DRAPluginServicer):
    """Answers for every claim of a call, and tells each claim its own error."""

    def __init__(self, desk: Desk, metrics: PluginMetrics, changed: Callable[[], None]) -> None:
        """`changed` is called after records changed; it must not block."""
        self._desk = desk
        self._metrics = metrics
        self._changed = changed
        self._preparing = Pool(PREPARE_THREADS, "prepare")
        self._unpreparing = Pool(UNPREPARE_THREADS, "unprepare")

    async def NodePrepareResources(  # noqa: N802 - the name of the interface
        self,
        request: api.NodePrepareResourcesRequest,
        context: Context,
    ) -> api.NodePrepareResourcesResponse:
        answer = api.NodePrepareResourcesResponse()
        for uid, devices, error in await self._each(request.claims, context, self._preparing, self._prepare):
            answer.claims[uid].error = error
            answer.claims[uid].devices.extend(_device(device) for device in devices or ())
        return answer

    async def NodeUnprepareResources(  # noqa: N802 - the name of the interface
        self,
        request: api.NodeUnprepareResourcesRequest,
        context: Context,
    ) -> api.NodeUnprepareResourcesResponse:
        answer = api.NodeUnprepareResourcesResponse()
        for uid, _, error in await self._each(request.claims, context, self._unpreparing, self._unprepare):
            answer.claims[uid].error = error
        return answer

    async def _each(
        self,
        claims: Iterable[api.Claim],
        context: Context,
        pool: Pool,
        work: Callable[[ClaimName, CallTime], tuple[T | None, str]],
    ) -> list[tuple[str, T | None, str]]:
        """Do `work` for every claim of the call, each UID once; give UID, result and error of each.

        What is not done when the call's time ends (an API server that hangs keeps all threads) gets its error
        then: an answer that comes later is an answer for none of the claims.
        """
        call = CallTime(context.time_remaining())
        asked = {claim.uid: ClaimName(claim.namespace, claim.name, claim.uid) for claim in claims}
        running = [pool.submit(functools.partial(work, claim, call)) for claim in asked.values()]
        try:
            await _all_done(running, call.answer_in_s())
        finally:
            for future in running:
                if not future.done():
                    call.cancelled.set()  # who waits for the lock stops; what is written stays for the retry
                    future.cancel()  # one that waits for a thread never begins
            self._changed()
        return [
            (uid, *_outcome(claim, future))
            for (uid, claim), future in zip(asked.items(), running, strict=True)
        ]

    def _prepare(self, asked: ClaimName, call: CallTime) -> tuple[tuple[Prepared, ...] | None, str]:
        done = _guarded("prepare", self._metrics.prepare, asked, lambda: self._desk.prepare(asked, call))
        return self._told(done, call)

    def _unprepare(self, asked: ClaimName, call: CallTime) -> tuple[None, str]:
        done = _guarded(
            "unprepare", self._metrics.unprepare, asked, lambda: self._desk.unprepare(asked, call)
        )
        return self._told(done, call)

    def _told(self, done: T, call: CallTime) -> T:
        if call.cancelled.is_set():
            self._changed()  # nobody waits any more who would tell it
        return done


async def _all_done(running: Sequence["Future[Any]"], timeout_s: float) -> None:
    """Wait until all are done, at most `timeout_s`. The last one wakes the event loop, once for all.

    asyncio.wait would do the same with a future of its own for each, and more turns of the loop.
    """
    if not running:
        return
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    left = itertools.count(len(running) - 1, -1)

    def one_done(_: "Future[Any]") -> None:
        if next(left) == 0:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and the call with it
                loop.call_soon_threadsafe(_end, over)

    for future in running:
        future.add_done_callback(one_done)
    timer = loop.call_later(timeout_s, _end, over)
    try:
        await over
    finally:
        timer.cancel()


def _end(over: "asyncio.Future[None]") -> None:
    if not over.done():
        over.set_result(None)


def _outcome(asked: ClaimName, future: "Future[tuple[T | None, str]]") -> tuple[T | None, str]:
    if future.done() and not future.cancelled():
        return future.result()
    claim_log(log, *asked).warning("no answer in time: %s", TIME_OVER)
    return None, TIME_OVER


def _guarded(word: str, seconds: Histogram, asked: ClaimName, work: Callable[[], T]) -> tuple[T | None, str]:
    """The result of `work`, or why there is none; an exception would fail the kubelet's whole call."""
    start = time.monotonic()
    told = claim_log(log, *asked)
    result: T | None = None
    error, outcome = "", "ok"
    try:
        result = work()
    except LikenError as refused:
        error, outcome = str(refused), "refused" if isinstance(refused, RequestError) else "failed"
        told.warning("%s refused: %s", word, error)
    except Exception as defect:  # noqa: BLE001 - logged with its traceback below
        error, outcome = (
            f"liken has a defect ({type(defect).__name__}); its log on this node says more",
            "defect",
        )
        told.exception("a defect in %s", word)
    else:
        told.info("%s done in %.1f ms", word, (time.monotonic() - start) * 1000)
    seconds.labels(outcome).observe(time.monotonic() - start)
    return result, error


def _device(device: Prepared) -> api.Device:
    return api.Device(
        request_names=[device.request],
        pool_name=device.pool,
        device_name=device.device,
        cdi_device_ids=[device.cdi_id],
        share_id=device.share_id or None,
    )
