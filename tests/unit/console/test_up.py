"""What `liken up` makes of its environment, its ports and its folder."""

import os
import socket
import tarfile
import tempfile
from pathlib import Path

import pytest

from common.errors import MachineError, RequestError
from common.settings import read_settings
from services.console.hardware import opened
from services.console.state import MAX_SOCKET_PATH, SCHEMA, State, Up
from services.console.up import check_port, configuration, environment, metrics_addresses, run
from tests.builders import MachineBuilder


def test_one_address_gives_each_service_a_port_of_its_own() -> None:
    assert metrics_addresses({"METRICS_ADDR": "127.0.0.1:9300"}) == {
        "watcher": "127.0.0.1:9300",
        "publisher": "127.0.0.1:9301",
        "plugin": "127.0.0.1:9302",
        "reconciler": "127.0.0.1:9303",
    }
    assert set(metrics_addresses({"METRICS_ADDR": ""}).values()) == {""}
    assert set(metrics_addresses({"METRICS_ADDR": ":0"}).values()) == {":0"}
    assert metrics_addresses({})["plugin"] == ":9202"


def test_a_port_in_use_is_told_with_the_variable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(RequestError, match="set METRICS_ADDR"):
            check_port("watcher", address)
    check_port("watcher", address)
    check_port("watcher", "")


def test_a_local_cluster_lies_below_the_state_folder_whatever_the_environment_says(tmp_path: Path) -> None:
    state = State(tmp_path)
    settings = read_settings(None, environment(state, None, {"LIKEN_KUBELET": "/var/lib/kubelet"}))
    assert settings.cluster == "local"
    assert {settings.run, settings.kubelet, settings.cdi, settings.local} == {
        tmp_path / name for name in ("run", "kubelet", "cdi", "cluster")
    }
    assert not settings.played


def test_with_kubernetes_only_the_sockets_lie_below_the_state_folder(tmp_path: Path) -> None:
    settings = read_settings(None, environment(State(tmp_path), None, {"LIKEN_CLUSTER": "kubernetes"}))
    assert (settings.run, settings.kubelet) == (tmp_path / "run", Path("/var/lib/kubelet"))


def test_a_played_machine_never_writes_to_this_machines_bus(tmp_path: Path) -> None:
    settings = read_settings(
        None, environment(State(tmp_path), tmp_path / "m.tar", {"LIKEN_HOST_BUS": "/sys/bus"})
    )
    assert settings.played
    assert settings.host_bus == tmp_path / "machine/sys/bus"
    assert settings.host_proc == tmp_path / "machine/proc"


def test_the_root_of_this_machine_is_not_played(tmp_path: Path) -> None:
    assert not read_settings(None, environment(State(tmp_path), Path("/"), {})).played


@pytest.mark.parametrize("packed", [False, True])
def test_a_wrong_machine_file_of_a_played_machine_is_named_where_it_was_given(
    packed: bool, tmp_path: Path
) -> None:
    machine = MachineBuilder(tmp_path / "given")
    machine.write("etc/liken/machine.yaml", "spec: {serio: 7}\n")
    root, named = machine.root, f"{machine.root}/etc/liken/machine.yaml: spec.serio"
    if packed:
        root = tmp_path / "given.tar"
        named = f"etc/liken/machine.yaml in {root}: spec.serio"
        with tarfile.open(root, "w") as archive:
            archive.add(machine.root, ".")
    told = {"METRICS_ADDR": "", "NODE_NAME": "n1"}
    short = tempfile.TemporaryDirectory(prefix="liken-")  # sockets could not lie in the usual one
    with short as state, pytest.raises(RequestError) as error:
        run(Path(state), root, told)
    assert str(error.value).startswith(named)
    with pytest.raises(RequestError) as error, opened(root):
        raise AssertionError("a wrong machine file was taken")
    assert str(error.value).startswith(named)


def test_the_usual_state_folder_is_below_the_xdg_state_home() -> None:
    assert State(None, {"XDG_STATE_HOME": "/x"}).folder == Path("/x/liken")
    assert State(None, {"XDG_STATE_HOME": "relative", "HOME": "/h"}).folder == Path("/h/.local/state/liken")


def test_a_state_folder_too_long_for_sockets_is_refused_before_it_is_made(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * MAX_SOCKET_PATH)
    with pytest.raises(RequestError, match="--state"):
        State(folder).make()
    assert not folder.exists()


def test_a_state_folder_that_cannot_be_made_is_told() -> None:
    with pytest.raises(MachineError, match="name another with --state"):
        State(Path("/proc/state")).make()


def test_the_lock_names_its_holder_and_goes_with_it(tmp_path: Path) -> None:
    state = State(tmp_path)
    assert state.holder() is None
    held = state.hold()
    assert state.holder() == os.getpid()
    with pytest.raises(RequestError, match=f"process {os.getpid()}"):
        state.hold()
    os.close(held)
    assert state.holder() is None


def test_what_up_left_for_the_other_commands_is_read_back(tmp_path: Path) -> None:
    state = State(tmp_path)
    with pytest.raises(RequestError, match="nothing was ever up"):
        state.read()
    state.write(Up(SCHEMA, {"LIKEN_RUN": "/r"}, "/m.tar"))
    assert state.read() == Up(SCHEMA, {"LIKEN_RUN": "/r"}, "/m.tar")
    assert state.settings({}).run == Path("/r")
    with pytest.raises(RequestError, match="nothing is up"):
        state.require_up()


@pytest.mark.parametrize("content", [b"", b"{", b'{"schema": 9, "environment": {}}', b"[]"])
def test_a_word_that_cannot_be_read_is_told_with_what_to_do(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "up.json").write_bytes(content)
    with pytest.raises(MachineError, match="start again with liken up"):
        State(tmp_path).read()


def test_in_a_pod_the_settings_are_those_of_the_environment(tmp_path: Path) -> None:
    settings = State(tmp_path).settings({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "LIKEN_RUN": "/run/liken"})
    assert (settings.cluster, settings.run) == ("kubernetes", Path("/run/liken"))


def test_the_supervisors_configuration_is_found_in_a_checkout() -> None:
    assert "[program:watcher]" in configuration().read_text()
