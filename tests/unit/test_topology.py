"""The table of the bus says who runs and who speaks: what starts the services agrees with it."""

import configparser
from pathlib import Path

import yaml

from common.bus import TOPOLOGY
from common.process import BEAT_WITHIN_S
from common.settings import SERVICES
from services.watcher.watch import HEARTBEAT_S

ROOT = Path(__file__).parents[2]
IN_THE_TABLE = {topic.sender for topic in TOPOLOGY} | {
    reader for topic in TOPOLOGY for reader in topic.readers
}


def programs() -> dict[str, str]:
    """The programs of the supervisor's configuration and their commands."""
    parser = configparser.RawConfigParser(inline_comment_prefixes=(" ;", "\t;"), strict=False)
    parser.read(ROOT / "images/supervisord.conf")
    return {
        section.removeprefix("program:"): parser[section]["command"]
        for section in parser.sections()
        if section.startswith("program:")
    }


def test_every_service_of_the_settings_speaks_or_listens_on_the_bus() -> None:
    assert set(SERVICES) == IN_THE_TABLE


def test_the_supervisor_runs_the_services_of_the_table_and_no_others() -> None:
    assert set(programs()) == IN_THE_TABLE


def test_the_supervisor_runs_each_service_as_its_module() -> None:
    assert {name: command.split()[-2:] for name, command in programs().items()} == {
        name: ["-m", f"services.{name}"] for name in SERVICES
    }


def test_the_pod_runs_the_services_of_the_table_and_no_others() -> None:
    for body in yaml.safe_load_all((ROOT / "deploy/base/daemonset.yaml").read_text()):
        names = [container["name"] for container in body["spec"]["template"]["spec"]["containers"]]
        assert sorted(names) == sorted(IN_THE_TABLE)


def test_a_process_that_keeps_the_promised_period_is_never_called_ill() -> None:
    slowest = max(topic.at_least_every_s or 0.0 for topic in TOPOLOGY)
    assert slowest == HEARTBEAT_S
    assert 2 * slowest < BEAT_WITHIN_S
