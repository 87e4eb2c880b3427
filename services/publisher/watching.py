"""The list+watch loop over our own slices: the only thing that reads them from the cluster at rest."""

import logging
import random
import time
from collections.abc import Callable

from common.cluster import Cluster, ClusterUnavailable, OutOfDate, Refused
from common.process import Stop
from services.publisher.backoff import Backoff
from services.publisher.metrics import Metrics
from services.publisher.seen import Seen

log = logging.getLogger(__name__)

START_S = 0.25  # the first list comes at a random moment within this time
AGAIN_S = 1.0  # the first step of the waits after a failure, and the spread of nodes whose watch ended
LONGEST_S = 30.0
EARLY_S = 10.0  # a watch that ends sooner, and brought nothing, counts as a failure


class Watching:
    """Keeps `seen` true. `changed` is called after each change, from the thread that runs this."""

    def __init__(
        self,
        cluster: Cluster,
        seen: Seen,
        changed: Callable[[], None],
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._seen = seen
        self._changed = changed
        self._metrics = metrics
        self._clock = clock
        self._backoff = Backoff(AGAIN_S, LONGEST_S)
        self._version: str | None = None
        self._silent = False
        self._expired = False  # the last watch began with a version that was too old

    def run(self, stop: Stop) -> None:
        """Until `stop`; a watch that is open then ends with the process or with `cluster.close()`."""
        pause_s = random.uniform(0.0, START_S)
        while not stop.wait(pause_s):
            pause_s = self.step()

    def step(self) -> float:
        """One list, or one whole watch. Returns the pause before the next step, in seconds."""
        try:
            if self._version is None:
                self._list()
                return 0.0
            return self._watch(self._version)
        except OutOfDate as error:
            log.info("what was known of the slices is too old, they are listed again: %s", error)
            self._metrics.watch_restarts.labels(reason="expired").inc()
            self._version = None
            again, self._expired = self._expired, True
            return self._backoff.failed() if again else random.uniform(0.0, START_S)
        except (ClusterUnavailable, Refused) as error:
            return self._failed(error)

    def _list(self) -> None:
        listed = self._cluster.list_slices()
        self._seen.replace(listed)
        self._version = listed.version
        self._metrics.connected.set(1)
        self._changed()

    def _watch(self, version: str) -> float:
        started = self._clock()
        try:
            for event in self._cluster.watch_slices(version):
                self._well()
                self._version = str(event.object["metadata"].get("resourceVersion", version))
                if event.kind != "BOOKMARK":
                    self._seen.change(event)
                    self._changed()
        finally:
            lived = self._clock() - started >= EARLY_S
            if lived:
                self._well()
        self._metrics.watch_restarts.labels(reason="ended" if lived else "closed").inc()
        if lived:
            return random.uniform(0.0, AGAIN_S)  # a server that stops ends all its watches together
        self._lost()
        return self._backoff.failed()

    def _failed(self, error: ClusterUnavailable | Refused) -> float:
        retry_after_s = error.retry_after_s if isinstance(error, ClusterUnavailable) else 0.0
        pause_s = self._backoff.failed(retry_after_s)
        level = logging.DEBUG if self._silent else logging.WARNING
        log.log(level, "cannot watch the slices: %s; tries again, next in %.1f s", error, pause_s)
        self._silent = True
        self._metrics.connected.set(0)
        self._metrics.watch_restarts.labels(reason="failed").inc()
        self._lost()
        return pause_s

    def _well(self) -> None:
        self._backoff.worked()
        self._expired = False
        if self._silent:
            self._silent = False
            log.info("the slices are watched again")

    def _lost(self) -> None:
        self._version = None  # events may be missing: compare everything
        self._seen.broke()
