"""What `make images` made: nothing in it that helps an intruder, and the all-in-one image runs by itself."""

import io
import json
import os
import re
import tarfile
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from common.settings import DEFAULT_METRICS_ADDR
from tests.cluster.api import Api, Object
from tests.cluster.archives import IMAGES_AT, TAG
from tests.cluster.control_plane import ControlPlane
from tests.cluster.node import Worker
from tests.cluster.objects import NAMESPACE, clear, log, running
from tests.waiting import eventually

# Shells, package managers, compilers, and Python's own ways to install more.
UNWANTED = re.compile(
    r"(.*/)?s?bin/(ba|da|k|z)?sh|(.*/)?bin/(apt.*|dpkg.*|busybox|perl.*|gcc.*|cc|ld|pip.*)"
    r"|.*/(ensurepip|pip|setuptools)/.*"
)
NAMES_OF_HARDWARE = {"usr/share/misc/pci.ids", "usr/share/hwdata/pci.ids", "usr/share/hwdata/usb.ids"}


@pytest.fixture(scope="module")
def archives() -> list[Path]:
    folder = os.environ.get(IMAGES_AT)
    if not folder:
        pytest.skip("there are no images: see what `make test-cluster` printed at its start")
    return sorted(Path(folder).glob("*.oci.tar"))


@pytest.fixture
def api(control_plane: ControlPlane, worker: Worker, archives: list[Path]) -> Iterator[Api]:
    worker.import_images(next(path for path in archives if path.name == "liken.oci.tar"))
    yield control_plane.api
    clear(control_plane.api)


def test_no_image_has_a_shell_a_compiler_or_a_package_manager(archives: list[Path]) -> None:
    found = {path.name: [name for name in _files(path) if UNWANTED.fullmatch(name)] for path in archives}

    assert found == {
        f"{name}.oci.tar": []
        for name in ("liken", "liken-plugin", "liken-publisher", "liken-reconciler", "liken-watcher")
    }


def test_every_image_has_the_names_of_vendors_and_products(archives: list[Path]) -> None:
    assert {path.name: NAMES_OF_HARDWARE - set(_files(path)) for path in archives} == {
        path.name: set() for path in archives
    }


def test_the_all_in_one_image_runs_all_four_with_a_read_only_root(api: Api) -> None:
    api.create(_pod())
    address = running(api, "liken")["status"]["podIP"]

    for service, port in DEFAULT_METRICS_ADDR.items():
        url = f"http://{address}{port}/readyz"
        ready = eventually(partial(_get, url), 60, f"the {service} is ready", step_s=0.2)
        assert ready, service
    assert any("walked in" in line for line in log(api, "liken"))


def _pod() -> Object:
    unprivileged = {
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    container = {
        "name": "main",
        "image": f"docker.io/library/liken:{TAG}",
        "imagePullPolicy": "Never",
        "securityContext": unprivileged,
        "volumeMounts": [{"name": "state", "mountPath": "/var/lib/liken"}],
    }
    spec = {
        "terminationGracePeriodSeconds": 5,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [container],
        "volumes": [{"name": "state", "emptyDir": {}}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "liken", "namespace": NAMESPACE},
        "spec": spec,
    }


def _files(archive: Path) -> list[str]:
    """The paths in all layers of an OCI archive."""
    with tarfile.open(archive) as image:
        index = json.load(_open(image, "index.json"))
        manifest = json.load(_open(image, _blob(index["manifests"][0]["digest"])))
        names = []
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=_open(image, _blob(layer["digest"]))) as contents:
                names += contents.getnames()
    return names


def _open(image: tarfile.TarFile, name: str) -> io.BytesIO:
    member = image.extractfile(name)
    assert member, f"{name} is no file"
    return io.BytesIO(member.read())


def _blob(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def _get(url: str) -> str:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=5) as answer:
        return str(answer.read().decode())
