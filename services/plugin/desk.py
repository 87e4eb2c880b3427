"""The work of prepare and unprepare, one claim at a time, in the thread of a pool."""

import logging
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from common.cdi import Specs
from common.claims import WHEN_BACK, Entry, Record, Result, Store, is_uid
from common.errors import MachineError, RequestError
from common.hardware.tree import TreeError
from common.inventory import SCHEMA, Device
from common.logs import claim_log
from common.projection import Projector, Seen, state_of
from common.slots import Slots, Standing
from services.plugin.allocation import Wanted, base_request, wanted
from services.plugin.calls import CallTime, ClaimName
from services.plugin.holders import Holding, holdings, is_held, refusal, usb_devices_of
from services.plugin.offers import Offers
from services.plugin.rebind import Rebinder
from services.plugin.turns import Turn, Turns

log = logging.getLogger(__name__)

READ_S = 15.0  # for the claim; far below the kubelet's 45 s, which its worker would wait with us


class ClaimReader(Protocol):
    """The part of the cluster that prepare needs; unprepare needs none."""

    def claim(self, namespace: str, name: str, timeout_s: float) -> dict[str, Any]:
        """The ResourceClaim. Raises RequestError or MachineError in words."""


class Prepared(NamedTuple):
    """One device of a prepared claim, as the kubelet is told of it."""

    request: str
    pool: str
    device: str
    cdi_id: str
    share_id: str


class Desk:
    """Prepares and unprepares claims. Safe in many threads: the lock of the store puts writers in a row."""

    def __init__(
        self,
        *,
        claims: ClaimReader,
        store: Store,
        specs: Specs,
        slots: Slots,
        offers: Offers,
        rebinder: Rebinder,
        driver: str,
        pool: str,
        waited: Callable[[float], None],
    ) -> None:
        """`waited` is told the seconds that each claim waited for the lock."""
        self._claims = claims
        self._store = store
        self._specs = specs
        self._slots = slots
        self._offers = offers
        self._rebinder = rebinder
        self._driver = driver
        self._pool = pool
        self._turns = Turns(store.lock, self._held, waited)
        self._projector = Projector(store, specs, slots)

    @property
    def waiting(self) -> int:
        """How many claims wait for the lock of the records now."""
        return self._turns.waiting

    def prepare(self, asked: ClaimName, call: CallTime) -> tuple[Prepared, ...]:
        """Promise the claim's devices: record, spec, CDI names. The same again for a claim that is prepared.

        Raises RequestError or MachineError with a sentence for the pod's events; the kubelet tries again.
        """
        asked.check()
        claim = self._claims.claim(asked.namespace, asked.name, min(call.left_s(), READ_S))
        ours = wanted(claim, asked, self._driver, self._pool)
        known = self._known(asked.uid, ours, call)

        def work(turn: Turn) -> Record:
            seen: Seen = {}
            record = self._existing(asked.uid) or self._promise(asked, ours, known, turn, seen)
            self._projector.project(asked.uid, seen)
            return record

        record = self._turns.do(work, call)
        return tuple(self._answer(asked.uid, result) for result in record.results)

    def unprepare(self, asked: ClaimName, call: CallTime) -> None:
        """Forget the claim: spec first, then the record, which is what holds the devices.

        Needs neither the cluster nor the hardware. A claim that nobody prepared is fine. Raises MachineError.
        """
        if not is_uid(asked.uid):
            return  # nothing can have been prepared under it
        devices = usb_devices_of(self._results(asked))
        self._give_back(asked, devices)

        def work(turn: Turn) -> None:
            self._specs.remove(asked.uid)
            self._store.remove(asked.uid)
            turn.holds(asked.uid, [])

        self._turns.do(work, call)
        # two last claims that end at once each saw the other before; with nothing unbound this does nothing
        self._give_back(asked, devices)

    def _known(self, uid: str, ours: tuple[Wanted, ...], call: CallTime) -> dict[str, Device]:
        names = [one.device for one in ours]
        if not self._offers.has(names):
            entry = self._store.read(uid)
            if entry is not None and entry.record is not None:
                return {}  # what was promised is promised, and needs no walk
        return self._offers.find(names, call)

    def _existing(self, uid: str) -> Record | None:
        entry = self._store.read(uid)
        if entry is not None and entry.form == "newer":
            raise MachineError("a newer version of liken prepared this claim; that version has to answer")
        if entry is not None and entry.form == "unreadable":
            raise MachineError(
                "the disk does not give the record of this claim now; its kernel log says more"
            )
        return entry.record if entry is not None else None

    def _promise(
        self,
        asked: ClaimName,
        ours: tuple[Wanted, ...],
        known: dict[str, Device],
        turn: Turn,
        seen: Seen,
    ) -> Record:
        held = turn.held_by_others(asked.uid)
        results = tuple(self._result(one, known.get(one.device), held, seen) for one in ours)
        record = Record(SCHEMA, asked.namespace, asked.name, asked.uid, results)
        self._store.write(record)
        turn.holds(asked.uid, self._holdings([Entry(asked.uid, "readable", record)]))
        return record

    def _result(self, one: Wanted, device: Device | None, held: list[Holding], seen: Seen) -> Result:
        if device is None:
            raise MachineError(f"this machine has no device {one.device} now; {WHEN_BACK}")
        place = (device.bus, device.address)
        standing = seen.get(place) or self._slots.inspect(*place)
        if isinstance(standing, TreeError):
            raise standing
        seen[place] = standing
        slot = standing.slot
        offered = () if slot.busy else slot.devices
        now = next((found for found in offered if found.variant == device.variant), None)
        result = Result(
            one.request,
            one.pool,
            one.device,
            *place,
            physicalPath=slot.physical_path,
            variant=device.variant,
            kinds=now.kinds if now else (),
            shareID=one.share_id,
            adminAccess=one.admin,
        )
        if now is None:
            raise MachineError(f"{one.device} cannot be given now: {_why_not(result, standing)}")
        if words := refusal(result, now.shareable, held):
            raise RequestError(words)
        return result

    def _holdings(self, entries: Iterable[Entry]) -> list[Holding]:
        return holdings(entries, self._specs, self._offers.place)

    def _held(self) -> list[Holding]:
        return self._holdings(self._store.entries())

    def _results(self, asked: ClaimName) -> tuple[Result, ...]:
        try:
            entry = self._store.read(asked.uid)
        except MachineError as error:
            claim_log(log, *asked).warning("%s; it is removed all the same", error)
            return ()
        return entry.record.results if entry is not None and entry.record is not None else ()

    def _give_back(self, asked: ClaimName, devices: list[str]) -> None:
        """Bind the drivers of those USB devices again that no other claim holds. Never raises."""
        try:
            unbound = [device for device in devices if "" in self._slots.drivers(device).values()]
            held = [one for one in self._held() if one.entry.uid != asked.uid] if unbound else []
        except MachineError as error:
            claim_log(log, *asked).warning("no driver is bound again: %s", error)
            return
        self._rebinder.rebind([device for device in unbound if not is_held(device, held)])

    def _answer(self, uid: str, result: Result) -> Prepared:
        cdi_id = self._specs.device_id(uid, result.device)
        return Prepared(base_request(result.request), result.pool, result.device, cdi_id, result.shareID)


def _why_not(result: Result, standing: Standing) -> str:
    found = state_of(result, standing)
    if found.state == "present":  # what a claim that is prepared already would keep
        return "a program holds it through usbfs"
    return found.reason if standing.slot.exists else f"{found.reason}; {WHEN_BACK}"
