"""One pass: every prepared claim is compared with the hardware of now, and what is wrong is written anew."""

import logging
import time
from collections.abc import Callable

from common.claims import Entry, Record, is_uid
from common.errors import MachineError
from common.hardware.storage import StorageFacts
from common.hardware.tree import TreeError
from common.inventory import SCHEMA, ClaimPresence, DevicePresence, Presence
from common.locks import LockTimeoutError
from common.logs import claim_log
from common.prepared import Prepared, claim_presence, device_presence, facts_for, moment, unknown_states
from common.projection import DeviceState, Projection, Seen
from services.reconciler.metrics import ReconcilerMetrics
from services.reconciler.silent import by_usbfs

log = logging.getLogger(__name__)

Found = dict[str, ClaimPresence | None]  # by UID; None: not prepared any more

ASK_EVERY_S = 0.005  # a pass over 200 claims takes some 50 ms, as long as a removal may take to be safe
AT_ONCE = 8  # wrong claims that are repaired before another gets the lock; a claim costs some 0.5 ms
LOCK_S = 2.0  # whoever holds the lock longer hangs; the next pass tries again


class Reconciler:
    """Runs passes. A pass that finds everything right writes nothing and takes no lock.

    The comparison needs no lock: what differs is looked at again under the lock, with the hardware of that
    moment, before it is written.
    """

    def __init__(
        self,
        prepared: Prepared,
        metrics: ReconcilerMetrics,
        now: Callable[[], float] = time.time,
        lock_s: float = LOCK_S,
    ) -> None:
        """`now` gives seconds since 1970; `lock_s` is how long a claim waits for the lock."""
        self._prepared = prepared
        self._metrics = metrics
        self._now = now
        self._lock_s = lock_s
        self._last: dict[str, ClaimPresence] = {}
        self._entries: dict[str, Entry] = {}
        self._named: dict[str, Record | None] = {}  # of the pass that runs, for what the log has to name
        self._complaints: dict[str, str] = {}  # what the log was told, while it lasts
        self._failing: set[str] = set()  # of the pass that runs
        self._looked = False
        self._write = False
        self._backstop = False
        self.failed = False  # whether the last pass left something undone

    def run(
        self,
        *,
        write: bool,
        backstop: bool = False,
        records_only: bool = False,
        stirred: Callable[[], bool] = lambda: False,
    ) -> Presence:
        """One pass. `write`: False while another reconciler is active. `backstop`: no event caused it.

        `records_only`: only records changed since the last pass, so only those are looked at; the hardware
        tells of its changes itself. `stirred` is asked now and then during the pass: when hardware changes
        meanwhile, what is gone by now goes first again. Raises MachineError when the records cannot be
        listed: then nothing is known and nothing is touched.
        """
        self._write, self._backstop, self.failed, self._failing = write, backstop, False, set()
        entries = self._prepared.store.entries()
        found = self._unchanged(entries) if records_only else {}
        self._named = {entry.uid: entry.record for entry in entries}
        self._look_at([entry for entry in entries if entry.uid not in found], found, stirred)
        if self._write:
            self._remove_orphans({entry.uid for entry in entries})
        claims = [claim for entry in entries if (claim := found[entry.uid]) is not None]
        self._last = {claim.uid: claim for claim in claims}
        self._entries = {entry.uid: entry for entry in entries}
        self._looked = True
        if not records_only:
            told = self._complaints.items()
            self._complaints = {uid: text for uid, text in told if uid in self._failing}
        return Presence(SCHEMA, self._prepared.store.boot, tuple(claims))

    def _unchanged(self, entries: list[Entry]) -> Found:
        known = (entry.uid for entry in entries if entry is self._entries.get(entry.uid))
        return {uid: self._last[uid] for uid in known if uid in self._last}

    def _look_at(self, entries: list[Entry], found: Found, stirred: Callable[[], bool]) -> None:
        """Fill `found` for these claims. With one listing per bus, what is gone is safe before all others."""
        found |= self._claims(self._gone(entries), {}, None)
        rest = [entry for entry in entries if entry.uid not in found]
        seen: Seen = {}
        facts = facts_for(self._prepared.slots, rest)
        asked_at = time.monotonic()
        for entry in rest:
            if time.monotonic() - asked_at >= ASK_EVERY_S:
                asked_at = time.monotonic()
                if stirred():
                    found |= self._claims(self._gone(entries), {}, None)
                    seen, facts = {}, facts_for(self._prepared.slots, rest)
            if entry.uid not in found:
                found[entry.uid] = self._claim(entry, seen, facts)

    def _gone(self, entries: list[Entry]) -> list[Entry]:
        """The claims of which a slot is empty."""
        listed: dict[str, frozenset[str] | None] = {}
        return [
            entry
            for entry in entries
            if entry.record is not None
            and any(self._is_gone((one.bus, one.address), listed) for one in entry.record.results)
        ]

    def _is_gone(self, place: tuple[str, str], listed: dict[str, frozenset[str] | None]) -> bool:
        bus, address = place
        if bus not in listed:
            try:
                listed[bus] = self._prepared.slots.addresses(bus)
            except TreeError:
                listed[bus] = None
        addresses = listed[bus]
        return addresses is not None and address not in addresses

    def _claim(self, entry: Entry, seen: Seen, facts: StorageFacts | None) -> ClaimPresence | None:
        """The states of one claim, its spec made true. None when it is not prepared any more."""
        return self._claims([entry], seen, facts)[entry.uid]

    def _claims(self, entries: list[Entry], seen: Seen, facts: StorageFacts | None) -> Found:
        """As `_claim`, for several claims: those that are wrong do not wait for the lock one by one."""
        found: Found = {}
        for first in range(0, len(entries), AT_ONCE):  # the first are right before the last are looked at
            found |= self._some_claims(entries[first : first + AT_ONCE], seen, facts)
        return found

    def _some_claims(self, entries: list[Entry], seen: Seen, facts: StorageFacts | None) -> Found:
        found: Found = {}
        projections: dict[str, Projection] = {}
        for entry in entries:
            uid = entry.uid
            try:
                projections[uid] = self._prepared.projector.compare(entry, seen, facts)
            except MachineError as error:
                self._fail(uid, error)
                text = str(error)
                found[uid] = self._unknown(uid, self._last.get(uid), text) or self._never_seen(entry, text)
        # the states of a claim that could not be repaired are true all the same
        projections |= self._repair([uid for uid, projection in projections.items() if projection.wrote])
        for uid, projection in projections.items():
            now = projection.entry
            found[uid] = claim_presence(now, self._devices(uid, projection)) if now else None
        return found

    def _repair(self, uids: list[str]) -> dict[str, Projection]:
        """Make these specs true, as far as this process writes and gets the lock; what came of it."""
        repaired: dict[str, Projection] = {}
        if not uids or not self._write:
            return repaired
        try:
            with self._prepared.store.lock(self._lock_s) as waited_s:
                self._metrics.lock_wait.observe(waited_s)
                repaired = self._project(uids)
        except MachineError as error:
            for uid in uids:
                self._fail(uid, error)
        for uid, projection in repaired.items():
            self._tell(uid, projection)
        return repaired

    def _project(self, uids: list[str]) -> dict[str, Projection]:
        """Needs the lock. What cannot be written holds up none of the others."""
        projected: dict[str, Projection] = {}
        for uid in uids:
            try:
                before = self._prepared.specs.nodes(uid) if self._backstop else {}
                projected[uid] = self._prepared.projector.project(uid)
                if self._backstop and projected[uid].wrote:
                    after = self._prepared.specs.nodes(uid)
                    if not by_usbfs(before, after, projected[uid]):
                        self._metrics.backstop_repairs.inc()
            except MachineError as error:
                self._fail(uid, error)
        return projected

    def _tell(self, uid: str, projection: Projection) -> None:
        if not projection.wrote:
            return
        self._metrics.rewrites.labels(projection.wrote).inc()
        record = projection.entry.record if projection.entry else None
        told = claim_log(log, record.namespace if record else "", record.name if record else "", uid)
        told.info("made right: %s%s", projection.wrote, _words(projection.devices))

    def _remove_orphans(self, uids: set[str]) -> None:
        """Specs with our prefix that no record and no record set aside belongs to."""
        for identifier in sorted(set(self._prepared.specs.identifiers()) - uids):
            try:
                if is_uid(identifier):
                    # a claim prepared since this pass listed the records: it has no need to wait for the lock
                    if self._prepared.store.read(identifier) is None:
                        self._repair([identifier])
                else:
                    self._remove_stranger(identifier)
            except MachineError as error:
                self._fail(identifier, error)

    def _remove_stranger(self, identifier: str) -> None:
        with self._prepared.store.lock(self._lock_s):
            if self._prepared.specs.remove_orphan(identifier):
                self._metrics.rewrites.labels("orphan").inc()
                log.info("removed the spec %r, which belongs to no claim", identifier)

    def _fail(self, uid: str, error: MachineError) -> None:
        self.failed = True
        self._failing.add(uid)
        self._metrics.failures.inc()
        if isinstance(error, LockTimeoutError):
            self._write = False  # whoever hangs on the lock would hold up every further claim as long
        if self._complaints.get(uid) != str(error):
            self._complaints[uid] = str(error)
            record = self._named.get(uid)
            told = claim_log(log, record.namespace if record else "", record.name if record else "", uid)
            told.error("%s", error)

    def blind(self, reason: str) -> Presence | None:
        """What is known while the records cannot be listed: all that was prepared, with unknown state.

        None before the first pass: then nobody knows what is prepared.
        """
        if not self._looked:
            return None
        unknown = (self._unknown(uid, claim, reason) for uid, claim in sorted(self._last.items()))
        claims = tuple(claim for claim in unknown if claim is not None)
        self._last = {claim.uid: claim for claim in claims}
        self._entries = {}  # the next pass looks at everything
        return Presence(SCHEMA, self._prepared.store.boot, claims)

    def _unknown(self, uid: str, last: ClaimPresence | None, reason: str) -> ClaimPresence | None:
        if last is None:
            return None
        now = moment(self._now())
        devices = tuple(
            DevicePresence(
                one.pool, one.device, "unknown", one.since if one.state == "unknown" else now, reason
            )
            for one in last.devices
        )
        return ClaimPresence(last.namespace, last.name, uid, devices)

    def _never_seen(self, entry: Entry, reason: str) -> ClaimPresence:
        now = moment(self._now())
        states = unknown_states(entry.record, reason)
        return claim_presence(entry, tuple(device_presence(one, now) for one in states))

    def _devices(self, uid: str, projection: Projection) -> tuple[DevicePresence, ...]:
        before = {(one.pool, one.device): one for one in self._last[uid].devices} if uid in self._last else {}
        # a state that this process did not see begin has lasted since the spec got its content, at the least
        begun = None if projection.wrote else self._prepared.specs.changed_at(uid)
        since = moment(self._now() if uid in self._last or begun is None else begun)
        devices = []
        for one in projection.devices:
            last = before.get((one.pool, one.device))
            lasts = last is not None and last.state == one.state
            devices.append(device_presence(one, last.since if last and lasts else since))
        return tuple(devices)


def _words(devices: tuple[DeviceState, ...]) -> str:
    told = [f"; {one.device} is {one.state}{f' ({one.reason})' if one.reason else ''}" for one in devices]
    return "".join(told)
