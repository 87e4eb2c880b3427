"""What `liken explain` says of a prepared claim."""

from common.claims import Entry
from common.hardware import explain_words as words
from common.hardware.explain import Answer, State, explain_device
from common.hardware.explain_lookup import Lookup
from common.inventory import DeviceNode, DevicePresence
from common.prepared import look, open_prepared
from services.console.hardware import Opened

_NOW: dict[str, tuple[State, str]] = {
    "present": ("present", "is there, and containers get its nodes"),
    "absent": ("absent", "is away: a container with the claim cannot start until it is back"),
    "withheld": ("withheld", "is there but not to be had: a container with the claim cannot start"),
    "changed": ("changed", "is not what was claimed: a container with the claim cannot start"),
    "unknown": ("unknown", "cannot be looked at now; what containers get stays as it is"),
}


def explain_claim(what: str, machine: Opened, lookup: Lookup) -> list[Answer]:
    """One answer per device of each prepared claim called `what`: NAME, NAMESPACE/NAME or UID; [] for none.

    The name or bus address of a claimed device that is away counts too: only its claim still knows it.
    Raises MachineError when the records cannot be read.
    """
    answers = []
    for claimed in look(open_prepared(machine.settings, machine.tree, machine.machine)):
        whole = what in _names(claimed.entry)
        answers += [
            _answer(claimed.entry, one, claimed.spec.get(one.device, ()), lookup)
            for one in claimed.devices
            if whole or what in _names_of_device(claimed.entry, one.device)
        ]
    return answers


def _names_of_device(entry: Entry, device: str) -> set[str]:
    results = entry.record.results if entry.record is not None else ()
    return {device, *(result.address for result in results if result.device == device)}


def _names(entry: Entry) -> set[str]:
    if entry.record is None:
        return {entry.uid}
    return {entry.uid, entry.record.name, f"{entry.record.namespace}/{entry.record.name}"}


def _answer(entry: Entry, now: DevicePresence, spec: tuple[DeviceNode, ...], lookup: Lookup) -> Answer:
    """`spec` is what the CDI spec says now; the moment is that of its last change."""
    record = entry.record
    claim = f"{record.namespace}/{record.name}" if record is not None else entry.uid
    state, phrase = _NOW[now.state]
    published = [device for device in lookup.facts.inventory.devices if device.name == now.device]
    places = [
        result for result in (record.results if record is not None else ()) if result.device == now.device
    ]
    told = [text for text in (now.reason, f"since {now.since}" if now.since else "") if text]
    reason = f" ({', '.join(told)})" if told else ""
    said = explain_device(lookup.facts, published[0]) if published else None
    return Answer(
        subject=f"{claim} {now.device}",
        state=state,
        rule=now.state,
        why=f"the claim {claim} holds {now.device}, which {phrase}{reason}",
        hardware=f"{places[0].bus} {places[0].address}" if places else "",
        driver=said.driver if said is not None else "",
        name=said.name if said is not None else "",
        devices=(now.device,),
        nodes=tuple(node.path for node in spec),
        advice=(words.CLAIM_ADVICE[now.state],) if now.state in words.CLAIM_ADVICE else (),
    )
