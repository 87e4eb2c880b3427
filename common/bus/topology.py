"""Who says what to whom on the bus, and how often at the least."""

from typing import Literal, NamedTuple

from common.settings import Service


class Topic(NamedTuple):
    """One row of the topology: who sends a topic, who listens, how often it comes at the least."""

    name: str
    kind: Literal["state", "tick"]
    sender: Service
    readers: tuple[Service, ...]
    at_least_every_s: float | None  # None: only when something happened


TOPOLOGY: tuple[Topic, ...] = (
    Topic("inventory", "state", "watcher", ("publisher", "plugin", "reconciler"), 60.0),
    Topic("stirred", "tick", "watcher", ("reconciler",), None),
    Topic("presence", "state", "reconciler", ("publisher", "plugin"), None),
    Topic("claims", "tick", "plugin", ("reconciler",), None),
)
TOPICS = {topic.name: topic for topic in TOPOLOGY}

HIGH_WATER_MARK = 256  # messages, on each side: seconds of ticks at 100 per second, some MB of inventories
