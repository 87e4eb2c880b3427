"""The documents on the bus: JSON of the types in common.inventory."""

import functools
from collections.abc import Hashable
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from common.errors import MachineError
from common.inventory import SCHEMA

T = TypeVar("T")


class Message(NamedTuple):
    """What came in: the topic, and its last JSON document; None for a tick."""

    topic: str
    payload: bytes | None


class _Head(msgspec.Struct):
    schema: int


_HEAD = msgspec.json.Decoder(_Head)


def encode(message: msgspec.Struct) -> bytes:
    """The JSON document of a message; the same value gives the same bytes."""
    return msgspec.json.encode(message)


def decode(topic: str, payload: bytes, kind: type[T]) -> T:
    """The message in `payload`. Fields that this version does not know are ignored.

    Raises MachineError when the sender speaks another major schema or when it is no such message.
    """
    try:
        schema = _HEAD.decode(payload).schema
        if schema != SCHEMA:
            raise MachineError(
                f"the message {topic!r} has schema {schema}, this process reads schema {SCHEMA}: run all four"
                " services of this node in one version"
            )
        message: T = _decoder(cast(Hashable, kind)).decode(payload)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MachineError(
            f"the message {topic!r} cannot be read: {error}; run all four services of this node in one"
            " version"
        ) from error
    return message


@functools.lru_cache(maxsize=16)
def _decoder(kind: Hashable) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(cast(type[Any], kind))
