"""One guest, one `liken up` in it, shared by all scenarios; a scenario leaves the machine as it found it."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kernel.bench import Bench
from tests.kernel.hardware import FRAMEBUFFERS, LATE_MODULES, MODULES, full_machine
from tests.kernel.machine import Guest, boot
from tests.kernel.plugs import Plugs
from tests.kernel.product import STATE, Product
from tests.kernel.provision import UnavailableError, provide
from tests.kernel.runtime import Runtime, programs

SCENARIO_S = 600  # the first one boots, and the very first installs packages

ALWAYS_THERE = "usb-1-3-1-0"  # a device of the machine at boot
CARDS = "/dev/dri"  # nobody in this guest has a reason to open what is in there
EMULATOR_FAILED = 75  # "try again", as sysexits.h has it
START_S = 180.0  # four Python processes and a first walk, on an emulated and busy processor

Tell = Callable[[str], None]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: runs only with `make test-kernel SET=all`")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.timeout(SCENARIO_S * (4 if item is items[0] else 1)))


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """End the run when the emulator broke its guest; `python -m tests.kernel` begins another."""
    guest = getattr(item, "funcargs", {}).get("guest")
    if isinstance(guest, Guest) and guest.locked_up():
        pytest.exit("the emulated kernel locked up", returncode=EMULATOR_FAILED)


@pytest.fixture(scope="session")
def tell(request: pytest.FixtureRequest) -> Tell:
    """Print a line about what happened and how long it took, at once and whatever pytest captures."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def line(text: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"\n  {text}", end=" ", flush=True)

    return line


@pytest.fixture(scope="session")
def guest(tmp_path_factory: pytest.TempPathFactory, tell: Tell) -> Iterator[Guest]:
    """The machine of scenario 1, its modules loaded. Ends the run when it cannot be had."""
    work = tmp_path_factory.mktemp("guest")
    started = time.monotonic()
    try:
        machine = boot(provide(), work, full_machine(work), tpm=True)
    except UnavailableError as reason:
        pytest.exit(str(reason), returncode=1)
    try:
        tell(f"booted to a ready agent in {time.monotonic() - started:.1f} s")
        failed = machine.call("load", list(MODULES))
        machine.call("write", FRAMEBUFFERS, "0")
        failed += machine.call("load", list(LATE_MODULES))
        assert failed == [], f"modules that do not load: {failed}"
        yield machine
    finally:
        machine.close()


@pytest.fixture(scope="session")
def product(guest: Guest, tell: Tell) -> Iterator[Product]:
    """The four services, up since the machine was complete."""
    liken = Product(guest)
    guest.call("watch_opens", CARDS)
    liken.up()
    liken.observe()
    began = time.monotonic()
    try:
        guest.call("wait_slice", has=[ALWAYS_THERE], timeout_s=START_S, wait_s=START_S + 30)
        liken.agree(has=[ALWAYS_THERE])  # the witness may hear later than the publisher
        tell(f"four services started, first slice after {time.monotonic() - began:.1f} s")
        yield liken
        if not guest.locked_up():
            liken.no_event_was_lost()
            assert guest.call("opens", CARDS) == [], "liken opens no card"
            guest.call("open_once", f"{CARDS}/card0")
            assert guest.call("opens", CARDS) == ["card0"], "an open is seen"
            assert guest.call("since", 0, "overflow") == [], "the witness heard every event"
    finally:
        (Path(guest.work) / "liken.log").write_text(liken.log())


@pytest.fixture
def plugs(guest: Guest, product: Product) -> Iterator[Plugs]:
    """Hot-plug; what is still plugged or claimed at the end of a scenario is taken out and released."""
    before = guest.call("seen")["slice"]
    plugged = Plugs(guest)
    yield plugged
    product.release_all()
    plugged.close()
    back_to(before, product)


@pytest.fixture
def bench(guest: Guest, product: Product) -> Iterator[Bench]:
    """Gadgets; removed at the end of a scenario, their claims released."""
    before = guest.call("seen")["slice"]
    made = Bench(guest)
    yield made
    product.release_all()
    made.close()
    back_to(before, product)


@pytest.fixture(scope="session")
def runtime(guest: Guest, product: Product) -> Runtime:
    """A container runtime in the guest that reads the product's specs."""
    try:
        folder = programs()
    except UnavailableError as reason:
        pytest.fail(str(reason), pytrace=False)
    return Runtime(guest, folder, f"{STATE}/cdi")


def back_to(before: list[str], product: Product) -> None:
    """Wait until slice and inventory list what they listed before a scenario, and no claim is left."""
    left = sorted(set(product.guest.call("seen")["slice"]) - set(before))
    product.waiting_for_slice(has=before, lacks=left).result(120)
    product.agree()
