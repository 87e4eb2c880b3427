"""Devices that the API server refused although our own limits allow them."""

import re
from collections.abc import Sequence

from common.cluster import Raw, Refused
from common.inventory import Device
from services.publisher.slices import devices_of

_PLACE = re.compile(r"spec\.devices\[(\d+)\]")  # field paths of the API server's validation errors


class Refusals:
    """Remembers which form of which device was refused, and why; another form gets another chance."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Device, str]] = {}

    def reasons(self, devices: Sequence[Device]) -> dict[str, str]:
        """By device name, for those of `devices` that are still as they were refused."""
        if not self._known:
            return {}
        now = {device.name: device for device in devices}
        self._known = {name: why for name, why in self._known.items() if now.get(name) == why[0]}
        return {name: reason for name, (_, reason) in self._known.items()}

    def learn(self, error: Refused, body: Raw, devices: Sequence[Device]) -> bool:
        """Take note of the devices of `body` that the error names. Returns whether one is new."""
        names = [device["name"] for device in devices_of(body)]
        forms = {device.name: device for device in devices}
        news = {}
        for cause in error.causes:
            place = _PLACE.match(cause.field)
            name = names[int(place[1])] if place and int(place[1]) < len(names) else ""
            if name in forms and name not in self._known:
                news[name] = (forms[name], f"the API server refuses it: {cause.message} ({cause.field})")
        self._known.update(news)
        return bool(news)
