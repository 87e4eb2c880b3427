"""Names of sockets, choice of devices, registration, health: the plugin's smaller rules."""

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from common.errors import MachineError, RequestError
from common.hardware.tree import TreeError
from common.inventory import SCHEMA, ClaimPresence, DevicePresence, Facts, Inventory, Presence, PresenceState
from services.plugin.allocation import base_request
from services.plugin.api.pluginregistration_pb2 import RegistrationStatus
from services.plugin.calls import KUBELET_LIMIT_S, CallTime
from services.plugin.folders import Folders
from services.plugin.generate import API, generate
from services.plugin.health import Health, HealthHub, health_of
from services.plugin.metrics import PluginMetrics
from services.plugin.offers import Offers
from services.plugin.pool import Pool
from services.plugin.registration import CALM_S, LAST_PAUSE_S, LOOK_S, VERSIONS, Keeper, Registrar
from services.plugin.sockets import MAX_PATH, Names, remove_leftovers, socket_names

ROOT = Path(__file__).parents[3]
POD = "8f4d1c52-9a35-4d6e-8d0c-3b7a9d4f2e11"


def test_the_generated_code_is_what_the_proto_files_give(tmp_path: Path) -> None:
    written = generate(ROOT, tmp_path)
    assert {path.name: path.read_text() for path in written} == {
        path.name: path.read_text() for path in (ROOT / API).glob("*_pb2*.py*")
    }


def test_the_versions_are_in_the_order_in_which_the_kubelet_shall_choose() -> None:
    assert VERSIONS == ("v1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")


# -- sockets


def test_sockets_carry_the_pod_where_the_path_is_long_enough() -> None:
    names = socket_names(Path("/k/plugins/liken.sh"), Path("/k/plugins_registry"), "liken.sh", POD)
    assert names == Names(
        Path(f"/k/plugins/liken.sh/dra-{POD}.sock"), Path(f"/k/plugins_registry/liken.sh-{POD}-reg.sock")
    )


def test_sockets_of_a_plain_host_need_no_pod() -> None:
    names = socket_names(Path("/p"), Path("/r"), "liken.sh", "")
    assert names == Names(Path("/p/dra.sock"), Path("/r/liken.sh-reg.sock"))


@settings(deadline=None)
@given(st.integers(min_value=1, max_value=120), st.text(max_size=60))
def test_a_path_is_never_longer_than_a_socket_may_be(length: int, pod: str) -> None:
    folder = Path("/" + "f" * length)
    names: tuple[Path, ...] = ()
    with contextlib.suppress(RequestError):
        names = socket_names(folder, folder, "liken.sh", pod)
    assert names or length > 79  # the short form of the registration socket has 26 bytes
    assert all(len(os.fsencode(path)) <= MAX_PATH and path.parent == folder for path in names)


def test_two_pods_have_two_sockets_also_with_hashed_names() -> None:
    folder = Path("/" + "f" * 70)
    one = socket_names(folder, folder, "liken.sh", POD)
    other = socket_names(folder, folder, "liken.sh", POD.replace("8", "9"))
    assert len({*one, *other}) == 4
    assert POD not in str(one.service)


def dead_socket(path: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    return path


def test_only_our_own_sockets_that_refuse_a_connection_are_removed(run_dir: Path) -> None:
    """K1."""
    plugin_dir, registry = run_dir / "p", run_dir / "r"
    plugin_dir.mkdir()
    registry.mkdir()
    names = socket_names(plugin_dir, registry, "liken.sh", POD)
    gone = [
        dead_socket(plugin_dir / "dra-0.sock"),
        dead_socket(plugin_dir / ".lk0a1b"),
        dead_socket(registry / "liken.sh-0-reg.sock"),
        dead_socket(registry / f"liken-{'x' * 11}-reg.sock"),
        dead_socket(names.registration),
    ]
    os.utime(gone[1], (0, 0))
    kept = [
        dead_socket(plugin_dir / ".lk0a1c"),  # so young that another instance may be about to rename it
        dead_socket(registry / "gpu.example.com-reg.sock"),
        dead_socket(registry / f"dra-{'x' * 22}-reg.sock"),
        registry / "liken.sh-file-reg.sock",
    ]
    kept[-1].write_text("not a socket")
    with socket.create_server(str(registry / "liken.sh-live-reg.sock"), family=socket.AF_UNIX):
        assert sorted(remove_leftovers(names, "liken.sh")) == sorted(gone)
        assert (registry / "liken.sh-live-reg.sock").exists()
    assert all(path.exists() for path in kept)


def test_a_live_socket_on_our_own_name_stops_the_start(run_dir: Path) -> None:
    names = socket_names(run_dir, run_dir, "liken.sh", POD)
    with (
        socket.create_server(str(names.service), family=socket.AF_UNIX),
        pytest.raises(MachineError, match="another plugin"),
    ):
        remove_leftovers(names, "liken.sh")


# -- time, requests, names


def test_a_call_has_a_little_less_time_than_the_kubelet_gives() -> None:
    assert KUBELET_LIMIT_S - 3 < CallTime(None).left_s() < KUBELET_LIMIT_S
    assert 3 < CallTime(5.0).left_s() < 5.0
    assert 0 < CallTime(0.5).left_s() < 0.5
    with pytest.raises(MachineError, match="over"):
        CallTime(0.0).left_s()


@pytest.mark.parametrize(("request_name", "base"), [("main", "main"), ("main/sub", "main")])
def test_the_kubelet_knows_a_request_by_its_main_name(request_name: str, base: str) -> None:
    assert base_request(request_name) == base


def test_callers_that_wait_for_a_walk_share_the_next_one() -> None:
    begun, go_on = threading.Event(), threading.Event()
    walks: list[int] = []

    def walk() -> Inventory:
        walks.append(1)
        begun.set()
        assert go_on.wait(5)
        return Inventory(SCHEMA, "n", "", "", Facts("observed"))

    asking = threading.Semaphore(0)

    def names() -> Iterator[str]:
        asking.release()
        yield "b"

    offers, pool = Offers(walk), Pool(9, "test")
    first = pool.submit(lambda: offers.find(["a"], CallTime(10.0)))
    assert begun.wait(5)
    others = [pool.submit(lambda: offers.find(names(), CallTime(10.0))) for _ in range(8)]
    assert all(asking.acquire(timeout=5) for _ in others)
    go_on.set()
    assert [future.result(5) for future in (first, *others)] == [{}] * 9
    assert len(walks) < 9  # the one that ran when they asked may have missed what they ask for


def test_a_tree_that_cannot_be_walked_leaves_what_is_known() -> None:
    def walk() -> Inventory:
        raise TreeError("cannot read /sys")

    assert Offers(walk).find(["a"], CallTime(5.0)) == {}


def test_a_pool_does_everything_with_no_more_threads_than_it_may() -> None:
    pool = Pool(2, "test")
    futures = [pool.submit(lambda number=number: number * number) for number in range(50)]  # type: ignore[misc]
    assert [future.result(5) for future in futures] == [number * number for number in range(50)]
    failing = pool.submit(lambda: 1 // 0)
    assert isinstance(failing.exception(5), ZeroDivisionError)


# -- registration


class Place:
    """An endpoint without sockets."""

    def __init__(self) -> None:
        self.bound = 0
        self.there = True

    async def bind(self) -> None:
        self.bound += 1
        self.there = True

    def intact(self) -> bool:
        return self.there


def keeper(
    renew: bool = True, follow: Callable[[], bool] = lambda: False
) -> tuple[Keeper, Registrar, Place, Place]:
    metrics = PluginMetrics(CollectorRegistry())
    registrar = Registrar("liken.sh", Path("/x.sock"), metrics)
    service, registration = Place(), Place()
    keep = Keeper(service, registration, registrar, metrics, renew=renew, follow=follow)
    return keep, registrar, service, registration


class Clock:
    """The event loop's time, moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def in_loop(work: Callable[[Clock], object]) -> None:
    async def run() -> None:
        clock = Clock()
        asyncio.get_running_loop().time = clock  # type: ignore[method-assign]
        await work(clock)  # type: ignore[misc]

    asyncio.run(run())


def test_the_next_look_is_as_soon_as_the_kubelet_has_said_something() -> None:
    """A rolling update waits for it: the old pod ends when this one is ready."""

    async def run() -> None:
        keep, registrar, _, _ = keeper()
        pause = asyncio.create_task(keep.pause())
        await asyncio.sleep(0)
        assert not pause.done()
        await registrar.NotifyRegistrationStatus(RegistrationStatus(plugin_registered=True), None)
        await asyncio.wait_for(pause, LOOK_S / 2)
        assert keep.serves
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(keep.pause(), LOOK_S / 10)  # one word ends one pause

    asyncio.run(run())


async def ends(pause: "asyncio.Task[None]") -> bool:
    """Whether a pause is over when the loop has turned some times."""
    for _ in range(10):
        await asyncio.sleep(0)
    return pause.done()


@pytest.mark.parametrize(
    ("followed", "accepted", "pause_s"),
    [(True, True, CALM_S), (False, True, LOOK_S), (True, None, LOOK_S), (True, False, LOOK_S)],
)
def test_the_sockets_are_looked_at_seldom_only_while_nothing_is_open(
    followed: bool, accepted: bool | None, pause_s: float
) -> None:
    async def work(clock: Clock) -> None:
        keep, registrar, _, _ = keeper(follow=lambda: followed)
        await keep.bind()
        registrar.accepted = accepted
        await keep.look()
        pause = asyncio.create_task(keep.pause())
        assert not await ends(pause)
        clock.now += pause_s - 0.1
        assert not await ends(pause)
        clock.now += 0.2
        assert await ends(pause)

    in_loop(work)


def test_a_lost_socket_is_looked_after_until_its_folder_is_watched_anew() -> None:
    """The folder may have gone with it: then what was watched is another one."""
    watched = [True]

    async def work(clock: Clock) -> None:
        keep, registrar, service, _ = keeper(follow=lambda: watched[0])
        await keep.bind()
        await keep.look()
        service.there = False
        await keep.look()
        registrar.accepted = True
        pause = asyncio.create_task(keep.pause())
        assert not await ends(pause)
        clock.now += LOOK_S + 0.1
        assert await ends(pause)
        await keep.look()
        pause = asyncio.create_task(keep.pause())
        assert not await ends(pause)
        clock.now += LOOK_S + 0.1
        assert not await ends(pause)
        registrar.stirred.set()
        assert await ends(pause)

    in_loop(work)


def test_sockets_that_are_lost_again_and_again_are_bound_ever_less_often() -> None:
    """Two plugins on one path, or a folder in the way: what is done about it stirs the folders by itself."""

    async def work(clock: Clock) -> None:
        keep, registrar, service, _ = keeper(follow=lambda: True)
        await keep.bind()
        pauses = []
        for _ in range(7):
            service.there = False
            await keep.look()
            registrar.stirred.set()
            begin, pause = clock.now, asyncio.create_task(keep.pause())
            while not await ends(pause):
                clock.now += 0.1
            pauses.append(round(clock.now - begin, 1))
        assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, LOOK_S, LOOK_S]

    in_loop(work)


def test_to_follow_again_what_is_watched_tells_nothing(tmp_path: Path) -> None:
    """While one of the folders cannot be watched, each look follows anew."""

    async def run() -> None:
        stirred = asyncio.Event()
        (tmp_path / "a").mkdir()
        folders = Folders((tmp_path / "a", tmp_path / "b"), stirred.set)
        for _ in range(2):
            assert not folders.follow()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(stirred.wait(), 0.2)
        folders.close()

    asyncio.run(run())


def test_folders_tell_of_what_goes_and_comes_also_when_they_were_made_again(tmp_path: Path) -> None:
    async def run() -> None:
        stirred = asyncio.Event()

        async def told() -> None:
            await asyncio.wait_for(stirred.wait(), 10)
            stirred.clear()

        one, other = tmp_path / "a", tmp_path / "b"
        folders = Folders((one, other), stirred.set)
        assert not folders.follow()
        for folder in (one, other):
            folder.mkdir()
            (folder / "x.sock").touch()
        assert folders.follow()
        (other / "x.sock").unlink()
        await told()
        (one / "x.sock").rename(tmp_path / "y.sock")
        await told()
        one.rmdir()
        await told()
        one.mkdir()
        (one / "x.sock").touch()
        assert folders.follow()
        stirred.clear()
        (one / "x.sock").unlink()
        await told()
        folders.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("word", "pauses"), [(None, [10.0, 20.0, 40.0, 80.0]), (False, [2.0, 4.0, 8.0, 16.0, 32.0, 64.0])]
)
def test_registration_is_renewed_with_growing_pauses_until_the_kubelet_takes_us(
    word: bool | None, pauses: list[float]
) -> None:
    """K2: no word within some seconds, or a no: register again."""
    keep, registrar, service, registration = keeper()
    seen: list[float] = []

    async def work(clock: Clock) -> None:
        await keep.bind()
        begin = last = clock.now
        while clock.now - begin < 600:
            before = registration.bound
            registrar.accepted = word
            clock.now += 1.0
            await keep.look()
            if registration.bound > before:
                seen.append(clock.now - last)
                last = clock.now
        registrar.accepted = True
        clock.now += 1000
        await keep.look()

    in_loop(work)
    assert seen[: len(pauses)] == pauses
    assert set(seen[len(pauses) :]) == {LAST_PAUSE_S}
    assert service.bound == 1


def test_without_a_kubelet_nobody_registers_again() -> None:
    keep, _, _, registration = keeper(renew=False)

    async def work(clock: Clock) -> None:
        await keep.bind()
        clock.now += 1000
        await keep.look()

    in_loop(work)
    assert registration.bound == 1


@pytest.mark.parametrize(("lost", "bound"), [("service", (2, 2)), ("registration", (1, 2))])
def test_a_socket_that_somebody_removed_is_bound_and_registered_again(
    lost: str, bound: tuple[int, int]
) -> None:
    """K3."""
    keep, registrar, service, registration = keeper()

    async def work(clock: Clock) -> None:
        await keep.bind()
        registrar.accepted = True
        (service if lost == "service" else registration).there = False
        await keep.look()

    in_loop(work)
    assert (service.bound, registration.bound) == bound
    assert registrar.accepted is None


# -- health


def presence(*states: tuple[str, PresenceState]) -> Presence:
    return Presence(
        SCHEMA,
        "",
        tuple(
            ClaimPresence(
                "d", f"c{number}", f"u{number}", (DevicePresence("n1", device, state, "then", f"{state}!"),)
            )
            for number, (device, state) in enumerate(states)
        ),
    )


def test_health_says_why_and_since_when() -> None:
    """K11."""
    states: list[tuple[str, PresenceState]] = [
        ("a", "present"),
        ("b", "absent"),
        ("c", "withheld"),
        ("d", "changed"),
        ("e", "unknown"),
    ]
    assert health_of(presence(*states), "n1") == (
        Health("n1", "a", "HEALTHY", ""),
        Health("n1", "b", "UNHEALTHY", "absent! since then"),
        Health("n1", "c", "UNHEALTHY", "withheld because withheld!, since then"),
        Health("n1", "d", "UNHEALTHY", "not what was claimed: changed!, since then"),
        Health("n1", "e", "UNKNOWN", "cannot be looked at: unknown!, since then"),
    )


def test_a_device_of_several_claims_has_the_worst_of_their_states() -> None:
    reports = health_of(presence(("a", "present"), ("a", "absent"), ("a", "unknown")), "n1")
    assert [(one.device, one.word) for one in reports] == [("a", "UNHEALTHY")]


def test_a_message_is_no_longer_than_the_kubelet_shows() -> None:
    one = Presence(
        SCHEMA, "", (ClaimPresence("d", "c", "u", (DevicePresence("n", "a", "absent", "", "x" * 5000),)),)
    )
    assert len(health_of(one, "n1")[0].message) == 1024


def test_the_same_states_are_sent_again_well_within_the_kubelets_time_and_changes_at_once() -> None:
    async def never() -> Presence | None:
        return None

    async def run() -> list[tuple[str, ...]]:
        hub = HealthHub(never, resend_s=0.05)
        hub.update(presence(("a", "present")))
        seen: list[tuple[str, ...]] = []
        async for reports in hub.reports():
            seen.append(tuple(one.word for one in reports))
            if len(seen) == 3:
                hub.update(presence(("a", "absent")))
            if len(seen) == 5:
                hub.close()
        assert hub.streams == 0
        return seen

    healthy, unhealthy = ("HEALTHY",), ("UNHEALTHY",)
    assert asyncio.run(run()) == [healthy, healthy, healthy, unhealthy, unhealthy]


def test_the_plugin_looks_itself_while_nobody_sends_states() -> None:
    states = [presence(("a", "present")), presence(("a", "absent"))]

    async def look() -> Presence | None:
        return states.pop(0) if states else None

    async def run() -> list[str]:
        hub = HealthHub(look, resend_s=5.0, look_s=0.01)
        seen = []
        async for reports in hub.reports():
            seen += [one.word for one in reports]
            if len(seen) == 2:
                hub.update(presence(("a", "present")))
            if len(seen) == 3:
                return seen
        return seen

    assert asyncio.run(run()) == ["HEALTHY", "UNHEALTHY", "HEALTHY"]


def test_health_that_nobody_can_look_at_is_unknown_and_not_what_it_was() -> None:
    states = [presence(("a", "present")), None, presence(("a", "present"))]

    async def look() -> Presence | None:
        return states.pop(0)

    async def run() -> list[str]:
        hub = HealthHub(look, resend_s=5.0, look_s=0.01)
        seen: list[str] = []
        async for reports in hub.reports():
            seen += [one.word for one in reports]
            if len(seen) == 3:
                break
        return seen

    assert asyncio.run(run()) == ["HEALTHY", "UNKNOWN", "HEALTHY"]
