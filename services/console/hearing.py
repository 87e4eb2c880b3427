"""What the running services say on the bus, heard once."""

import time
from typing import NamedTuple

from common.bus import BusReader, decode
from common.inventory import ClaimPresence, Inventory, InventoryMessage, Presence
from common.settings import Settings

HEAR_S = 2.0  # a state topic is sent to each new listener at once; a service that just starts takes a second


class Heard(NamedTuple):
    """`inventory` is None and `error` says why when the watcher has none, or has said nothing."""

    inventory: Inventory | None
    error: str
    claims: tuple[ClaimPresence, ...]
    reconciler: bool  # whether it said anything


def hear(settings: Settings, within_s: float = HEAR_S) -> Heard:
    """The last inventory and presence. What does not come within `within_s` seconds is told as missing."""
    reader = BusReader(settings.bus_dir, None, ("inventory", "presence"))
    said: dict[str, bytes] = {}
    deadline = time.monotonic() + within_s
    try:
        while len(said) < 2 and (left := deadline - time.monotonic()) > 0:
            said |= {message.topic: message.payload for message in reader.wait(left) if message.payload}
    finally:
        reader.close()
    presence = decode("presence", said["presence"], Presence) if "presence" in said else None
    claims = presence.claims if presence else ()
    if "inventory" not in said:
        return Heard(None, "the watcher says nothing: look at its log", claims, presence is not None)
    message = decode("inventory", said["inventory"], InventoryMessage)
    return Heard(message.inventory, message.error, claims, presence is not None)
