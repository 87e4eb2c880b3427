"""The bus between the four processes: one XPUB socket per service, on a unix socket in one folder.

A state topic carries the whole truth of its sender; every new subscriber gets the last value by itself, so
the order of starts never matters. A tick topic carries a number and means: look again, now. A new subscriber
gets one tick by itself, for all that it may have missed while it was not connected.
"""

from common.bus.messages import Message, decode, encode
from common.bus.place import address
from common.bus.reader import BusReader
from common.bus.sender import BusSender
from common.bus.topology import HIGH_WATER_MARK, TOPOLOGY, Topic

__all__ = [
    "HIGH_WATER_MARK",
    "TOPOLOGY",
    "BusReader",
    "BusSender",
    "Message",
    "Topic",
    "address",
    "decode",
    "encode",
]
