"""What `liken status` says is wrong."""

import pytest

from common.inventory import SCHEMA, ClaimPresence, DevicePresence, Facts, Inventory, PresenceState
from common.settings import read_settings
from services.console.hearing import Heard
from services.console.status import troubles

UID = "0b1f6a4e-54a3-4c1f-9d5e-2f6a3b1c9d00"


@pytest.mark.parametrize(
    ("namespace", "name", "called"), [("home", "stick", "home/stick"), ("", "", UID)], ids=["known", "unread"]
)
@pytest.mark.parametrize("state", ["absent", "withheld", "changed", "unknown"])
def test_a_claim_in_trouble_is_called_by_its_name_or_by_its_uid_where_none_is_known(
    namespace: str, name: str, called: str, state: PresenceState
) -> None:
    device = DevicePresence("n1", "usb-1-2-1-0", state, "2026-01-01T00:00:00Z", "so it is")
    heard = Heard(None, "", (ClaimPresence(namespace, name, UID, (device,)),), reconciler=True)
    told = [f"claim {called}: usb-1-2-1-0 is {state}: so it is"]
    assert troubles([], heard, read_settings(None, {})) == told


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        (Facts("roles"), []),
        (Facts("roles", "no disk goes by sdq"), ["no disk goes by sdq"]),
        (Facts("unknown", "why"), ["no disk is offered, as the mount table is unknown: why"]),
    ],
)
def test_what_is_wrong_with_the_storage_facts_is_told(facts: Facts, told: list[str]) -> None:
    heard = Heard(Inventory(SCHEMA, "n1", "b", "2026-01-01T00:00:00Z", facts), "", (), reconciler=True)
    assert troubles([], heard, read_settings(None, {})) == told
