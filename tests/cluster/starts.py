"""Pods that start, one every second, while something happens to the driver; and how long each took."""

import threading
from collections.abc import Callable

from tests.cluster.api import Api
from tests.cluster.control_plane import ControlPlane
from tests.cluster.objects import NAMESPACE, claim, pod
from tests.cluster.watching import Witness
from tests.waiting import eventually

PREFIX = "start-"
AFTERWARDS = 3  # pods that only the last instance can have served
UNDISTURBED = 3
WAITS_AT_MOST_S = 5.0  # a pod that starts while the driver is handed over
Delays = dict[str, float]


def start(api: Api, name: str) -> None:
    """A pod with a claim of its own on the shareable render node."""
    api.create(claim(name, "gpu-render"))
    api.create(pod(name, claim=name))


def delays_of_pods_while(plane: ControlPlane, act: Callable[[], None]) -> Delays:
    """Start pods before, during and after `act`, one every second; seconds from creation to running by pod.

    The first UNDISTURBED pods run before `act` begins: what a start takes on this machine now.
    """
    witness = Witness(plane, "Pod", fieldSelector=f"metadata.namespace={NAMESPACE}")
    done = threading.Event()
    names: list[str] = []
    starter = threading.Thread(target=_start_every_second, args=(plane.api, names, done))
    starter.start()
    try:
        eventually(lambda: len(_delays(witness, names)) >= UNDISTURBED, 120, "pods run", step_s=0.05)
        act()
    finally:
        done.set()
        starter.join()
    eventually(lambda: _delays(witness, names).keys() == set(names), 120, "all pods run", step_s=0.1)
    witness.close()
    return _delays(witness, names)


def failures(api: Api) -> list[str]:
    """What went wrong with those pods, by their events."""
    found = api.list("Event", NAMESPACE, fieldSelector="type=Warning")
    return [
        event["message"]
        for event in found
        if event["reason"].startswith("Failed") and event["involvedObject"]["name"].startswith(PREFIX)
    ]


def longest_wait_s(delays: Delays) -> float:
    """How much longer the slowest pod took than one that nothing disturbed."""
    undisturbed = sorted(list(delays.values())[:UNDISTURBED])
    return max(delays.values()) - undisturbed[UNDISTURBED // 2]


def described(delays: Delays) -> str:
    each = ", ".join(f"{delay:.1f}" for delay in delays.values())
    return f"{len(delays)} pods started, the first {UNDISTURBED} undisturbed, in s: {each}"


def _start_every_second(api: Api, names: list[str], done: threading.Event) -> None:
    pause = threading.Event()
    left = AFTERWARDS
    while left:
        name = f"{PREFIX}{len(names)}"
        start(api, name)
        names.append(name)
        left -= done.is_set()
        pause.wait(1.0)


def _delays(witness: Witness, names: list[str]) -> Delays:
    delays = {}
    for name in names:
        seen = [one for one in list(witness.seen) if one.object["metadata"]["name"] == name]
        runs = [one.at for one in seen if one.object["status"].get("phase") == "Running"]
        if runs:
            delays[name] = runs[0] - seen[0].at
    return delays
