"""Answers that are JSON but not the API server's: an error in words that is tried again, never a crash."""

import random
from collections.abc import Iterator, Mapping
from typing import Any, cast

import pytest

from common.cluster import ClusterUnavailable, OutOfDate, Raw, Refused
from common.cluster.http import LONGEST_RETRY_AFTER_S, Api, Missing, failure
from common.cluster.kube import KubernetesCluster
from services.publisher.slices import slices
from tests.publishing import DRIVER, NODE, devices, inventory

BODY = slices(inventory(*devices(1)), NODE).slices[0]
STRANGE: list[Any] = [
    {},
    {"ok": True},
    {"metadata": None},
    {"metadata": []},
    {"metadata": {"name": 1}},
    {"metadata": {"name": "n"}, "spec": None},
    {"metadata": {"name": "n"}, "spec": {}},
    {"metadata": {"name": "n"}, "spec": {"pool": "p"}},
    {"metadata": {"name": "n"}, "spec": {"pool": {"name": "p"}, "devices": {}}},
    {"metadata": {"name": "n"}, "spec": {"pool": {"name": "p"}, "devices": [1]}},
]


class AnyApi:
    """Answers everything with the same object."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def request(self, *words: Any, **more: Any) -> Any:
        return self._answer

    def stream(self, path: str, query: Mapping[str, str], silence_s: float) -> Iterator[Any]:
        yield self._answer


def cluster(answer: Any) -> KubernetesCluster:
    return KubernetesCluster(NODE, DRIVER, "pod", cast(Api, AnyApi(answer)))


@pytest.mark.parametrize("answer", STRANGE, ids=str)
def test_what_is_no_slice_is_an_error_that_is_tried_again(answer: Any) -> None:
    with pytest.raises(ClusterUnavailable, match="proxy"):
        cluster(answer).apply_slice(BODY)
    with pytest.raises(ClusterUnavailable, match="proxy"):
        cluster({"metadata": {"resourceVersion": "1"}, "items": [BODY, answer]}).list_slices()
    with pytest.raises(ClusterUnavailable, match="proxy"):
        list(cluster({"type": "MODIFIED", "object": answer}).watch_slices("1"))


@pytest.mark.parametrize("answer", [{}, {"metadata": None}, {"metadata": {"name": NODE}}], ids=str)
def test_what_is_no_node_is_an_error_and_no_missing_node(answer: Raw) -> None:
    with pytest.raises(ClusterUnavailable, match="proxy"):
        cluster(answer).node_uid()


@pytest.mark.parametrize("items", [1, "x", {"a": 1}, [1], [None]], ids=str)
def test_a_list_of_something_else_is_an_error(items: object) -> None:
    with pytest.raises(ClusterUnavailable, match="proxy"):
        cluster({"metadata": {"resourceVersion": "1"}, "items": items}).list_slices()


@pytest.mark.parametrize("code", ["x", None, [], 410, 500], ids=str)
def test_an_error_event_of_any_form_ends_the_watch(code: object) -> None:
    status = {"code": code, "message": 1, "details": "gone"}
    with pytest.raises((ClusterUnavailable, OutOfDate)):
        list(cluster({"type": "ERROR", "object": status}).watch_slices("1"))


@pytest.mark.parametrize(
    "details", ["x", 1, [1], {"causes": 1}, {"retryAfterSeconds": "soon"}, None], ids=str
)
@pytest.mark.parametrize("status", [400, 404, 409, 422, 429, 503])
def test_details_of_any_form_are_no_crash(status: int, details: object) -> None:
    error = failure(status, "text", details, random.choice(["", "soon", "-1"]))
    assert isinstance(error, (Missing, OutOfDate, Refused, ClusterUnavailable))


@pytest.mark.parametrize("asked", ["9" * 400, "31536000", "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_nobody_is_left_alone_for_ever(asked: str) -> None:
    for error in (failure(429, "", None, asked), failure(503, "", {"retryAfterSeconds": 1e300})):
        assert isinstance(error, ClusterUnavailable)
        assert error.retry_after_s == LONGEST_RETRY_AFTER_S
