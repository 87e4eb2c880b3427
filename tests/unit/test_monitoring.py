"""Alerts, dashboard and the page of metrics name metrics that exist, and leave none out."""

import json
import re
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from common.metrics import new_registry
from common.settings import SERVICES
from services.plugin.metrics import PluginMetrics
from services.publisher.metrics import Metrics as PublisherMetrics
from services.reconciler.metrics import ReconcilerMetrics
from services.watcher.metrics import Metrics as WatcherMetrics
from tests.unit.test_documents import ROOT, anchors

MONITORING = ROOT / "deploy/monitoring"
_DECLARE = {
    "watcher": WatcherMetrics,
    "publisher": PublisherMetrics,
    "plugin": PluginMetrics,
    "reconciler": ReconcilerMetrics,
}
_SUFFIXES = {
    "counter": ("_total",),
    "histogram": ("_bucket", "_sum", "_count"),
    "gauge": ("",),
    "unknown": ("",),
    "info": ("_info",),
}


def metrics_of(service: str) -> dict[str, Metric]:
    """What a service declares, by its name without suffix."""
    registry: CollectorRegistry = new_registry(service)
    _DECLARE[service](registry)
    return {found.name: found for found in registry.collect() if found.name.startswith("liken_")}


def series() -> set[str]:
    """Every name that a query may use."""
    names = set()
    for service in SERVICES:
        for name, found in metrics_of(service).items():
            names |= {name + suffix for suffix in _SUFFIXES[found.type]}
    return names | {"up", "process_resident_memory_bytes", "process_cpu_seconds_total"}


def names_in(query: str) -> set[str]:
    return set(re.findall(r"\b(?:liken|process)_\w+", query))


def rules() -> list[dict[str, object]]:
    body = yaml.safe_load((MONITORING / "prometheusrule.yaml").read_text())
    return [rule for group in body["spec"]["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_asks_for_metrics_that_exist_and_has_a_runbook(rule: dict[str, dict[str, str]]) -> None:
    assert names_in(str(rule["expr"])) <= series()
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert anchor in anchors(ROOT / page)


def test_every_query_of_the_dashboard_asks_for_metrics_that_exist() -> None:
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert queries
    assert {name for query in queries for name in names_in(query)} <= series()


def test_the_monitor_scrapes_every_service() -> None:
    body = yaml.safe_load((MONITORING / "podmonitor.yaml").read_text())
    assert [each["port"] for each in body["spec"]["podMetricsEndpoints"]] == list(SERVICES)


@pytest.mark.parametrize("service", SERVICES)
def test_the_page_of_metrics_lists_what_a_service_serves_with_its_meaning(service: str) -> None:
    page = (ROOT / "docs/reference/metrics.md").read_text()
    section = re.search(rf"^## {service}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert section is not None
    told = dict(re.findall(r"^\| `(\w+)` \| \w+ \| (.*) \|$", section.group(1), re.MULTILINE))
    assert told == {name: found.documentation for name, found in sorted(metrics_of(service).items())}


def page() -> str:
    """The page as it should be; run this module to write it."""
    lines = [
        "# Metrics",
        "",
        "Each process serves its own on `/metrics` of its METRICS_ADDR. Counters end in `_total`,",
        "histograms in `_bucket`, `_sum` and `_count`. Alerts and a dashboard are in deploy/monitoring.",
        "",
    ]
    for service in SERVICES:
        lines += [f"## {service}", "", "| metric | type | what it is |", "|---|---|---|"]
        for name, found in sorted(metrics_of(service).items()):
            lines.append(f"| `{name}` | {found.type} | {found.documentation} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    Path("docs/reference/metrics.md").write_text(page())
