"""slices(): names, owner, pool, generation, assignment, and what is left out."""

from typing import Any

import pytest

from common.cluster import Cause, Raw, Refused
from common.inventory import AttributeValue
from services.publisher.refusals import Refusals
from services.publisher.slices import (
    MAX_DEVICES,
    MAX_GENERATION,
    MAX_OBJECT_NAME,
    MAX_SLICE_DEVICES,
    Wanted,
    devices_of,
    slice_name,
    slice_number,
    slices,
)
from tests.publishing import DRIVER, NODE, device, devices, inventory
from tests.services.api_store import SUBDOMAIN, ApiStore


def names(item: Raw) -> list[str]:
    return [entry["name"] for entry in devices_of(item)]


def homes(wanted: Wanted) -> dict[str, list[str]]:
    return {item["metadata"]["name"]: names(item) for item in wanted.slices}


def pools(wanted: Wanted) -> set[tuple[int, int]]:
    return {(i["spec"]["pool"]["generation"], i["spec"]["pool"]["resourceSliceCount"]) for i in wanted.slices}


def test_a_node_without_devices_has_one_empty_slice() -> None:
    wanted = slices(inventory(), NODE, node_uid="u1")

    assert wanted.slices == (
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {
                "name": "n1-liken.sh",
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1", "controller": True}
                ],
            },
            "spec": {
                "driver": "liken.sh",
                "nodeName": "n1",
                "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
                "devices": [],
            },
        },
    )


def test_a_device_is_published_with_its_attributes_and_whether_it_can_be_shared() -> None:
    found = inventory(
        device("pci-0000-00-02-0", {"renderNode": {"bool": True}}, shareable=True),
        device("pci-0000-00-02-0-display"),
    )

    entries = devices_of(slices(found, NODE).slices[0])

    common = {"bus": {"string": "usb"}, "class": {"string": "hid"}}
    assert entries == [
        {
            "name": "pci-0000-00-02-0",
            "attributes": {**common, "address": {"string": "pci-0000-00-02-0"}, "renderNode": {"bool": True}},
            "allowMultipleAllocations": True,
        },
        {
            "name": "pci-0000-00-02-0-display",
            "attributes": {**common, "address": {"string": "pci-0000-00-02-0-display"}},
        },
    ]


def test_a_cluster_without_nodes_gets_slices_without_an_owner() -> None:
    assert "ownerReferences" not in slices(inventory(), NODE).slices[0]["metadata"]


def test_the_order_of_the_inventory_does_not_matter() -> None:
    some = devices(5)

    assert slices(inventory(*some), NODE) == slices(inventory(*reversed(some)), NODE)


def test_129_devices_make_two_slices_of_one_pool_and_one_generation() -> None:
    wanted = slices(inventory(*devices(129)), NODE)

    assert {name: len(entries) for name, entries in homes(wanted).items()} == {
        "n1-liken.sh": 128,
        "n1-liken.sh-2": 1,
    }
    assert pools(wanted) == {(1, 2)}
    assert wanted.overflow == ()


def test_a_130th_device_moves_no_other_and_keeps_the_generation() -> None:
    before = slices(inventory(*devices(129)), NODE)
    first = device("aaa")  # sorts before all others

    after = slices(inventory(*devices(129), first), NODE, before.slices)

    assert after.slices[0] == before.slices[0]
    assert names(after.slices[1]) == ["aaa", *names(before.slices[1])]
    assert pools(after) == {(1, 2)}


def test_a_device_that_leaves_makes_room_for_the_next_in_its_slice() -> None:
    many = devices(200)
    before = slices(inventory(*many), NODE)

    fewer = slices(inventory(*many[1:]), NODE, before.slices)
    again = slices(inventory(*many[1:], device("zzz")), NODE, fewer.slices)

    assert names(again.slices[0]) == [*names(before.slices[0])[1:], "zzz"]
    assert again.slices[1]["spec"]["devices"] == before.slices[1]["spec"]["devices"]


def test_a_new_slice_means_a_new_generation_and_count_in_all() -> None:
    before = slices(inventory(*devices(128)), NODE)

    assert pools(slices(inventory(*devices(129)), NODE, before.slices)) == {(2, 2)}


def test_an_emptied_further_slice_is_not_wanted_any_more() -> None:
    before = slices(inventory(*devices(129)), NODE)

    after = slices(inventory(*devices(128)), NODE, before.slices)

    assert homes(after) == {"n1-liken.sh": names(before.slices[0])}
    assert pools(after) == {(2, 1)}


def test_an_emptied_first_slice_stays_so_that_no_device_moves() -> None:
    many = devices(129)
    before = slices(inventory(*many), NODE)

    after = slices(inventory(many[-1]), NODE, before.slices)

    assert homes(after) == {"n1-liken.sh": [], "n1-liken.sh-2": [many[-1].name]}


def test_changes_in_two_slices_are_a_new_generation() -> None:
    many = devices(200)
    before = slices(inventory(*many), NODE)

    after = slices(inventory(*many[1:-1]), NODE, before.slices)

    assert pools(after) == {(2, 2)}


def test_nothing_new_changes_nothing() -> None:
    before = slices(inventory(*devices(300)), NODE)

    assert slices(inventory(*devices(300)), NODE, before.slices) == before


def test_a_slice_that_somebody_removed_comes_back_as_it_was() -> None:
    many = inventory(*devices(300))
    before = slices(many, NODE)

    after = slices(many, NODE, [before.slices[0], before.slices[2]], homes=before.homes)

    assert after == before


def test_a_half_written_generation_is_completed_when_what_is_there_is_right() -> None:
    old = slices(inventory(*devices(200)), NODE)
    new = slices(inventory(*devices(199)[1:]), NODE, old.slices)
    assert pools(new) == {(2, 2)}

    after = slices(inventory(*devices(199)[1:]), NODE, [new.slices[0], old.slices[1]])

    assert after.slices == new.slices


def test_a_half_written_generation_with_the_wrong_content_is_replaced_by_another() -> None:
    old = slices(inventory(*devices(200)), NODE)
    new = slices(inventory(*devices(199)[1:]), NODE, old.slices)

    after = slices(inventory(*devices(200)[2:]), NODE, [new.slices[0], old.slices[1]])

    assert pools(after) == {(3, 2)}


def test_a_foreign_slice_in_our_pool_is_outdone_by_a_new_generation() -> None:
    ours = slices(inventory(*devices(2)), NODE)
    foreign = {**ours.slices[0], "metadata": {"name": "odd"}}

    assert pools(slices(inventory(*devices(2)), NODE, [ours.slices[0], foreign])) == {(2, 1)}


def test_the_highest_generation_there_is_starts_again_at_one() -> None:
    ours = slices(inventory(*devices(128)), NODE).slices[0]
    pool = {**ours["spec"]["pool"], "generation": MAX_GENERATION}
    last = {**ours, "spec": {**ours["spec"], "pool": pool}}

    assert pools(slices(inventory(*devices(129)), NODE, [last])) == {(1, 2)}


def test_1024_devices_are_published_and_the_last_names_beyond_are_told() -> None:
    wanted = slices(inventory(*devices(1030)), NODE)

    assert len(wanted.slices) == MAX_DEVICES // MAX_SLICE_DEVICES
    assert len(wanted.homes) == MAX_DEVICES
    assert wanted.overflow == tuple(item.name for item in devices(1030)[1024:])


def test_overflow_never_drops_the_device_of_a_prepared_claim() -> None:
    last = devices(1030)[-1].name

    wanted = slices(inventory(*devices(1030)), NODE, held={last})

    assert last in wanted.homes
    assert wanted.overflow == tuple(item.name for item in devices(1029)[1023:])


def test_a_published_device_stays_when_one_with_a_lower_name_comes_or_a_claim_ends() -> None:
    last = devices(1024, "b")[-1].name
    before = slices(inventory(*devices(1024, "b")), NODE, held={last})

    for held in ({last}, frozenset[str](), None):
        wanted = slices(
            inventory(*devices(1024, "b"), *devices(3, "a")),
            NODE,
            before.slices,
            held=held,
            homes=before.homes,
        )
        assert wanted.slices == before.slices
        assert wanted.overflow == ("a-0000", "a-0001", "a-0002")


def test_a_claimed_device_takes_the_place_of_one_that_is_only_published() -> None:
    before = slices(inventory(*devices(1024, "b")), NODE)

    wanted = slices(inventory(*devices(1024, "b"), *devices(1, "z")), NODE, before.slices, held={"z-0000"})

    assert "z-0000" in wanted.homes
    assert wanted.overflow == ("b-1023",)


def test_while_nobody_knows_the_claims_overflow_drops_only_what_is_not_published_yet() -> None:
    before = slices(inventory(*devices(1024, "b")), NODE)

    wanted = slices(inventory(*devices(1024, "b"), *devices(3, "a")), NODE, before.slices, held=None)

    assert wanted.slices == before.slices
    assert wanted.overflow == ("a-0000", "a-0001", "a-0002")


@pytest.mark.parametrize("length", [200, 230, 238, 239, 240, 250, 253])
def test_every_node_name_gives_valid_and_distinct_slice_names(length: int) -> None:
    node = ("a" * 62 + ".") * 5
    node = node[: length - 1] + "z"

    found = [slice_name(node, DRIVER, number) for number in (1, 2, 8, 1024)]

    assert all(SUBDOMAIN.fullmatch(name) and len(name) <= MAX_OBJECT_NAME for name in found)
    assert [slice_number(name, node, DRIVER) for name in found] == [1, 2, 8, 1024]
    assert len(set(found)) == 4


def test_two_long_node_names_that_begin_alike_have_different_slices() -> None:
    one, other = "n" * 252 + "a", "n" * 252 + "b"

    assert slice_name(one, DRIVER, 1) != slice_name(other, DRIVER, 1)


@pytest.mark.parametrize(
    "name",
    ["n1-liken.sh-", "n1-liken.sh-x", "n1-liken.sh-1", "n1-liken.sh-02", "n1-liken.sh-99999", "n2-liken.sh"],
)
def test_other_names_are_not_ours(name: str) -> None:
    assert slice_number(name, NODE, DRIVER) is None


HOSTILE: list[tuple[str, dict[str, Any], str]] = [
    ("serial", {"string": "x" * 65}, "65 bytes"),
    ("name", {"string": "ä" * 33}, "66 bytes"),
    ("name", {"string": "a\udc80"}, "UTF-8"),
    ("with-dash", {"string": "x"}, "C identifier"),
    ("a" * 33, {"string": "x"}, "C identifier"),
    ("Bad_Domain/x", {"string": "x"}, "DNS subdomain"),
    ("liken.sh/address", {"string": "x"}, "twice"),
    ("two", {"string": "x", "bool": True}, "exactly one"),
    ("none", {}, "exactly one"),
    ("float", {"int": 1.5}, "float"),
    ("number", {"int": True}, "bool"),
    ("large", {"int": 2**63}, "64 bits"),
    ("odd", {"strings": "x"}, "kind"),
    ("release", {"version": "2.10"}, "semantic version"),
    ("release", {"version": "1.02.3"}, "semantic version"),
]


@pytest.mark.parametrize(("name", "value", "reason"), HOSTILE)
def test_an_attribute_that_the_api_would_refuse_is_left_out_alone(
    name: str, value: dict[str, Any], reason: str
) -> None:
    bad = device("usb-1-1", {"vendor": {"string": "1a6e"}, name: value})

    wanted = slices(inventory(bad, device("usb-1-2")), NODE)

    assert [(item.device, item.attribute) for item in wanted.left_out] == [("usb-1-1", name)]
    assert reason in wanted.left_out[0].reason
    assert (
        wanted.slices
        == slices(
            inventory(device("usb-1-1", {"vendor": {"string": "1a6e"}}), device("usb-1-2")), NODE
        ).slices
    )
    assert ApiStore().apply("n1-liken.sh", wanted.slices[0])[1]


@pytest.mark.parametrize("name", ["Usb-1", "-usb", "usb-", "a" * 64, "", "usb.1", "usb_1"])
def test_a_device_whose_name_the_api_would_refuse_is_left_out_alone(name: str) -> None:
    wanted = slices(inventory(device(name), device("usb-1-2")), NODE)

    assert list(wanted.homes) == ["usb-1-2"]
    assert [(item.device, item.attribute) for item in wanted.left_out] == [(name, "")]


def test_of_two_devices_with_one_name_one_is_published() -> None:
    wanted = slices(inventory(device("usb-1"), device("usb-1")), NODE)

    assert names(wanted.slices[0]) == ["usb-1"]
    assert [str(item) for item in wanted.left_out] == [
        "device usb-1 is not published: another device has the same name"
    ]


def test_a_33rd_attribute_is_left_out() -> None:
    many: dict[str, AttributeValue] = {f"a{number:02d}": {"string": "x"} for number in range(40)}

    wanted = slices(inventory(device("usb-1", many)), NODE)

    assert len(devices_of(wanted.slices[0])[0]["attributes"]) == 32
    assert len(wanted.left_out) == 11
    assert ApiStore().apply("n1-liken.sh", wanted.slices[0])[1]


@pytest.mark.parametrize("version", ["1.2.3", "0.0.0-rc.1+build.5", "10.20.30-alpha.1"])
def test_a_semantic_version_is_published(version: str) -> None:
    wanted = slices(inventory(device("usb-1", {"release": {"version": version}})), NODE)

    assert devices_of(wanted.slices[0])[0]["attributes"]["release"] == {"version": version}


def test_a_refusal_that_names_a_device_that_has_gone_meanwhile_teaches_nothing() -> None:
    body = slices(inventory(*devices(2)), NODE).slices[0]
    refused = Refused("no", (Cause("spec.devices[1].name", "bad"), Cause("spec.devices[7].name", "bad")))

    assert Refusals().learn(refused, body, devices(1)) is False
    assert Refusals().learn(refused, body, devices(2)) is True
