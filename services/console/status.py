"""`liken status` and `liken down`: what `liken up` runs."""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from common.inventory import Inventory
from common.settings import Settings
from services.console.claims import called
from services.console.control import Process, processes, stop
from services.console.hearing import Heard, hear
from services.console.output import Format, print_as, print_table, say
from services.console.state import State


def down(folder: Path | None) -> None:
    """End the four and their supervisor; nothing to end is fine."""
    state = State(folder)
    say(f"stopped; state {state.folder}" if stop(state) else f"nothing is up with the state {state.folder}")


def status(folder: Path | None, output: Format) -> None:
    """Processes, last inventory, claims, troubles."""
    state = State(folder)
    settings = state.settings()
    in_pod = settings.cluster == "kubernetes" and state.holder() is None
    if not in_pod:
        state.require_up()
    running = [] if in_pod else processes(state)
    heard = hear(settings)
    value = {
        "state": "" if in_pod else str(state.folder),
        "supervisor": state.holder(),
        "machine": "" if in_pod else state.read().source or "/",
        "processes": [process._asdict() for process in running],
        "inventory": _inventory(heard),
        "claims": heard.claims,
        "troubles": troubles(running, heard, settings),
    }
    names = [process.name for process in running]
    print_as(output, value, names=lambda: names, table=lambda _wide: _print(value, running, heard))


def troubles(running: list[Process], heard: Heard, settings: Settings) -> list[str]:
    """Everything that keeps hardware from being offered or delivered, one line each."""
    found = [
        f"the {each.name} does not run ({each.state}): look at its log" for each in running if not each.pid
    ]
    if heard.error:
        found.append(f"there is no inventory: {heard.error}")
    if not heard.reconciler:
        found.append("the reconciler says nothing: look at its log")
    if heard.inventory:
        found += _left_out(heard.inventory, settings)
        facts = heard.inventory.facts
        if facts.storage == "unknown":
            found.append(f"no disk is offered, as the mount table is unknown: {facts.reason}")
        elif facts.reason:
            found.append(facts.reason)
    for claim in heard.claims:
        for device in claim.devices:
            if device.state != "present":
                name = called(claim.namespace, claim.name, claim.uid)
                found.append(f"claim {name}: {device.device} is {device.state}: {device.reason}")
    return found


def _left_out(inventory: Inventory, settings: Settings) -> list[str]:
    from services.publisher.slices import slices

    wanted = slices(inventory, inventory.node, driver=settings.driver)
    lines = [
        f"{each.device} is published without {each.attribute}: {each.reason}"
        if each.attribute
        else f"{each.device} is not published: {each.reason}"
        for each in wanted.left_out
    ]
    return lines + [
        f"{name} is not published: more devices than one node can offer" for name in wanted.overflow
    ]


def _inventory(heard: Heard) -> dict[str, Any]:
    if heard.inventory is None:
        return {"error": heard.error}
    inventory = heard.inventory
    return {
        "taken": inventory.taken,
        "age_s": round(_age_s(inventory.taken), 1),
        "devices": len(inventory.devices),
        "withheld": len(inventory.withheld),
        "unclaimed": len(inventory.unclaimed),
        "storage": inventory.facts.storage,
        "error": heard.error,
    }


def _age_s(taken: str) -> float:
    return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(taken)).total_seconds())


def _print(value: dict[str, Any], running: list[Process], heard: Heard) -> None:
    if running:
        say(f"state      {value['state']} (supervisor {value['supervisor']})")
        say(f"machine    {'this one' if value['machine'] == '/' else 'played from ' + value['machine']}")
    inventory = value["inventory"]
    if heard.inventory:
        say(
            f"inventory  {inventory['age_s']} s old: {inventory['devices']} devices,"
            f" {inventory['withheld']} nodes withheld, {inventory['unclaimed']} without driver;"
            f" storage {inventory['storage']}"
        )
    states = Counter(device.state for claim in heard.claims for device in claim.devices)
    counted = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    say(f"claims     {len(heard.claims)} prepared" + (f": devices {counted}" if counted else ""))
    say("")
    rows = [
        [each.name, each.state, str(each.pid or ""), _duration(each.uptime_s), str(each.restarts)]
        for each in running
    ]
    empty = "The processes are containers of this pod: kubectl shows them."
    print_table(["PROCESS", "STATE", "PID", "UPTIME", "RESTARTS"], rows, empty)
    for trouble in value["troubles"]:
        say(f"! {trouble}")


def _duration(seconds: int) -> str:
    if seconds < 120:
        return f"{seconds}s"
    if seconds < 7200:
        return f"{seconds // 60}m"
    return f"{seconds // 3600}h{seconds % 3600 // 60:02}m"
