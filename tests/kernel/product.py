"""The product inside a guest: started, claimed from, looked at."""

import json
import uuid
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from tests.kernel.machine import Guest, GuestError
from tests.kernel.provision import REPOSITORY
from tests.waiting import eventually

STATE = "/run/liken"
LIKEN = f"{REPOSITORY}/.venv/bin/liken"
DRIVER = "liken.sh"
NODE = "guest"
SERVICES = ("watcher", "publisher", "plugin", "reconciler")
SETTLED_S = 1.0  # LIKEN_SETTLE's default
START_S = 180.0  # four Python processes on an emulated processor
# Bounds that an emulated and busy processor keeps, and a lost event does not: the reconciler's backstop comes
# after 30 s, and the waits' own timeouts are longer still.
SAFE_S = 5.0  # until a spec names a node no longer that is gone or in use
SLICE_S = SETTLED_S + 15.0  # until the slice lists what is there
# What is promised of a real processor; an emulated and busy one has to keep it once in so many tries.
WITHHELD_S = 0.1  # until the spec of a disk that came into use is withheld
LISTED_S = SETTLED_S + 1.0  # until the slice tells of a change
TRIES = 3
BACKSTOP_REPAIRS = "liken_backstop_repairs_total"
RECONCILER_METRICS = "http://127.0.0.1:9203/metrics"
SIGKILL = 9


@dataclass(frozen=True)
class Claim:
    """A prepared claim. `ids` are the CDI names by device."""

    name: str
    uid: str
    devices: tuple[str, ...]
    ids: dict[str, list[str]]

    @property
    def reference(self) -> dict[str, str]:
        return {"namespace": "default", "name": self.name, "uid": self.uid}


class RefusedError(Exception):
    """The plugin refused to prepare; the text is its own."""


class Product:
    """One `liken up` in a guest, with a local cluster; the test plays scheduler and kubelet."""

    def __init__(self, guest: Guest, state: str = STATE) -> None:
        self.guest = guest
        self.state = state
        self._pid = 0
        self._claims: dict[str, Claim] = {}  # prepared and not released, by UID

    def up(self, prefix: tuple[str, ...] = (), **environment: str) -> None:
        """Start the four; `prefix` is a program that starts them, such as unshare."""
        words = [*prefix, LIKEN, "up", "--state", self.state]
        self._pid = self.guest.call(
            "start", words, f"{self.state}.log", environment={"NODE_NAME": NODE, **environment}
        )

    def observe(self) -> None:
        """Start the guest's witness on this state's folders; from now on the waits look there."""
        places = (f"{self.state}/run", f"{self.state}/cdi", f"{self.state}/cluster/slices")
        self.guest.call("observe", *places)

    def down(self) -> None:
        self.guest.run(LIKEN, "down", "--state", self.state)

    def restart(self, prefix: tuple[str, ...] = (), **environment: str) -> None:
        """End the four and start them with other words; returns when all run and the slice is theirs."""
        self.no_event_was_lost()
        self.down()
        mark = self.guest.call("mark")
        self.up(prefix, **environment)
        self.running()
        self.guest.call("wait_note", mark, "inventory", timeout_s=START_S)
        self.agree()

    def no_event_was_lost(self) -> None:
        """Fail when the reconciler that runs now found a spec wrong at its backstop.

        It counts from its own start: a scenario that kills it asks before. Its network may be one of its own,
        with a loopback that nobody turned on.
        """
        pid = self.running()["reconciler"]
        ask = f"ip link set lo up && busybox wget -q -O - {RECONCILER_METRICS}"
        words = ["nsenter", f"--net=/proc/{pid}/ns/net", "sh", "-c", ask]
        page = eventually(lambda: self.guest.run(*words, check=False), START_S, "it serves its metrics", 0.5)
        lines = page.splitlines()
        repairs = next(float(line.split()[1]) for line in lines if line.startswith(f"{BACKSTOP_REPAIRS} "))
        assert repairs == 0, (
            f"{repairs:.0f} specs were wrong at the reconciler's backstop although no event had said so: an"
            f" event was lost, and the backstop hid it; see 'made right' in its log\n{self.log('reconciler')}"
        )

    def log(self, service: str = "") -> str:
        path = f"{self.state}/logs/{service}.log" if service else f"{self.state}.log"
        return str(self.guest.call("read", path) or "")

    def pids(self) -> dict[str, int]:
        """Process ids of the running services."""
        listed = self.guest.call("processes", "services.")
        return {word.rpartition(".")[2]: pid for word, pid in listed.items()}

    def killing_at_the_next_event(self, service: str) -> "Future[None]":
        """SIGKILL one service as soon as the kernel tells of anything. Its supervisor starts it again."""
        mark = self.guest.call("mark")
        return self.guest.begin("kill_at", mark, "uevent", self.pids()[service], SIGKILL)

    def started_again(self, service: str, pids: dict[str, int]) -> None:
        """Wait until a killed service runs anew; fail when it has taken another one with it."""

        def anew() -> bool:
            return self.running()[service] != pids[service]

        eventually(anew, START_S, f"{service} runs again", step_s=0.2)
        before, now = (
            {name: pid for name, pid in each.items() if name != service} for each in (pids, self.running())
        )
        assert now == before, "the others lived on"

    def claim(self, name: str, *devices: str, prepare: bool = True) -> Claim:
        """Allocate devices to a new claim and prepare it. Raises RefusedError in the plugin's words."""
        claim = Claim(name, str(uuid.uuid4()), devices, {})
        path = f"{self.state}/cluster/claims/default/{name}.yaml"
        self.guest.call("write", path, json.dumps(_resource_claim(claim)))
        return self.prepare(claim) if prepare else claim

    def prepare(self, claim: Claim) -> Claim:
        answer = self.guest.call("prepare", f"{self.state}/kubelet", [claim.reference])[claim.uid]
        if answer["error"]:
            raise RefusedError(answer["error"])
        self._claims[claim.uid] = Claim(claim.name, claim.uid, claim.devices, answer["devices"])
        eventually(lambda: self.spec(claim), 30.0, f"the witness sees the spec of {claim.name}", step_s=0.01)
        return self._claims[claim.uid]

    def release(self, claim: Claim) -> None:
        """Unprepare and delete a claim."""
        answer = self.guest.call("unprepare", f"{self.state}/kubelet", [claim.reference])
        if answer[claim.uid]:
            raise GuestError(f"unprepare of {claim.name}: {answer[claim.uid]}")
        self._claims.pop(claim.uid, None)
        self.guest.call("wait_spec", claim.uid, None)  # the witness may see it later than the answer
        self.guest.run("rm", "-f", f"{self.state}/cluster/claims/default/{claim.name}.yaml")

    def release_all(self) -> None:
        """Release what a scenario that failed has left."""
        for claim in list(self._claims.values()):
            self.release(claim)

    def inventory(self) -> dict[str, Any]:
        """The newest inventory on the bus."""
        found: dict[str, Any] = self.guest.call("seen")["whole"]
        return found

    def device(self, name: str) -> dict[str, Any]:
        """One device of the newest inventory. Raises KeyError."""
        found: dict[str, dict[str, Any]] = {each["name"]: each for each in self.inventory()["devices"]}
        return found[name]

    def printed(self) -> dict[str, Any]:
        """What `liken devices -o json` prints."""
        found: dict[str, Any] = json.loads(self.guest.run(LIKEN, "devices", "-o", "json"))
        return found

    def spec(self, claim: Claim) -> dict[str, list[str]] | None:
        """Device -> sorted node paths of the claim's spec, None when there is none."""
        specs: dict[str, dict[str, list[str]]] = self.guest.call("seen")["specs"]
        return specs.get(claim.uid)

    def waiting_for_slice(self, has: list[str] = [], lacks: list[str] = []) -> "Future[float]":  # noqa: B006
        return self.guest.begin("wait_slice", has=has, lacks=lacks)

    def waiting_for_spec(self, claim: Claim, devices: dict[str, list[str]] | None) -> "Future[float]":
        return self.guest.begin("wait_spec", claim.uid, devices)

    def waiting_for_return(self, claim: Claim, nodes: int = 1) -> "Future[float]":
        """Until the spec of a claim whose hardware is away names that many nodes again."""
        return self.guest.begin("wait_returned", claim.uid, nodes)

    def agree(
        self,
        *,
        absent: Sequence[Claim] = (),
        withheld: Sequence[Claim] = (),
        changed: Sequence[Claim] = (),
        has: Sequence[str] = (),
        lacks: Sequence[str] = (),
        timeout_s: float = 90.0,
    ) -> None:
        """Wait until slices, bus and specs tell the same of all devices and of all prepared claims.

        Slices: the devices of the newest inventory with its attributes, all of `has` and none of `lacks`
        among them. Presence: each prepared claim with its state; claims that are not named are present.
        Specs: those claims' alone, with the inventory's nodes of their own hardware, or the placeholder.
        """
        named = {"absent": absent, "withheld": withheld, "changed": changed}
        state = {claim.uid: word for word, claims in named.items() for claim in claims}
        states = {
            claim.uid: dict.fromkeys(claim.devices, state.get(claim.uid, "present"))
            for claim in self._claims.values()
        }
        self.guest.call("agree", states, list(has), list(lacks), timeout_s, wait_s=timeout_s + 30)

    def running(self) -> dict[str, int]:
        """Wait until all four run."""
        return eventually(
            lambda: pids if len(pids := self.pids()) == len(SERVICES) else {},
            START_S,
            "all four services run",
            step_s=0.2,
        )


def absent(device: str) -> list[str]:
    return [f"/dev/{DRIVER}/absent/{device}"]


def withheld(device: str) -> list[str]:
    return [f"/dev/{DRIVER}/withheld/{device}"]


def _resource_claim(claim: Claim) -> dict[str, Any]:
    results = [
        {"request": f"r{number}", "driver": DRIVER, "pool": NODE, "device": device}
        for number, device in enumerate(claim.devices)
    ]
    requests = [{"name": result["request"], "exactly": {"deviceClassName": "any"}} for result in results]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"namespace": "default", "name": claim.name, "uid": claim.uid},
        "spec": {"devices": {"requests": requests}},
        "status": {"allocation": {"devices": {"results": results}}},
    }
