"""What can happen, each as one function; a table gives how often."""

import contextlib
import random
import re
import shutil
import subprocess
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import grpc

from tests.chaos.checker import spec_paths
from tests.chaos.machine import Port
from tests.chaos.model import Held, Model
from tests.chaos.system import System
from tests.services.kubelet_stand_in import Claim
from tests.waiting import eventually

CALLERS = 4
CALL_S = 15.0
DISTURBED_S = 6.0  # how long after a kill, a full disk or a lost API the longer bound applies
WATCHED_FOLDERS_KIB = 2048  # size of the file systems that can be filled
SERVICES = ("watcher", "publisher", "plugin", "reconciler")
MOST_CLAIMS = 30


class Actions:
    """Does things to one system and keeps the model in step. `count` tells how often each was done."""

    def __init__(self, system: System, model: Model, seed: int, full_disks: bool, log: Path) -> None:
        """Every action has random numbers of its own, by `seed` and its number; `log` gets a line of each."""
        self.system = system
        self.model = model
        self.rng = random.Random(seed)
        self.calm = False  # while set, what makes somebody start again or pause is left out
        self._seed = seed
        self._log = log
        self.count: Counter[str] = Counter()
        self.kills: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.prepared = 0  # claims that the product said yes to
        self._full_disks = full_disks
        self._pool = ThreadPoolExecutor(CALLERS)
        self._calls: list[Future[object]] = []
        self.specs_deleted = False  # of which no event tells anybody: the backstop finds them
        self._disturbed_until = 0.0
        self._mounts = (system.root / "proc/1/mountinfo").read_text()
        self._filled: list[Path] = []
        self._guard = threading.Lock()
        self.table: list[tuple[Callable[[], None], int]] = [
            (self.unplug, 14),
            (self.plug, 16),
            (self.replug, 12),
            (self.rebind, 4),
            (self.mount, 4),
            (self.prepare, 40),
            (self.unprepare, 12),
            (self.rival, 4),
            (self.kill, 5),
            (self.api_trouble, 4),
            (self.restart_kubelet, 2),
            (self.fill_disk, 2 if full_disks else 0),
            (self.jump_clock, 2),
            (self.delete_files, 3),
            (self.second_instance, 2),
        ]

    def one(self) -> str:
        """One action, drawn by weight; its name."""
        number = self.count.total()
        self.rng = random.Random(f"{self._seed}-{number}")
        (action,) = self.rng.choices([row[0] for row in self.table], [row[1] for row in self.table])
        rough = (self.kill, self.api_trouble, self.fill_disk, self.delete_files, self.second_instance)
        if self.calm and action in rough:
            action = self.prepare
        with self._log.open("a") as log:
            log.write(f"{time.monotonic():.3f} {number} {action.__name__}\n")
        self.count[action.__name__] += 1
        action()
        return action.__name__

    def disturbed(self) -> bool:
        return time.monotonic() < self._disturbed_until or bool(self._filled)

    def disturb(self) -> None:
        self._disturbed_until = time.monotonic() + DISTURBED_S

    def recovered(self) -> None:
        """All is as it has to be again."""
        self._disturbed_until = 0.0
        self.specs_deleted = False

    # -- hardware

    def _pluggable(self, away: bool) -> list[str]:
        plugs = {port.plug for port in self.model.ports if port.plug}
        return sorted(plugs & self.model.away if away else plugs - self.model.away)

    def unplug(self) -> None:
        if plugs := self._pluggable(away=False):
            self._unplug(self.rng.choice(plugs))

    def _unplug(self, plug: str) -> None:
        slow = self.rng.random() < 0.1
        with self.model.changing():
            sent = self.system.player.unplug(plug, disconnect_s=0.3 if slow else 0.0)
            self.model.away.add(plug)
        self.system.relay(sent)

    def plug(self) -> None:
        if plugs := self._pluggable(away=True):
            self._plug(self.rng.choice(plugs))

    def _plug(self, plug: str) -> None:
        with self.model.changing():
            if self.model.serials[plug] and self.rng.random() < 0.3:
                self._exchange(plug)
            sent = self.system.player.plug(plug)
            self.model.away.discard(plug)
            # the player gives an interface back as it was taken: one without its driver stays without
        self.system.relay(sent)

    def _exchange(self, plug: str) -> None:
        """What comes back is another one of its kind: the player keeps its files aside, the serial too."""
        for home in (self.system.root / "unplugged").glob("*/home"):
            if Path(home.read_text()).name == plug:
                self.model.serials[plug] = f"B{self.rng.randrange(10**7):07}"
                (home.parent / "tree/serial").write_text(f"{self.model.serials[plug]}\n")

    def replug(self) -> None:
        """Several at once, back in another order: numbers change hands."""
        plugs = self._pluggable(away=False)
        chosen = self.rng.sample(plugs, min(len(plugs), self.rng.randint(1, 4)))
        for plug in chosen:
            self._unplug(plug)
        self.rng.shuffle(chosen)
        for plug in chosen:
            # a hub waits at least this long for the contacts to settle (drivers/usb/core/hub.c): the margin
            time.sleep(0.1)
            self._plug(plug)

    def rebind(self) -> None:
        """Take the driver off an interface, or bind it again."""
        bound = [
            port
            for port in self.model.ports
            if port.plug
            and ":" in port.owner
            and port.plug not in self.model.away
            and port.device not in self.model.mounted
        ]
        if not bound:
            return
        port = self.rng.choice(bound)
        with self.model.changing():
            if port.owner in self.model.unbound:
                sent = self.system.player.bind(port.owner)
                self.model.unbound.discard(port.owner)
            else:
                sent = self.system.player.unbind(port.owner)
                self.model.unbound.add(port.owner)
        self.system.relay(sent)

    def mount(self) -> None:
        """The machine mounts a stick, or lets go of all."""
        sticks = [port for port in self.model.ports if port.plug.startswith("4-")]
        here = [
            port
            for port in sticks
            if port.plug not in self.model.away and port.owner not in self.model.unbound
        ]
        with self.model.changing():
            if self.model.mounted or not here:
                self.model.mounted.clear()
                self._write_mounts("")
            else:
                port = self.rng.choice(here)
                numbers = next((self.system.root / f"sys/bus/usb/devices/{port.owner}").rglob("block/*/dev"))
                self.model.mounted.add(port.device)
                self._write_mounts(f"90 24 {numbers.read_text().strip()} / /data rw - ext4 /dev/x rw\n")

    def _write_mounts(self, line: str) -> None:
        path = self.system.root / "proc/1/mountinfo"
        temporary = path.with_name("mountinfo.new")
        temporary.write_text(self._mounts + line)
        temporary.rename(path)

    # -- claims

    def _call(self, work: Callable[[], object]) -> None:
        self._calls.append(self._pool.submit(work))
        for call in [call for call in self._calls if call.done()]:
            self._calls.remove(call)
            call.result()  # its exception is a finding

    def fill_up(self) -> None:
        """As many claims as there may be."""
        before = -1
        while before < len(self.model.held()):
            before = len(self.model.held())
            self.prepare()

    def prepare(self) -> None:
        free = self.model.free()
        if not free or len(self.model.held()) >= MOST_CLAIMS:
            return
        held = self._claim_on(self.rng.choice(free))
        self._call(lambda: self._prepare(held))

    def _claim_on(self, port: Port) -> Held:
        uid = str(uuid.UUID(int=self.rng.getrandbits(128), version=4))
        held = Held(uid, f"c{uid[:13]}", port)
        self._put_claim(held, port)
        self.model.put(held)
        return held

    def _put_claim(self, held: Held, port: Port) -> None:
        result = {"request": "r", "driver": "liken.sh", "pool": "chaos", "device": port.device}
        self.system.api.store.add_claim(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"namespace": "default", "name": held.name, "uid": held.uid},
                "status": {"allocation": {"devices": {"results": [result]}}},
            }
        )

    def _prepare(self, held: Held) -> None:
        try:
            claim = Claim("default", held.name, held.uid)
            error = self.system.kubelet.prepare(claim, timeout_s=CALL_S)[held.uid].error
        except (grpc.RpcError, ValueError, AssertionError):
            return  # broken off: `settle` finds out
        if error:
            # without the names of devices, claims and files
            self.refused[re.sub(r"usb-[-\d]+|\S*/\S+", "...", error.split(":")[0])] += 1
        else:
            with self._guard:
                self.prepared += 1
            held.state = "prepared"

    def unprepare(self) -> None:
        if prepared := self.model.held("prepared"):
            held = self.rng.choice(prepared)
            held.state = "unsure"
            self._call(lambda: self._unprepare(held))

    def _unprepare(self, held: Held) -> bool:
        try:
            claim = Claim("default", held.name, held.uid)
            error = self.system.kubelet.unprepare(claim, timeout_s=CALL_S)[held.uid]
        except (grpc.RpcError, ValueError, AssertionError):
            return False
        if not error:
            self.model.drop(held.uid)
        return not error

    def rival(self) -> None:
        """A second claim on an exclusive device that is held must be refused."""
        prepared = [held for held in self.model.held("prepared") if held.port.kind != "render"]
        if not prepared:
            return
        owner = self.rng.choice(prepared)
        rival = Held(
            str(uuid.UUID(int=self.rng.getrandbits(128), version=4)), f"rival{self.count.total()}", owner.port
        )
        self._put_claim(rival, owner.port)
        with contextlib.suppress(grpc.RpcError, ValueError, AssertionError):
            claim = Claim("default", rival.name, rival.uid)
            error = self.system.kubelet.prepare(claim, timeout_s=CALL_S)[rival.uid].error
            if not error and owner.state == "prepared" and owner.uid in self.model.claims:
                raise RuntimeError(f"{owner.port.device} went to {rival.uid} while {owner.uid} holds it")
        self.model.put(rival)  # unsure: `settle` unprepares it

    # -- trouble

    def kill(self) -> None:
        service = self.rng.choice(SERVICES)
        self.disturb()
        if self.system.kill(service):
            self.kills[service] += 1

    def api_trouble(self) -> None:
        api, kind = self.system.api, self.rng.choice(["down", "slow", "refusing", "lost", "forget"])
        if kind == "down":
            api.stop()
            time.sleep(self.rng.uniform(0.1, 1.0))
            api.start()
        elif kind == "forget":
            api.store.forget()
            api.close_watches()
        else:
            what: Literal["late", "lost"] | int = {"slow": "late", "lost": "lost", "refusing": 503}[kind]  # type: ignore[assignment]
            api.fail("apply", what, times=2, seconds=0.5)
            api.fail("get", what, times=2, seconds=0.5)

    def restart_kubelet(self) -> None:
        """It forgets us and deletes our slices."""
        self.system.kubelet.restart()
        with contextlib.suppress(KeyError):
            self.system.api.store.delete_all()

    def fill_disk(self) -> None:
        folder = self.rng.choice([self.system.cdi, self.system.plugin_dir])
        self.disturb()
        filler = folder / ".filler"
        with contextlib.suppress(OSError), filler.open("wb") as file:
            while True:
                file.write(b"\0" * 1024)
                file.flush()
        self._filled.append(filler)
        if len(self._filled) > 1 or self.rng.random() < 0.5:
            time.sleep(self.rng.uniform(0.1, 1.0))
            self._empty_disks()

    def _empty_disks(self) -> None:
        if not self._filled:
            return
        for filler in self._filled:
            filler.unlink(missing_ok=True)
        self._filled.clear()
        self.disturb()

    def jump_clock(self) -> None:
        self.system.clock.write_text(f"{self.rng.choice([3600, -3600, 0, 864000])}\n")

    def delete_files(self) -> None:
        """Somebody removes sockets or specs. Records are not touched: they are the only state."""
        self.disturb()
        if self.rng.random() < 0.5:
            self._delete_of_bus()
            return
        sockets = [*self.system.registry.glob("*.sock"), *self.system.plugin_dir.glob("*.sock")]
        specs = sorted(self.system.cdi.glob("liken.sh-*.json"))
        for path in self.rng.sample(sockets + specs, min(2, len(sockets + specs))):
            path.unlink(missing_ok=True)
            self.specs_deleted |= path in specs

    def _delete_of_bus(self) -> None:
        """Some sockets of the bus or all, with their locks or without, or the folder."""
        bus = self.system.bus
        kind = self.rng.choice(["some", "all", "locks", "folder"])
        if kind == "folder":
            shutil.rmtree(bus, ignore_errors=True)  # they put their files back meanwhile
            return
        sockets = sorted(bus.glob("*.sock"))
        if kind == "some":
            sockets = self.rng.sample(sockets, min(len(sockets), self.rng.randint(1, 2)))
        for path in sockets:
            path.unlink(missing_ok=True)
            if kind == "locks":
                path.with_suffix(".lock").unlink(missing_ok=True)

    def second_instance(self) -> None:
        self.disturb()
        if self.system.second:
            codes = self.system.stop_second()
            # -15: the order came before Python had set up anything
            if set(codes) - {0, -15}:
                raise RuntimeError(f"the second instance ended with {codes}")
        else:
            self.system.start_second()

    # -- quiet

    def demand(self) -> str:
        """Prepare a device that is there, may be had and is free, and release it: what went wrong, or ""."""
        ready = self.model.ready()
        if not ready:
            return ""
        eventually(lambda: self.system.kubelet.instances, CALL_S, "the plugin is registered")
        held = self._claim_on(self.rng.choice(ready))
        device, claim = held.port.device, Claim("default", held.name, held.uid)
        answer = self.system.kubelet.prepare(claim, timeout_s=CALL_S)[held.uid]
        if answer.error:
            return f"{device} is there and free, and was refused: {answer.error}"
        self.prepared += 1
        given = [name for one in answer.devices for name in one.cdi_ids]
        if given != [f"liken.sh/device={held.uid}-{device}"]:
            return f"the answer for {device} gives {given}"
        path = self.system.spec(held.uid)
        wanted = [(f"{held.uid}-{device}", self.model.named(held.port))]
        if (found := spec_paths(path)) != wanted:
            return f"after the answer the spec of {device} says {found}, not {wanted}"
        if not self._unprepare(held):
            return f"{device} cannot be released"
        return f"the spec of {device} stays after its release" if path.exists() else ""

    def settle(self) -> None:
        """End every trouble and every open call; unsure claims become certain, as by a kubelet's retries."""
        self._empty_disks()
        if self.system.second:
            self.second_instance()
        self.system.clock.write_text("0\n")
        self.system.api.faults.clear()
        for call in self._calls:
            call.result(timeout=60)
        self._calls.clear()
        deadline = time.monotonic() + 60
        while unsure := self.model.held("unsure"):
            if not self._unprepare(unsure[0]):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{unsure[0]} cannot be unprepared")
                time.sleep(0.1)


def small_file_systems(*folders: Path) -> bool:
    """Make each folder a file system of its own that can be filled; False where we may not."""
    for folder in folders:
        command = ["mount", "-t", "tmpfs", "-o", f"size={WATCHED_FOLDERS_KIB}k", "liken-chaos", str(folder)]
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            return False
    return True


def release_file_systems(*folders: Path) -> None:
    for folder in folders:
        subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)
