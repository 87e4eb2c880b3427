"""The DaemonSet of deploy/, with the images of `make images`, on the real node."""

import os
import shlex
import signal
import time
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from common.settings import SERVICES, Service
from tests.cluster.accounts import LIKEN
from tests.cluster.api import Api, Object
from tests.cluster.archives import IMAGES_AT, TAG
from tests.cluster.binaries import find
from tests.cluster.conftest import Tell
from tests.cluster.control_plane import ControlPlane
from tests.cluster.covers import CDI, KUBELET
from tests.cluster.node import Worker
from tests.cluster.objects import DEPLOY, NAMESPACE, claim, clear, pod, running
from tests.cluster.played import PlayedMachine
from tests.cluster.processes import run
from tests.cluster.starts import WAITS_AT_MOST_S, delays_of_pods_while, described, failures, longest_wait_s
from tests.services.test_documented_commands import commands
from tests.unit.test_documents import PAGES
from tests.waiting import eventually

PORTS: dict[Service, int] = {"watcher": 9200, "publisher": 9201, "plugin": 9202, "reconciler": 9203}
NEXT_TAG = "0.1.0-next"
FIRST = 'device.attributes["liken.sh"].address == "0000:00:05.0"'
# The played machine in place of the node's own hardware; all else is as shipped.
PATCH = """
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: liken
  namespace: liken
spec:
  template:
    spec:
      containers:
{containers}
      volumes:
        - name: played
          hostPath: {{path: {machine}, type: Directory}}
"""
CONTAINER = """
        - name: {name}
          env: [{{name: LIKEN_ROOT, value: /played}}]
          volumeMounts: [{{name: played, mountPath: /played, readOnly: true}}]
"""


def kubectl_lines() -> list[str]:
    return sorted({line for page in PAGES for line in commands(page) if line.startswith("kubectl ")})


@pytest.fixture(scope="module")
def driver(
    control_plane: ControlPlane, worker: Worker, machine: PlayedMachine, folder: Path
) -> Iterator[list[Object]]:
    """The DaemonSet is rolled out and has published the node; the manifests it was made from."""
    images = os.environ.get(IMAGES_AT)
    if not images:
        pytest.skip("there are no images: see what `make test-cluster` printed at its start")
    for archive in sorted(Path(images).glob("*.oci.tar")):
        worker.import_images(archive)
    things = _manifests(folder / "deploy", machine)
    for thing in things:
        control_plane.api.apply(thing)
    try:
        eventually(lambda: _pods(control_plane.api), 30, "the DaemonSet makes a pod")
        _await_ready(control_plane.api, machine)
        yield things
    finally:
        # the account and the policy stay: other modules use them
        control_plane.api.delete("DaemonSet", "liken", LIKEN)
        eventually(partial(_gone, control_plane.api), 60, "the driver's pod is gone", step_s=0.1)
        machine.listeners.clear()
        control_plane.api.delete_all("ResourceSlice")


@pytest.fixture
def api(driver: list[Object], worker: Worker) -> Iterator[Api]:
    yield worker.api
    clear(worker.api)


def test_four_containers_are_ready_and_none_was_restarted(api: Api) -> None:
    statuses = _statuses(api)

    assert {
        name: (status["ready"], status["restartCount"]) for name, status in statuses.items()
    } == dict.fromkeys(SERVICES, (True, 0))


def test_a_claim_works_and_its_pod_ends_cleanly(api: Api) -> None:
    api.create(claim("first", "played", FIRST))
    api.create(pod("first", claim="first"))
    running(api, "first")
    uid = api.get("ResourceClaim", "first", NAMESPACE)["metadata"]["uid"]
    spec = CDI / f"liken.sh-device_{uid}.json"
    assert spec.exists()

    api.delete_and_wait("Pod", "first", NAMESPACE)

    assert not spec.exists()
    assert list((KUBELET / "plugins/liken.sh/claims").glob(f"*/{uid}*")) == []


def test_no_process_has_a_capability_or_can_get_one(api: Api) -> None:
    facts = {name: _process_facts(_process(name)) for name in SERVICES}

    nothing = {"Uid": "0", "CapEff": "0" * 16, "CapPrm": "0" * 16, "CapBnd": "0" * 16, "CapAmb": "0" * 16}
    confined = nothing | {"NoNewPrivs": "1", "Seccomp": "2"}
    assert facts == dict.fromkeys(SERVICES, confined)


def test_all_four_ports_can_be_scraped_and_say_ready(api: Api) -> None:
    address = _pod(api)["status"]["podIP"]

    for name, port in PORTS.items():
        assert "liken_build_info" in _get(f"http://{address}:{port}/metrics"), name
        assert _get(f"http://{address}:{port}/healthz"), name
        assert _get(f"http://{address}:{port}/readyz"), name


@pytest.mark.parametrize("line", kubectl_lines())
def test_a_command_that_a_page_shows_works_as_it_stands(
    api: Api, control_plane: ControlPlane, line: str
) -> None:
    words = shlex.split(line.replace("NODE-liken.sh", "worker-liken.sh"))[1:]
    if words[0] in ("apply", "delete"):
        words += ["--dry-run=server"]  # the driver of this module stays as it is
    api.create(claim("first", "played", FIRST))  # so that every list has something to show

    assert run(find("kubectl"), f"--kubeconfig={control_plane.kubeconfig}", *words)


@pytest.mark.parametrize("victim", SERVICES)
def test_a_killed_process_takes_no_other_with_it_and_work_goes_on(
    api: Api, machine: PlayedMachine, victim: Service, tell: Tell
) -> None:
    before = {name: status["restartCount"] for name, status in _statuses(api).items()}
    begun = time.monotonic()

    os.kill(_process(victim), signal.SIGKILL)
    _claim_and_run(api, f"during-{victim}")
    prepared_s = time.monotonic() - begun
    eventually(lambda: _statuses(api)[victim]["restartCount"] > before[victim], 60, f"{victim} restarted")
    _await_ready(api, machine)
    _see_new_hardware(api, machine)
    _claim_and_run(api, f"after-{victim}")

    after = {name: status["restartCount"] for name, status in _statuses(api).items()}
    tell(f"{victim} killed: a pod with a claim ran {prepared_s:.1f} s later")
    assert after == before | {victim: before[victim] + 1}


def test_a_rolling_update_fails_no_pod_that_starts_meanwhile(
    api: Api,
    driver: list[Object],
    worker: Worker,
    control_plane: ControlPlane,
    machine: PlayedMachine,
    tell: Tell,
) -> None:
    for name in SERVICES:
        _tag(worker, f"liken-{name}")
    old = _pod(api)["metadata"]["name"]
    updated = next(thing for thing in driver if thing["kind"] == "DaemonSet")
    for container in updated["spec"]["template"]["spec"]["containers"]:
        container["image"] = container["image"].replace(f":{TAG}", f":{NEXT_TAG}")

    def roll() -> None:
        api.apply(updated)
        eventually(lambda: old not in _pod_names(api), 90, "the old pod is gone")
        _await_ready(api, machine)

    delays = delays_of_pods_while(control_plane, roll)

    tell(f"rolled to {NEXT_TAG}: {described(delays)}")
    assert failures(api) == []
    assert longest_wait_s(delays) < WAITS_AT_MOST_S


def _manifests(target: Path, machine: PlayedMachine) -> list[Object]:
    """deploy/base with the played machine mounted, by kustomize as an administrator would."""
    target.mkdir()
    containers = "".join(CONTAINER.format(name=name) for name in SERVICES if name != "publisher")
    (target / "patch.yaml").write_text(PATCH.format(containers=containers, machine=machine.root))
    base = os.path.relpath(DEPLOY / "base", target)
    kustomization = {"resources": [base], "patches": [{"path": "patch.yaml"}]}
    (target / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    built = run(find("kubectl"), "kustomize", target)
    return [thing for thing in yaml.safe_load_all(built) if thing]


def _pods(api: Api) -> list[Object]:
    return api.list("Pod", LIKEN, labelSelector="app.kubernetes.io/name=liken")


def _pod_names(api: Api) -> set[str]:
    return {one["metadata"]["name"] for one in _pods(api)}


def _gone(api: Api) -> bool:
    return not api.list("Pod", LIKEN)


def _pod(api: Api) -> Object:
    """The only pod of the driver."""
    (only,) = _pods(api)
    return only


def _statuses(api: Api) -> dict[str, Object]:
    return {status["name"]: status for status in _pod(api)["status"].get("containerStatuses", [])}


def _await_ready(api: Api, machine: PlayedMachine) -> None:
    """Wait until all four are ready and the slice is there; point the played uevents at the pod."""

    def ready() -> bool:
        statuses = _statuses(api)
        return len(statuses) == len(SERVICES) and all(status["ready"] for status in statuses.values())

    try:
        eventually(ready, 90, "four containers are ready", step_s=0.1)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{_why(api)}") from error
    uid = _pod(api)["metadata"]["uid"]
    machine.listeners[:] = [KUBELET / f"pods/{uid}/volumes/kubernetes.io~empty-dir/run/uevents.sock"]
    eventually(lambda: api.find("ResourceSlice", "worker-liken.sh"), 30, "the slice is published", step_s=0.1)


def _why(api: Api) -> str:
    """What is to be known of a pod that does not get ready."""
    lines = []
    for each in _pods(api):
        found = api.list("Event", LIKEN, fieldSelector=f"involvedObject.name={each['metadata']['name']}")
        lines += [f"{event['reason']}: {event['message']}" for event in found]
        for name in SERVICES:
            log = f"{each['metadata']['name']}/log?container={name}&tailLines=5"
            path = f"/api/v1/namespaces/{LIKEN}/pods/{log}"
            try:
                lines.append(f"{name}: {api.call('GET', path)}")
            except Exception as error:  # noqa: BLE001 - only told
                lines.append(f"{name}: no log ({error})")
    return "\n".join(lines)


def _process(name: Service) -> int:
    """The process of a container, as this tier's process namespace numbers it."""
    wanted = f"services.{name}"
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode().split("\0")
        except OSError:
            continue  # it has ended
        if wanted in words:
            return int(path.parent.name)
    raise AssertionError(f"no process runs {wanted}")


def _process_facts(pid: int) -> dict[str, str]:
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    names = ("Uid", "CapEff", "CapPrm", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")
    return {name: lines[name].split()[0] for name in names}


def _claim_and_run(api: Api, name: str) -> None:
    api.create(claim(name, "gpu-render"))
    api.create(pod(name, claim=name))
    running(api, name, timeout_s=60)


def _see_new_hardware(api: Api, machine: PlayedMachine) -> None:
    """A slice update works: hardware that comes is published, and gone when it goes."""

    def published() -> bool:
        item = api.get("ResourceSlice", "worker-liken.sh")
        return "pci-0000-00-08-0" in {device["name"] for device in item["spec"]["devices"]}

    place = machine.add_hidraw("0000:00:08.0", 8, "loop6", announce=True)
    eventually(published, 15, "new hardware is published", step_s=0.05)
    machine.remove(place)
    eventually(lambda: not published(), 15, "hardware that left is published no more", step_s=0.05)


def _tag(worker: Worker, image: str) -> None:
    worker.tag(f"docker.io/library/{image}:{TAG}", f"docker.io/library/{image}:{NEXT_TAG}")


def _get(url: str) -> str:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=5) as answer:
        return str(answer.read().decode())
