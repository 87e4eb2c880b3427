"""What `liken explain` says of a prepared claim."""

from common.cdi import Specs
from common.claims import Entry, Store
from common.hardware import explain_words as words
from common.hardware.explain import Answer, State, explain_device
from common.hardware.explain_lookup import Lookup
from common.projection import DeviceState, Projector
from common.slots import SysfsSlots
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

    Raises MachineError when the records cannot be read.
    """
    settings = machine.settings
    store = Store(settings.plugin_dir, machine.tree.text("proc/sys/kernel/random/boot_id"))
    projector = Projector(
        store, Specs(settings.cdi, settings.driver), SysfsSlots(machine.tree, machine.machine)
    )
    answers = []
    for entry in store.entries():
        if what in _names(entry):
            states = projector.compare(entry, {}).devices
            answers += [_answer(entry, state, lookup) for state in states]
    return answers


def _names(entry: Entry) -> set[str]:
    if entry.record is None:
        return {entry.uid}
    return {entry.uid, entry.record.name, f"{entry.record.namespace}/{entry.record.name}"}


def _answer(entry: Entry, now: DeviceState, lookup: Lookup) -> Answer:
    record = entry.record
    claim = f"{record.namespace}/{record.name}" if record is not None else entry.uid
    state, phrase = _NOW[now.state]
    published = [device for device in lookup.facts.inventory.devices if device.name == now.device]
    places = [
        result for result in (record.results if record is not None else ()) if result.device == now.device
    ]
    reason = f" ({now.reason})" if now.reason else ""
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
        nodes=tuple(node.path for node in now.nodes),
        advice=(words.CLAIM_ADVICE[now.state],) if now.state in words.CLAIM_ADVICE else (),
    )
