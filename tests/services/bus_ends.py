"""Ends of one bus over real ZeroMQ sockets, closed at the end of a test."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from common.bus import BusReader, BusSender, Message, decode
from common.inventory import SCHEMA, InventoryMessage

SENDER = """
import sys, time
from pathlib import Path
from common.bus import BusSender
from common.inventory import InventoryMessage
sender = BusSender(Path(sys.argv[1]), "watcher")
sender.state("inventory", InventoryMessage(1, error=sys.argv[2]))
print("up", flush=True)
sys.stdin.read()
"""


def words(text: str) -> InventoryMessage:
    return InventoryMessage(SCHEMA, error=text)


def told(messages: list[Message]) -> str:
    """What the newest inventory in `messages` says."""
    payloads = [message.payload for message in messages if message.topic == "inventory"]
    return decode("inventory", payloads[0] or b"", InventoryMessage).error if payloads else ""


class Bus:
    """Opens ends of one bus and closes them at the end of the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._close: list[Callable[[], None]] = []

    def sender(self) -> BusSender:
        sender = BusSender(self.folder, "watcher")
        self._close.append(sender.close)
        return sender

    def reader(self, *topics: str) -> BusReader:
        reader = BusReader(self.folder, "reconciler", topics or ("inventory", "stirred"))
        self._close.append(reader.close)
        return reader

    def process(self, text: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-c", SENDER, str(self.folder), text]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._close.append(lambda: end(process))
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        return process

    def close(self) -> None:
        for close in reversed(self._close):
            close()


def end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.communicate()
