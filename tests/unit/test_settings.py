"""The environment, read once; every wrong variable told together."""

from pathlib import Path

import pytest

from common.settings import SERVICES, SettingsError, read_settings

HOST = {"NODE_NAME": "n1"}


def test_the_defaults_are_those_of_a_plain_host() -> None:
    settings = read_settings("watcher", HOST)
    assert (settings.metrics_addr, settings.cluster, settings.driver) == (":9200", "local", "liken.sh")
    assert (settings.settle_s, settings.settle_ceiling_s, settings.pass_s) == (1.0, 5.0, 30.0)
    assert (settings.root, settings.run, settings.machine) == (
        Path("/"),
        Path("/run/liken"),
        Path("/etc/liken/machine.yaml"),
    )
    assert not settings.played


def test_each_service_has_a_metrics_port_of_its_own() -> None:
    assert len({read_settings(service, HOST).metrics_addr for service in SERVICES}) == 4


def test_a_pod_uses_the_cluster_it_runs_in() -> None:
    assert read_settings("plugin", HOST | {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}).cluster == "kubernetes"


def test_everything_follows_the_root() -> None:
    settings = read_settings("watcher", HOST | {"LIKEN_ROOT": "/t"})
    assert settings.played
    assert (settings.host_proc, settings.host_modules, settings.machine) == (
        Path("/t/proc"),
        Path("/t/lib/modules"),
        Path("/t/etc/liken/machine.yaml"),
    )


def test_the_node_is_named_by_the_hosts_proc_when_nobody_names_it(tmp_path: Path) -> None:
    (tmp_path / "sys/kernel").mkdir(parents=True)
    (tmp_path / "sys/kernel/hostname").write_text("Machine-7\n")
    assert read_settings("watcher", {"LIKEN_HOST_PROC": str(tmp_path)}).node_name == "machine-7"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("NODE_NAME", "not_a_name"),
        ("METRICS_ADDR", "9200"),
        ("METRICS_ADDR", ":99999"),
        ("LIKEN_DRIVER", "x" * 64),
        ("LIKEN_ROOT", "relative"),
        ("LIKEN_SETTLE", "soon"),
        ("LIKEN_SETTLE", "0"),
        ("LIKEN_SETTLE", "nan"),
        ("LIKEN_PASS", "-1"),
        ("LIKEN_CLUSTER", "nomad"),
        ("LOG_FORMAT", "xml"),
        ("LOG_LEVEL", "LOUD"),
    ],
)
def test_a_wrong_variable_is_named_with_its_value_and_what_is_allowed(variable: str, value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings("watcher", HOST | {variable: value})
    text = str(caught.value)
    assert f"{variable}={value!r}: allowed is" in text
    assert "\n" not in text


def test_all_wrong_variables_are_told_together() -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings("watcher", {"NODE_NAME": "_", "LIKEN_PASS": "x", "LOG_LEVEL": "x"})
    assert [name in str(caught.value) for name in ("NODE_NAME", "LIKEN_PASS", "LOG_LEVEL")] == [True] * 3


def test_a_quiet_time_above_the_ceiling_is_refused() -> None:
    with pytest.raises(SettingsError, match="at most LIKEN_SETTLE_CEILING"):
        read_settings("watcher", HOST | {"LIKEN_SETTLE": "6"})
