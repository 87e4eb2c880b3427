"""Keeps the cluster's slices equal to what this node offers. Each turn decides from everything it knows."""

import logging
from typing import NamedTuple

from common.cluster import Cluster, ClusterUnavailable, OutOfDate, Refused
from common.inventory import Inventory, InventoryMessage, Presence
from services.publisher import notices as say
from services.publisher.backoff import Backoff, Pace
from services.publisher.metrics import Metrics
from services.publisher.notices import Notices
from services.publisher.plan import as_sent, dropped, plan
from services.publisher.refusals import Refusals
from services.publisher.seen import Seen, View
from services.publisher.slices import DEFAULT_LIMITS, Homes, Limits, Wanted, slices
from services.publisher.writer import Clocks, SliceRefusedError, Writer

log = logging.getLogger(__name__)

REFUSED_FIRST_S = 60.0  # the same content again after so long: somebody may have changed a policy
REFUSED_LONGEST_S = 600.0
REOFFER_S = 3600.0  # fields that the server dropped are sent again after a lost watch, no oftener than this
NODE_FIRST_S = 1.0
NODE_LONGEST_S = 60.0


class Pause(NamedTuple):
    """How long to wait. `firm`: a change does not shorten it (the server is away, or asked for it)."""

    seconds: float
    firm: bool


class Publisher:
    """One node's publisher, for one thread. Writes nothing before `activate`."""

    def __init__(
        self,
        cluster: Cluster,
        node: str,
        driver: str,
        seen: Seen,
        metrics: Metrics,
        clocks: Clocks,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._cluster = cluster
        self._node = node
        self._driver = driver
        self._seen = seen
        self._metrics = metrics
        self._clocks = clocks
        self._limits = limits
        self._notices = Notices(cluster, metrics)
        self._writer = Writer(cluster, seen, metrics, clocks)
        self._refusals = Refusals()
        self._backoff = Backoff()
        self._node_backoff = Backoff(NODE_FIRST_S, NODE_LONGEST_S)
        self._refused_backoff = Backoff(REFUSED_FIRST_S, REFUSED_LONGEST_S)
        self._pace = Pace()
        self._active = False
        self._inventory: Inventory | None = None
        self._error = ""  # why there is no inventory now
        self._stirred = 0.0  # when the first event came that the slices do not show yet
        self._held: frozenset[str] | None = None
        self._homes: Homes = {}
        self._uid: str | None = None
        self._deletions = self._breaks = 0
        self._reoffer_due = 0.0
        self._inputs = 0  # counts what changed on our side
        self._written = -1  # the inputs that were last written whole
        self._settled = (-1, -1)  # the inputs and the revision of the view when all was as wanted
        self._pause: Pause | None = None
        self._due = 0.0

    def activate(self) -> None:
        """This instance is the one that writes."""
        self._active = True
        self._metrics.active.set(1)

    def inventory(self, message: InventoryMessage) -> None:
        """The watcher's newest word. While it is an error nothing is written and nothing removed."""
        if message.inventory is None:
            self._error = message.error or "no reason given"
            return
        known = self._inventory
        if known is None or known.devices != message.inventory.devices or self._error:
            self._stirred = self._stirred or message.stirred
            self._input()
        self._error = ""
        self._inventory = message.inventory

    def presence(self, presence: Presence) -> None:
        """The prepared claims; overflow never drops their devices."""
        held = frozenset(device.device for claim in presence.claims for device in claim.devices)
        if held != self._held:
            self._held = held
            self._inputs += 1

    def turn(self) -> float | None:
        """Do what is due. Returns the seconds after which to call again; None: when something happened."""
        if not self._active:
            return None
        left = self._due - self._clocks.monotonic()
        if self._pause is not None and left > 0:
            return left
        self._pause = self._work()
        if self._pause is None:
            return None
        self._due = self._clocks.monotonic() + self._pause.seconds
        return self._pause.seconds

    def _input(self) -> None:
        self._inputs += 1
        if self._pause is not None and not self._pause.firm:
            self._pause = None
        self._refused_backoff.worked()

    def _work(self) -> Pause | None:
        view = self._view()
        self._notices.tell(
            say.UNREADABLE, self._error and f"the hardware cannot be read, the slices stay: {self._error}"
        )
        if self._error or self._inventory is None:
            return self._events()
        self._tell_storage(self._inventory)
        settled = view.known and (self._inputs, view.revision) == self._settled
        self._metrics.pending(not settled)
        if settled or not view.known:
            return self._events()
        try:
            return self._settle(self._inventory, view)
        except OutOfDate as error:
            log.info("the slices changed meanwhile, they are listed again: %s", error)
            return Pause(self._relist(), firm=True)
        except (ClusterUnavailable, Refused) as error:
            self._notices.tell(say.UNAVAILABLE, f"cannot write the slices: {error}; tries again")
            wait_s = error.retry_after_s if isinstance(error, ClusterUnavailable) else 0.0
            return Pause(self._backoff.failed(wait_s), firm=True)

    def _view(self) -> View:
        view = self._seen.view()
        if view.deletions != self._deletions:
            self._deletions = view.deletions
            self._uid = None  # a Node that was removed and made again has another UID
        if view.breaks != self._breaks and self._clocks.monotonic() >= self._reoffer_due:
            self._breaks = view.breaks
            self._reoffer_due = self._clocks.monotonic() + REOFFER_S
            if self._writer.answers:
                self._writer.answers.clear()  # the server may be newer now: offer it every field once more
                self._inputs += 1
        return view

    def _relist(self) -> float:
        try:
            self._seen.replace(self._cluster.list_slices())
        except (ClusterUnavailable, Refused, OutOfDate) as error:
            log.warning("cannot list the slices: %s; tries again", error)
        return self._backoff.failed()

    def _settle(self, inventory: Inventory, view: View) -> Pause | None:
        """Make the cluster hold what `inventory` offers. Raises OutOfDate, ClusterUnavailable."""
        uid = self._owner()
        if uid is None:
            return Pause(self._node_backoff.failed(), firm=True)
        wanted = self._wanted(inventory, view, uid)
        steps = plan(wanted.slices, view.slices, self._writer.answers)
        if not steps:
            return self._done(wanted, inventory, view)
        if self._inputs == self._written:
            wait_s = self._pace.wait(self._clocks.monotonic())
            if wait_s > 0:
                return Pause(wait_s, firm=False)
            self._pace.did(self._clocks.monotonic())
            log.info("somebody altered or removed our slices; they are put right")
        try:
            self._writer.write(steps)
        except SliceRefusedError as error:
            return self._refusal(error, inventory)
        self._wrote(wanted)
        return Pause(0.0, firm=False)  # another look: somebody may have come between

    def _wrote(self, wanted: Wanted) -> None:
        self._written = self._inputs
        log.info("wrote the slices: %d devices in %d slices", len(wanted.homes), len(wanted.slices))
        if self._stirred:
            self._metrics.hot_plug.observe(max(0.0, self._clocks.boot() - self._stirred))
            self._stirred = 0.0

    def _owner(self) -> str | None:
        if self._uid is None:
            self._uid = self._cluster.node_uid()
            problem = f"node {self._node} is not in the cluster; waits for it (is NODE_NAME right?)"
            self._notices.tell(say.NODE_MISSING, problem if self._uid is None else "")
        if self._uid is not None:
            self._node_backoff.worked()
        return self._uid

    def _wanted(self, inventory: Inventory, view: View, uid: str) -> Wanted:
        wanted = slices(
            inventory,
            self._node,
            as_sent(view.slices, self._writer.answers),
            node_uid=uid,
            driver=self._driver,
            held=self._held,
            homes=self._homes,
            refused=self._refusals.reasons(inventory.devices),
            limits=self._limits,
        )
        self._homes = wanted.homes
        return wanted

    def _refusal(self, error: SliceRefusedError, inventory: Inventory) -> Pause:
        """Leave out the devices that the server names; without a name wait for a change, or some minutes."""
        if self._refusals.learn(error.refused, error.body, inventory.devices):
            return Pause(0.0, firm=False)
        name = error.body["metadata"]["name"]
        self._notices.tell(say.REFUSED, f"the slice {name} cannot be written: {error}")
        self._notices.send()
        return Pause(self._refused_backoff.failed(), firm=False)

    def _done(self, wanted: Wanted, inventory: Inventory, view: View) -> Pause | None:
        self._stirred = 0.0
        self._written = self._inputs
        self._metrics.pending(False)
        self._backoff.worked()
        self._refused_backoff.worked()
        self._settled = (self._inputs, view.revision)
        self._report(wanted, inventory)
        return self._events()

    def _report(self, wanted: Wanted, inventory: Inventory) -> None:
        fields = dropped(self._writer.answers)
        self._metrics.wanted(wanted, inventory.devices, len(fields))
        self._notices.tell(say.UNAVAILABLE, "")
        self._notices.tell(say.REFUSED, "")
        self._notices.tell(say.DROPPED, _fields_text(fields))
        self._notices.tell(say.OVERFLOW, _overflow_text(wanted.overflow))
        self._notices.tell_each(say.LEFT_OUT, [str(item) for item in wanted.left_out])

    def _tell_storage(self, inventory: Inventory) -> None:
        reason = f"no disk is offered, the machine's own disks are not known: {inventory.facts.reason}"
        self._notices.tell(say.STORAGE_UNKNOWN, reason if inventory.facts.storage == "unknown" else "")

    def _events(self) -> Pause | None:
        return Pause(self._backoff.failed(), firm=False) if self._notices.send() else None


def _fields_text(fields: tuple[str, ...]) -> str:
    if not fields:
        return ""
    sharing = any(field.endswith(".allowMultipleAllocations") for field in fields)
    advice = "; shareable devices are exclusive there (Kubernetes keeps it from 1.36 on)" if sharing else ""
    return f"the API server does not keep {', '.join(fields)}{advice}"


def _overflow_text(overflow: tuple[str, ...]) -> str:
    if not overflow:
        return ""
    return f"{len(overflow)} devices are too many and not published: {', '.join(overflow[:20])}"
