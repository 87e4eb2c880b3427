"""Threads for work that blocks. They hold up neither another pool nor the end of the process."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
_Job = tuple["Future[Any]", Callable[[], Any]]


class Pool:
    """At most `size` daemon threads, made when they are needed.

    ThreadPoolExecutor is not used: Python waits for its threads at exit, and a read of the API server can
    last as long as a call of the kubelet.
    """

    def __init__(self, size: int, name: str) -> None:
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._size = size
        self._name = name
        self._guard = threading.Lock()
        self._threads = 0
        self._idle = 0

    def submit(self, work: Callable[[], T]) -> "Future[T]":
        """Have `work` done by the next free thread; its result or exception is the future's."""
        future: Future[T] = Future()
        with self._guard:
            if self._idle > 0:
                self._idle -= (
                    1  # that thread is promised to this job; with all threads made it does not matter
                )
            elif self._threads < self._size:
                self._threads += 1
                name = f"{self._name}-{self._threads}"
                threading.Thread(target=self._run, name=name, daemon=True).start()
        self._jobs.put((future, work))
        return future

    def _run(self) -> None:
        while True:
            future, work = self._jobs.get()
            if future.set_running_or_notify_cancel():
                _do(future, work)
            with self._guard:
                self._idle += 1


def _do(future: "Future[T]", work: Callable[[], T]) -> None:
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - handed to whoever waits for the future
        future.set_exception(error)
    else:
        future.set_result(result)
