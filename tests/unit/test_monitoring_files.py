"""Alerts, dashboard and page speak of the metrics that there are, in the words that those use."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import sinks.errors
from connector.telemetry.metrics import PHASES, STATES, Metrics

ROOT = Path(__file__).parents[2]
ALERTS = yaml.safe_load((ROOT / "docker" / "alerts.yml").read_text(encoding="utf-8"))
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
SUFFIXES = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_count", "_sum"]}
FAMILIES = {family.name: family.type for family in Metrics("p").registry.collect()}
SERIES = {f"{name}{suffix}" for name, kind in FAMILIES.items() for suffix in SUFFIXES[kind]}
RUNBOOK = {"no-commits", "lag-grows", "fails-on-every-epoch", "fenced", "data-loss", "bad-records", "in-doubt"}


def refers_to_what_is_there(expression: str) -> bool:
    asked = set(re.findall(r"lakelock_\w+", expression))
    states = {name for names in re.findall(r'state=~?"([\w|]+)"', expression) for name in names.split("|")}
    errors = {name for names in re.findall(r'error=~"([\w|]+)"', expression) for name in names.split("|")}
    return asked <= SERIES and states <= {*STATES, *PHASES} and all(hasattr(sinks.errors, name) for name in errors)


def test_what_is_not_there_is_found() -> None:
    assert refers_to_what_is_there('lakelock_run_state{state="failed"} == 1')
    for wrong in (
        "lakelock_epochs",
        'lakelock_run_state{state=~"done|broken"}',
        'lakelock_last_error{error=~"NoSuch"}',
    ):
        assert not refers_to_what_is_there(wrong)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_asks_for_what_there_is_and_says_what_to_do(rule: dict[str, Any]) -> None:
    assert refers_to_what_is_there(rule["expr"])
    assert "lakelock_" in rule["expr"] or rule["expr"].startswith("up{")
    assert rule["annotations"].keys() == {"summary", "action", "runbook"}
    page, anchor = rule["annotations"]["runbook"].split("#")
    assert (page, anchor in RUNBOOK) == ("docs/runbook.md", True)


def test_every_part_of_the_runbook_has_an_alert() -> None:
    assert {rule["annotations"]["runbook"].split("#")[1] for rule in RULES} == RUNBOOK
    assert len({rule["alert"] for rule in RULES}) == len(RULES)


def test_prometheus_is_given_the_alerts() -> None:
    (file,) = yaml.safe_load((ROOT / "docker" / "prometheus.yml").read_text(encoding="utf-8"))["rule_files"]
    services = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text(encoding="utf-8"))["services"]
    assert f"./alerts.yml:{file}:ro" in services["prometheus"]["volumes"]


def test_the_dashboard_asks_for_what_there_is() -> None:
    dashboard = json.loads((ROOT / "docker" / "grafana" / "lakelock.json").read_text(encoding="utf-8"))
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(asked) > 10
    assert all(map(refers_to_what_is_there, asked))
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_the_page_lists_the_metrics_that_there_are_and_no_others() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(lakelock_\w+)` \| (\w+) \| (.*?) ?\|", page, flags=re.M)
    there = {
        f"{name}_total" if kind == "counter" else name: (kind, sorted(_labels(name))) for name, kind in FAMILIES.items()
    }
    assert {name: (kind, sorted(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows} == there


def _labels(family: str) -> set[str]:
    found = {collector._name: collector for collector in Metrics("p").registry._collector_to_names}  # type: ignore[attr-defined]
    return set(found[family]._labelnames) - {"pipeline"}
