"""Which device a claim gets on the local cluster."""

from typing import Any

import pytest

from common.claims import is_uid
from common.errors import RequestError
from services.console.allocate import allocate, holders, new_claim, offers, results_of

DRIVER = "liken.sh"


def a_slice(
    *devices: str, number: int = 1, count: int = 1, generation: int = 1, **changes: Any
) -> dict[str, Any]:
    shared = changes.get("shared", ())
    return {
        "metadata": {"name": f"n1-liken.sh-{number}"},
        "spec": {
            "driver": changes.get("driver", DRIVER),
            "pool": {"name": "n1", "generation": generation, "resourceSliceCount": count},
            "devices": [
                {"name": name} | ({"allowMultipleAllocations": True} if name in shared else {})
                for name in devices
            ],
        },
    }


def a_claim(name: str, *devices: str, slices: list[dict[str, Any]]) -> dict[str, Any]:
    return new_claim("default", name, allocate(devices, slices, [], DRIVER), "n1", DRIVER)


def test_an_exclusive_device_gives_one_result_with_its_pool() -> None:
    assert allocate(["usb-1-2-1-0"], [a_slice("usb-1-2-1-0")], [], DRIVER) == [
        {"request": "device-1", "driver": DRIVER, "pool": "n1", "device": "usb-1-2-1-0"}
    ]


def test_an_exclusive_device_that_a_claim_holds_is_refused_with_the_claims_name() -> None:
    slices = [a_slice("usb-1-2-1-0")]
    held = a_claim("first", "usb-1-2-1-0", slices=slices)
    with pytest.raises(RequestError, match="usb-1-2-1-0 is held by the claim default/first"):
        allocate(["usb-1-2-1-0"], slices, [held], DRIVER)


def test_a_shareable_device_goes_to_any_number_of_claims_each_with_its_own_share() -> None:
    slices = [a_slice("gpu", shared=("gpu",))]
    held = a_claim("first", "gpu", slices=slices)
    (first,) = results_of(held)
    (second,) = allocate(["gpu"], slices, [held], DRIVER)
    assert is_uid(first["shareID"])
    assert first["shareID"] != second["shareID"]


def test_one_claim_may_hold_a_shareable_device_twice_and_an_exclusive_one_once() -> None:
    slices = [a_slice("gpu", "card", shared=("gpu",))]
    twice = allocate(["gpu", "gpu"], slices, [], DRIVER)
    assert [result["request"] for result in twice] == ["device-1", "device-2"]
    with pytest.raises(RequestError, match="card cannot be shared, not even within one claim"):
        allocate(["card", "card"], slices, [], DRIVER)


def test_an_unknown_device_is_refused_with_near_names() -> None:
    with pytest.raises(RequestError, match=r"usb-1-2-1-1 is not published: did you mean usb-1-2-1-0\?"):
        allocate(["usb-1-2-1-1"], [a_slice("usb-1-2-1-0", "gpu")], [], DRIVER)


def test_before_anything_is_published_that_is_what_the_error_says() -> None:
    with pytest.raises(RequestError, match="no device is published yet"):
        allocate(["gpu"], [], [], DRIVER)


def test_a_pool_that_is_not_whole_offers_nothing() -> None:
    assert offers([a_slice("gpu", count=2)], DRIVER) == {}


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    old, new = a_slice("gone", generation=1), a_slice("there", number=2, generation=2)
    assert list(offers([old, new], DRIVER)) == ["there"]


def test_another_drivers_slices_are_not_ours_to_allocate() -> None:
    assert offers([a_slice("nic", driver="net.example")], DRIVER) == {}


def test_admin_access_holds_nothing() -> None:
    claim = a_claim("looker", "gpu", slices=[a_slice("gpu")])
    results_of(claim)[0]["adminAccess"] = True
    assert holders([claim], DRIVER) == {}


def test_a_claim_without_allocation_has_no_results() -> None:
    assert results_of({"metadata": {}}) == []
    assert results_of({"metadata": {}, "status": {"allocation": None}}) == []
