"""Scenario 5: a real container runtime consumes the specs."""

import json
import time

import pytest

from tests.kernel.conftest import Tell
from tests.kernel.machine import Guest
from tests.kernel.plugs import KINDS, Plugs
from tests.kernel.product import STATE, Claim, Product, absent
from tests.kernel.runtime import Runtime

KEYBOARD = KINDS["keyboard"]
NAME = "usb-1-8-1-0"
OTHERS_SPEC = f"{STATE}/cdi/example.com-clock.json"


@pytest.fixture
def claim(product: Product, plugs: Plugs) -> Claim:
    """A keyboard in port 8, claimed."""
    plugs.plug(KEYBOARD)
    product.waiting_for_slice(has=[NAME]).result(120)
    made = product.claim("container", NAME)
    product.agree(has=[NAME])
    return made


def delivered(product: Product, claim: Claim) -> list[str]:
    return (product.spec(claim) or {})[NAME]


def numbers(guest: Guest, paths: list[str]) -> list[str]:
    """Path, major and minor of each node as `stat` in a container prints them."""
    nodes = guest.call("nodes")
    return [f"{path} {nodes[path][1]:x}:{nodes[path][2]:x}" for path in paths]


def see(runtime: Runtime, claim: Claim, paths: list[str], user: str = "0:0") -> list[str]:
    done = runtime.run(claim.ids[NAME], "stat", "-c", "%n %t:%T", *paths, user=user)
    assert done["code"] == 0, done
    return sorted(done["out"].split("\n")[:-1])


def in_dev(runtime: Runtime, ids: list[str]) -> set[str]:
    """All paths below /dev in a container but for folders."""
    done = runtime.run(ids, "ls", "-R", "/dev")
    assert done["code"] == 0, done
    found, folder = set[str](), ""
    for line in done["out"].splitlines():
        if line.startswith("/dev") and line.endswith(":"):
            folder = line.removesuffix(":")
        elif line:
            found.add(f"{folder}/{line}")
    return {path for path in found if not any(other.startswith(f"{path}/") for other in found)}


def test_a_container_gets_exactly_its_nodes_with_the_numbers_of_now(
    guest: Guest, product: Product, claim: Claim, runtime: Runtime, tell: Tell
) -> None:
    paths = delivered(product, claim)
    began = time.monotonic()
    assert see(runtime, claim, paths) == numbers(guest, paths)
    tell(f"container with {len(paths)} nodes ran in {time.monotonic() - began:.2f} s")
    assert in_dev(runtime, claim.ids[NAME]) - in_dev(runtime, []) == set(paths)


def test_a_user_without_privilege_opens_the_nodes(
    product: Product, claim: Claim, runtime: Runtime, tell: Tell
) -> None:
    opened = " && ".join(f"exec 3<{path}" for path in delivered(product, claim))
    done = runtime.run(claim.ids[NAME], "sh", "-c", f"{opened} && id -u", user="1000:1000")
    tell(f"uid {done['out'].strip()} opened {len(delivered(product, claim))} nodes")
    assert (done["code"], done["out"].strip()) == (0, "1000"), done


def test_a_container_with_another_drivers_device_as_well_opens_both(
    guest: Guest, product: Product, claim: Claim, runtime: Runtime
) -> None:
    """D7: what two drivers allow in one container adds up."""
    clock = {"name": "rtc0", "containerEdits": {"deviceNodes": [{"path": "/dev/rtc0"}]}}
    other = {"cdiVersion": "0.6.0", "kind": "example.com/clock", "devices": [clock]}
    guest.call("write", OTHERS_SPEC, json.dumps(other))
    opened = " && ".join(f"exec 3<{path}" for path in [*delivered(product, claim), "/dev/rtc0"])
    done = runtime.run([*claim.ids[NAME], "example.com/clock=rtc0"], "sh", "-c", f"{opened} && echo both")
    assert (done["code"], done["out"].strip()) == (0, "both"), done
    alone = runtime.run(claim.ids[NAME], "ls", "/dev/rtc0")
    assert alone["code"] != 0
    assert json.loads(guest.call("read", OTHERS_SPEC)) == other
    guest.run("rm", OTHERS_SPEC)


def test_an_absent_device_stops_the_start_and_a_replug_lets_it_start_again(
    guest: Guest, product: Product, claim: Claim, runtime: Runtime, plugs: Plugs, tell: Tell
) -> None:
    before = numbers(guest, delivered(product, claim))
    gone = product.waiting_for_spec(claim, {NAME: absent(NAME)})
    plugs.unplug(KEYBOARD)
    gone.result(120)
    product.agree(absent=[claim], lacks=[NAME])
    refused = runtime.run(claim.ids[NAME], "sh")
    assert refused["code"] != 0
    assert absent(NAME)[0] in refused["err"]
    tell(f"refused: {refused['err'].strip().splitlines()[-1]}")

    plugs.free(KEYBOARD)
    present = product.waiting_for_return(claim, nodes=3)
    began = plugs.plug(KEYBOARD)
    present.result(120)
    paths = delivered(product, claim)
    assert see(runtime, claim, paths) == numbers(guest, paths) != before
    tell(f"device_add to the end of a new container {time.monotonic() - began:.2f} s")
    product.agree(has=[NAME])
