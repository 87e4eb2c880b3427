"""The Kubernetes adapter against the stand-in over real HTTP: what each answer, and no answer, means."""

import json
import shutil
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from common.cluster import (
    Cause,
    ClaimMissing,
    ClusterUnavailable,
    OutOfDate,
    Raw,
    Refused,
    SliceEvent,
)
from common.cluster.http import Api
from common.cluster.kube import KubernetesCluster
from common.errors import LikenError
from services.plugin.dra import PREPARE_THREADS
from services.publisher.slices import slices
from tests.publishing import DRIVER, NODE, device, devices, inventory
from tests.services.api_stand_in import ApiStandIn
from tests.waiting import eventually

TLS = Path(__file__).parent / "tls"
CLAIM: Raw = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"namespace": "default", "name": "screen", "uid": "u-1"},
    "status": {"allocation": {"devices": {"results": []}}},
}


@pytest.fixture
def api() -> Iterator[ApiStandIn]:
    with ApiStandIn() as made:
        made.store.add_node(NODE)
        made.store.add_claim(CLAIM)
        yield made


@pytest.fixture
def cluster(api: ApiStandIn, tmp_path: Path) -> Iterator[KubernetesCluster]:
    made = open_cluster(api.kubeconfig(tmp_path / "kubeconfig"))
    yield made
    made.close()


def open_cluster(kubeconfig: Path, silence_s: float = 30.0) -> KubernetesCluster:
    return KubernetesCluster(NODE, DRIVER, "pod-1", Api({"KUBECONFIG": str(kubeconfig)}), silence_s)


def body(count: int = 1) -> Raw:
    return slices(inventory(*devices(count)), NODE).slices[0]


def test_a_claim_is_read_as_the_server_holds_it(cluster: KubernetesCluster) -> None:
    assert cluster.claim("default", "screen", 5.0) == CLAIM


def test_a_missing_claim_is_said_with_its_name(cluster: KubernetesCluster) -> None:
    with pytest.raises(ClaimMissing, match="claim default/other does not exist"):
        cluster.claim("default", "other", 5.0)


@pytest.mark.parametrize("name", ["../../nodes/n1", "a/b", "%2e%2e", "a b?x=y"])
def test_a_strange_name_reaches_no_other_object(cluster: KubernetesCluster, name: str) -> None:
    with pytest.raises(ClaimMissing):
        cluster.claim("default", name, 5.0)


@pytest.mark.parametrize(
    "what", [401, 403, 429, 500, 503, "cut", "lost", "garbage", "trickle", "hang"], ids=str
)
def test_a_claim_that_cannot_be_read_is_an_error_in_time_and_works_again(
    api: ApiStandIn, cluster: KubernetesCluster, what: int | str
) -> None:
    fault = api.fail("get", what, times=2, resource="resourceclaims")  # a GET is sent twice when cut
    start = time.monotonic()

    with pytest.raises(ClusterUnavailable, match="claim default/screen cannot be read now"):
        cluster.claim("default", "screen", 0.5)

    assert time.monotonic() - start < 2.0
    fault.left = 0
    fault.end.set()
    assert cluster.claim("default", "screen", 5.0) == CLAIM


def test_a_read_that_is_sent_again_has_no_more_time_than_one_that_is_not(
    api: ApiStandIn, cluster: KubernetesCluster
) -> None:
    first = api.fail("get", "hang", resource="resourceclaims")
    second = api.fail("get", "hang", resource="resourceclaims")
    cutting = threading.Timer(1.6, first.end.set)
    start = time.monotonic()
    cutting.start()

    with pytest.raises(ClusterUnavailable, match="claim default/screen cannot be read now"):
        cluster.claim("default", "screen", 2.0)

    assert time.monotonic() - start < 3.0  # 3.6 when the second had all the time anew
    assert (first.met, second.met) == (1, 1)
    second.end.set()


def test_a_server_that_is_away_is_said_in_words(api: ApiStandIn, cluster: KubernetesCluster) -> None:
    api.stop()

    with pytest.raises(ClusterUnavailable, match="the API server cannot be reached"):
        cluster.claim("default", "screen", 1.0)

    api.start()
    assert cluster.claim("default", "screen", 5.0) == CLAIM


def test_connections_are_kept_between_reads_and_those_the_server_closed_do_no_harm(
    api: ApiStandIn, cluster: KubernetesCluster
) -> None:
    for _ in range(3):
        cluster.claim("default", "screen", 5.0)
    assert len(api.connections) == 1

    api.cut()

    assert cluster.claim("default", "screen", 5.0) == CLAIM


def test_many_threads_read_claims_at_once(cluster: KubernetesCluster) -> None:
    found: list[Raw] = []
    threads = [
        threading.Thread(
            target=lambda: found.extend(cluster.claim("default", "screen", 5.0) for _ in range(25))
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == [CLAIM] * 200


def test_as_many_connections_are_kept_as_claims_are_prepared_at_once(
    api: ApiStandIn, cluster: KubernetesCluster
) -> None:
    api.fail("get", "late", times=2 * PREPARE_THREADS, resource="resourceclaims", seconds=0.5)
    for _ in range(2):
        with ThreadPoolExecutor(PREPARE_THREADS) as threads:
            for _ in range(PREPARE_THREADS):
                threads.submit(cluster.claim, "default", "screen", 5.0)

    assert len(api.connections) == PREPARE_THREADS


@pytest.mark.parametrize("words", [("server", "/k8s/clusters/c-1"), ("proxy-url", "")], ids=str)
def test_a_server_may_lie_below_a_path_or_behind_a_proxy(tmp_path: Path, words: tuple[str, str]) -> None:
    asked: list[str] = []

    class Recorder(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            content = json.dumps(CLAIM).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    key, folder = words
    with ThreadingHTTPServer(("127.0.0.1", 0), Recorder) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        kubeconfig = ApiStandIn(port=9).kubeconfig(tmp_path / "kubeconfig")
        content = yaml.safe_load(kubeconfig.read_text())
        content["clusters"][0]["cluster"][key] = f"http://127.0.0.1:{server.server_address[1]}{folder}"
        kubeconfig.write_text(yaml.safe_dump(content))

        assert open_cluster(kubeconfig).claim("default", "screen", 5.0) == CLAIM
        server.shutdown()

    path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/screen"
    assert asked == [f"{folder}{path}" if folder else f"http://127.0.0.1:9{path}"]


def test_a_read_of_a_claim_costs_a_small_part_of_a_prepare(cluster: KubernetesCluster) -> None:
    times_ms = []
    for _ in range(100):
        start = time.perf_counter()
        cluster.claim("default", "screen", 5.0)
        times_ms.append((time.perf_counter() - start) * 1000)
    print(f"reading a claim takes {statistics.median(times_ms):.2f} ms in the median of {len(times_ms)}")

    assert statistics.median(times_ms) > 0


def test_the_uid_of_the_node_and_of_none(api: ApiStandIn, cluster: KubernetesCluster) -> None:
    assert cluster.node_uid() == api.store.nodes[NODE]["metadata"]["uid"]

    api.store.nodes.clear()

    assert cluster.node_uid() is None


def test_an_apply_returns_what_the_server_made_of_it(api: ApiStandIn, cluster: KubernetesCluster) -> None:
    api.store.dropped_fields = {"allowMultipleAllocations"}
    sent = slices(inventory(device("gpu", shareable=True)), NODE).slices[0]

    returned = cluster.apply_slice(sent)

    assert returned["spec"]["devices"] == [
        {k: v for k, v in sent["spec"]["devices"][0].items() if k != "allowMultipleAllocations"}
    ]
    assert returned["metadata"]["resourceVersion"] == str(api.store.version)


def test_text_that_is_json_but_not_yaml_arrives_unchanged(cluster: KubernetesCluster) -> None:
    odd = '\x01\t\n\x7f\x85\x9f\u2028\ufeff\U0001f600"\\'

    returned = cluster.apply_slice(
        slices(inventory(device("usb-1", {"name": {"string": odd}})), NODE).slices[0]
    )

    assert returned["spec"]["devices"][0]["attributes"]["name"] == {"string": odd}


def test_an_apply_names_its_manager_and_takes_the_fields(api: ApiStandIn, cluster: KubernetesCluster) -> None:
    cluster.apply_slice(body())

    assert api.log[-1].query == {"fieldManager": "liken", "force": "true"}


def test_an_apply_onto_an_outdated_version_is_not_done(cluster: KubernetesCluster) -> None:
    held = cluster.apply_slice(body(1))
    cluster.apply_slice(body(2))
    outdated = {
        **body(3),
        "metadata": {**body(3)["metadata"], "resourceVersion": held["metadata"]["resourceVersion"]},
    }

    with pytest.raises(OutOfDate):
        cluster.apply_slice(outdated)

    assert len(cluster.list_slices().items[0]["spec"]["devices"]) == 2


def test_a_refused_slice_says_where_it_is_wrong(cluster: KubernetesCluster) -> None:
    wrong = body(3)
    wrong["spec"]["devices"][1]["name"] = "Not_A_Label"

    with pytest.raises(Refused) as caught:
        cluster.apply_slice(wrong)

    assert caught.value.causes == (Cause("spec.devices[1].name", "must be a DNS label"),)


WRITES: list[tuple[int | str, type[LikenError]]] = [
    (400, Refused),
    (403, ClusterUnavailable),
    (404, ClusterUnavailable),
    (409, OutOfDate),
    (422, Refused),
    (429, ClusterUnavailable),
    (500, ClusterUnavailable),
    (503, ClusterUnavailable),
    ("cut", ClusterUnavailable),
    ("lost", ClusterUnavailable),
    ("garbage", ClusterUnavailable),
]


@pytest.mark.parametrize(("what", "error"), WRITES, ids=str)
def test_each_failed_write_is_one_of_three_errors(
    api: ApiStandIn, cluster: KubernetesCluster, what: int | str, error: type[LikenError]
) -> None:
    api.fail("apply", what)

    with pytest.raises(error):
        cluster.apply_slice(body())

    assert api.count("apply") == 1  # a write is never repeated by itself


@pytest.mark.parametrize("text", ["7", "date"])
def test_how_long_the_server_wants_to_be_left_alone_is_passed_on(
    api: ApiStandIn, cluster: KubernetesCluster, text: str
) -> None:
    if text == "date":
        text = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 8))
    api.fail("apply", 429, headers={"Retry-After": text})

    with pytest.raises(ClusterUnavailable) as caught:
        cluster.apply_slice(body())

    assert 6.0 < caught.value.retry_after_s <= 8.0


def test_a_deletion_spares_an_object_that_changed_meanwhile(cluster: KubernetesCluster) -> None:
    held = cluster.apply_slice(body(1))
    cluster.apply_slice(body(2))

    with pytest.raises(OutOfDate):
        cluster.delete_slice(held)

    assert len(cluster.list_slices().items) == 1


def test_deleting_what_is_gone_is_fine(cluster: KubernetesCluster) -> None:
    held = cluster.apply_slice(body())

    cluster.delete_slice(held)
    cluster.delete_slice(held)

    assert cluster.list_slices().items == []


def test_only_our_own_slices_are_listed(api: ApiStandIn, cluster: KubernetesCluster) -> None:
    for node, driver in ((NODE, DRIVER), ("n2", DRIVER), (NODE, "other.io")):
        item = slices(inventory(), node, driver=driver).slices[0]
        api.store.apply(item["metadata"]["name"], item)

    assert [item["metadata"]["name"] for item in cluster.list_slices().items] == ["n1-liken.sh"]
    assert api.log[-1].query["fieldSelector"] == "spec.driver=liken.sh,spec.nodeName=n1"


class Watch:
    """A watch in a thread of its own, as the publisher runs it."""

    def __init__(self, cluster: KubernetesCluster, version: str) -> None:
        self.events: list[SliceEvent] = []
        self.error: Exception | None = None
        self._cluster = cluster
        self._version = version
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            for event in self._cluster.watch_slices(self._version):
                self.events.append(event)
        except LikenError as error:
            self.error = error

    def ended(self) -> bool:
        return not self.thread.is_alive()


def test_a_watch_tells_each_change_in_order(api: ApiStandIn, cluster: KubernetesCluster) -> None:
    watch = Watch(cluster, cluster.list_slices().version)

    held = cluster.apply_slice(body(1))
    cluster.apply_slice(body(2))
    api.store.delete("n1-liken.sh")
    eventually(lambda: len(watch.events) == 3, what="three events")

    assert [event.kind for event in watch.events] == ["ADDED", "MODIFIED", "DELETED"]
    assert watch.events[0].object == held


def test_a_watch_that_the_server_ends_ends_without_an_error(
    api: ApiStandIn, cluster: KubernetesCluster
) -> None:
    watch = Watch(cluster, cluster.list_slices().version)
    eventually(lambda: api.open_watches == 1, what="the watch is open")

    api.close_watches()
    eventually(watch.ended, what="the watch has ended")

    assert watch.error is None


def test_a_watch_ends_when_the_cluster_is_closed(api: ApiStandIn, cluster: KubernetesCluster) -> None:
    watch = Watch(cluster, cluster.list_slices().version)
    eventually(lambda: api.open_watches == 1, what="the watch is open")

    cluster.close()
    eventually(watch.ended, what="the watch has ended")

    assert watch.error is None


def test_a_watch_whose_answer_comes_after_the_cluster_is_closed_ends_at_once(
    api: ApiStandIn, cluster: KubernetesCluster
) -> None:
    version = cluster.list_slices().version
    cluster.close()
    watch = Watch(cluster, version)
    eventually(watch.ended, what="the watch has ended")
    assert watch.error is None


def test_a_version_that_is_too_old_is_out_of_date_at_the_start_and_in_the_middle(
    api: ApiStandIn, cluster: KubernetesCluster
) -> None:
    version = cluster.list_slices().version
    watch = Watch(cluster, version)
    eventually(lambda: api.open_watches == 1, what="the watch is open")

    api.store.forget()
    eventually(watch.ended, what="the watch has ended")

    assert isinstance(watch.error, OutOfDate)
    with pytest.raises(OutOfDate):
        next(cluster.watch_slices(version))


def test_a_watch_that_falls_silent_is_given_up(api: ApiStandIn, tmp_path: Path) -> None:
    api.bookmark_s = 0.1
    cluster = open_cluster(api.kubeconfig(tmp_path / "kubeconfig"), silence_s=0.5)
    watch = Watch(cluster, cluster.list_slices().version)
    eventually(lambda: len(watch.events) > 8, what="bookmarks for longer than the silence that is allowed")
    assert not watch.ended()

    api.muted.set()
    eventually(watch.ended, 3.0, "the watch has ended")

    assert isinstance(watch.error, ClusterUnavailable)


@pytest.mark.parametrize("what", [403, 429, 500, "cut", "garbage"], ids=str)
def test_a_watch_that_is_not_to_be_had_is_an_error(
    api: ApiStandIn, cluster: KubernetesCluster, what: int | str
) -> None:
    version = cluster.list_slices().version
    api.fail("watch", what, times=2)

    with pytest.raises(ClusterUnavailable):
        next(cluster.watch_slices(version))


def test_each_watch_is_given_a_length_of_its_own(api: ApiStandIn, cluster: KubernetesCluster) -> None:
    version = cluster.list_slices().version
    for _ in range(5):
        api.fail("watch", 500)
        with pytest.raises(ClusterUnavailable):
            next(cluster.watch_slices(version))

    lengths = {int(seen.query["timeoutSeconds"]) for seen in api.log if seen.verb == "watch"}
    assert len(lengths) > 1
    assert all(2400 <= length <= 3600 for length in lengths)


def test_an_event_is_about_our_node(api: ApiStandIn, cluster: KubernetesCluster) -> None:
    uid = cluster.node_uid()

    cluster.event("DevicesOverflow", "ä" * 2000, warning=True)

    (event,) = api.store.events
    assert event["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": uid}
    assert (event["reason"], event["type"], event["reportingInstance"]) == (
        "DevicesOverflow",
        "Warning",
        "pod-1",
    )
    assert event["note"] == "ä" * 512


def test_a_token_file_that_changed_is_read_again(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    with ApiStandIn(token="first") as api:
        cluster = open_cluster(api.kubeconfig(tmp_path / "kubeconfig", token_file=token))
        cluster.apply_slice(body())

        api.token = "second"
        with pytest.raises(ClusterUnavailable, match="401"):
            cluster.apply_slice(body())
        token.write_text("second")

        assert len(cluster.list_slices().items) == 1


def test_a_ca_file_that_changed_is_read_again(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    shutil.copy(TLS / "one.pem", ca)
    with ApiStandIn(certificate=(TLS / "one.pem", TLS / "one.key")) as first:
        kubeconfig = first.kubeconfig(tmp_path / "kubeconfig", ca_file=ca)
        cluster = open_cluster(kubeconfig)
        cluster.apply_slice(body())
        port = first.port

    with ApiStandIn(first.store, port=port, certificate=(TLS / "two.pem", TLS / "two.key")):
        with pytest.raises(ClusterUnavailable, match="certificate verify failed"):
            cluster.list_slices()
        shutil.copy(TLS / "two.pem", ca)

        assert len(cluster.list_slices().items) == 1


def test_a_pod_uses_its_service_account_and_follows_its_token(tmp_path: Path) -> None:
    shutil.copy(TLS / "one.pem", tmp_path / "ca.crt")
    (tmp_path / "token").write_text("first")
    with ApiStandIn(token="first", certificate=(TLS / "one.pem", TLS / "one.key")) as api:
        pod = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(api.port)}
        cluster = KubernetesCluster(NODE, DRIVER, "pod-1", Api(pod, tmp_path))
        cluster.apply_slice(body())

        api.token = "second"
        (tmp_path / "token").unlink()
        with pytest.raises(ClusterUnavailable, match="no credentials"):
            cluster.list_slices()
        (tmp_path / "token").write_text("second")

        assert len(cluster.list_slices().items) == 1


@pytest.mark.parametrize("content", [None, "", "[", "clusters: 5", "{}", "users: [5]", "users: [{user: 5}]"])
def test_credentials_that_are_no_use_are_said_in_one_line(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_text(content)

    with pytest.raises(ClusterUnavailable, match="no credentials for the API server") as caught:
        open_cluster(path).claim("default", "screen", 1.0)

    assert "\n" not in str(caught.value)


def test_credentials_that_come_later_are_found(api: ApiStandIn, tmp_path: Path) -> None:
    cluster = open_cluster(tmp_path / "kubeconfig")
    cluster.warm()
    with pytest.raises(ClusterUnavailable):
        cluster.list_slices()

    api.kubeconfig(tmp_path / "kubeconfig")

    assert cluster.claim("default", "screen", 5.0) == CLAIM
