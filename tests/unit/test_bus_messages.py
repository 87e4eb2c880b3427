"""The documents on the bus, and the table of who says what to whom."""

from pathlib import Path

import pytest

from common.bus import TOPOLOGY, address, decode, encode
from common.errors import MachineError, RequestError
from common.inventory import SCHEMA, Facts, Inventory, InventoryMessage, Presence
from common.settings import SERVICES

INVENTORY = Inventory(SCHEMA, "n1", "b", "2026-01-01T00:00:00Z", Facts("observed"))


@pytest.mark.parametrize(
    "message",
    [
        InventoryMessage(SCHEMA, INVENTORY, stirred=1.5),
        InventoryMessage(SCHEMA, error="x"),
        Presence(SCHEMA, "b"),
    ],
)
def test_a_message_reads_back_as_it_was_sent(message: InventoryMessage | Presence) -> None:
    assert decode("inventory", encode(message), type(message)) == message


def test_the_schema_comes_first() -> None:
    assert encode(InventoryMessage(SCHEMA, error="x")).startswith(b'{"schema":1,')


def test_fields_of_a_later_version_are_ignored() -> None:
    assert decode("inventory", b'{"schema":1,"later":[1],"error":"x"}', InventoryMessage).error == "x"


def test_another_major_schema_is_refused_with_both_versions() -> None:
    with pytest.raises(
        MachineError, match=r"'inventory' has schema 2, this process reads schema 1: run all four"
    ):
        decode("inventory", b'{"schema":2,"inventory":"of another shape"}', InventoryMessage)


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"{}", b'{"schema":"1"}', b'{"schema":1,"error":7}'])
def test_what_is_no_message_is_refused_in_one_line(payload: bytes) -> None:
    with pytest.raises(MachineError, match="'inventory' cannot be read") as caught:
        decode("inventory", payload, InventoryMessage)
    assert "\n" not in str(caught.value)


def test_every_topic_has_one_sender_and_no_service_reads_its_own() -> None:
    assert len({topic.name for topic in TOPOLOGY}) == len(TOPOLOGY)
    for topic in TOPOLOGY:
        assert topic.sender in SERVICES
        assert topic.sender not in topic.readers
        assert set(topic.readers) <= set(SERVICES)


def test_no_topic_begins_with_the_name_of_another() -> None:
    # subscriptions match by prefix
    names = [topic.name for topic in TOPOLOGY]
    assert not [(a, b) for a in names for b in names if a != b and a.startswith(b)]


def test_a_folder_too_deep_for_a_socket_is_refused() -> None:
    with pytest.raises(RequestError, match="set LIKEN_RUN to a shorter path"):
        address(Path("/" + "x" * 120), "watcher")
