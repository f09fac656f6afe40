"""Alerts and runbooks speak of metrics, commands and places that exist."""

from __future__ import annotations

import re
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from pricing.money import Usd
from pricing.places import Market
from router.cli.commands import TABLE
from router.coordinator.metrics import DelayHistogram, MetricsSnapshot, StateTotals, render_metrics
from router.deploy.deploy_settings import Deploy, Timeouts
from router.deploy.notify_settings import EventKind
from router.faults.fault import FaultKind
from router.ledger.entry import MachineUse
from router.state.records import Phase
from tests.support.repository import ROOT
from tests.support.state_values import NOW, attempt, node

RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((ROOT / "docs/alerts/stepfare.rules.yaml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
RUNBOOKS = (ROOT / "docs/runbooks.md").read_text(encoding="utf-8")
_METRIC = re.compile(r"stepfare_[a-z_]+")
_SELECTOR = re.compile(r"(stepfare_[a-z_]+)\{([^}]*)\}")
_LABEL = re.compile(r'([a-z]+)\s*(=~|=)\s*"([^"]*)"')
_DURATION = re.compile(r"\d+[smhd]")


def _samples() -> dict[str, dict[str, set[str]]]:
    """Label values by label, by metric, of a state in which everything happens."""
    reasons = ("finished", "given_up", "interrupted", *(kind.value for kind in FaultKind))
    alive = [attempt(f"a-{phase}", phase=phase) for phase in Phase if not phase.is_over]
    picture = MetricsSnapshot(
        "1.0",
        NOW,
        {(Phase.FAILED, reason): 1 for reason in reasons},
        alive,
        [node(one.id, made_at=NOW, agent="running") for one in alive],
        1,
        1,
        1,
        1,
        StateTotals(
            Counter({"interruption": 1}),
            {"interruption": DelayHistogram()},
            1,
            lost_steps=Counter({"llama": 1}),
            metered={("aws", Market.SPOT): Usd(1)},
            wasted={MachineUse.STARTUP: Usd(1)},
        ),
    )
    found: dict[str, dict[str, set[str]]] = {}
    for family in text_string_to_metric_families(render_metrics(picture).decode()):
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            for name, value in sample.labels.items():
                labels.setdefault(name, set()).add(value)
    return found


SAMPLES = _samples()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_is_about_what_there_is(rule: dict[str, Any]) -> None:
    expression = rule["expr"]
    names = set(_METRIC.findall(expression))
    assert names
    assert names <= set(SAMPLES)
    for name, selector in _SELECTOR.findall(expression):
        for label, how, value in _LABEL.findall(selector):
            values = value.split("|") if how == "=~" else [value]
            assert set(values) <= SAMPLES[name][label]
    for grouping in re.findall(r"by \(([a-z, ]+)\)", expression):
        labels = {label for name in names for label in SAMPLES[name]}
        assert set(grouping.split(", ")) <= labels
    assert expression.count("(") == expression.count(")")
    # What only rises is asked how much it rose, what goes up and down how far it moved.
    for function, name in re.findall(r"(increase|rate|delta)\((stepfare_[a-z_]+)", expression):
        assert name.endswith(("_total", "_bucket")) == (function != "delta")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_says_what_to_do(rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in ("page", "warn")
    assert _DURATION.fullmatch(rule.get("for", "1m"))
    assert set(rule["annotations"]) == {"summary", "runbook"}
    file, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert file == "docs/runbooks.md"
    assert anchor == rule["alert"].lower()
    assert f"\n## {rule['alert']}\n" in RUNBOOKS
    for label in re.findall(r"\$labels\.([a-z]+)", rule["annotations"]["summary"]):
        assert re.search(rf"by \({label}\)", rule["expr"])


def test_every_section_has_a_rule_and_every_rule_one_section() -> None:
    sections = [line.removeprefix("## ") for line in RUNBOOKS.splitlines() if line.startswith("## ")]
    assert sections[1:] == [rule["alert"] for rule in RULES]


def test_every_metric_is_explained() -> None:
    table = RUNBOOKS.partition("| metric |")[2].partition("**Messages.**")[0]
    explained = set(_METRIC.findall(table))
    bases = {re.sub(r"_(bucket|count|sum|created)$", "", name) for name in SAMPLES}
    assert explained == bases
    for name, labels in re.findall(r"`(stepfare_[a-z_]+)\{([a-z,]+)\}`", table):
        present = SAMPLES.get(name) or SAMPLES[f"{name}_bucket"]
        assert set(labels.split(",")) == set(present) - {"le"}


def test_every_command_is_one() -> None:
    known = {name.partition(" ")[0] for name in TABLE.commands}
    told = set(re.findall(r"`stepfare ([a-z]+)", RUNBOOKS))
    assert told
    assert told <= known


def test_what_the_deploy_file_is_said_to_hold() -> None:
    block = RUNBOOKS.partition("```yaml deploy\n")[2].partition("```")[0]
    assert set(Deploy.model_validate(yaml.safe_load(block)).notify.events) == set(EventKind)
    named = re.findall(r"`timeouts\.([a-z_]+)`", RUNBOOKS)
    assert named
    assert set(named) <= set(Timeouts.model_fields)


def test_the_wait_before_an_alert_is_shorter_than_what_it_warns_of() -> None:
    silent = next(rule for rule in RULES if rule["alert"] == "StepfareNodesSilent")
    assert timedelta(minutes=int(silent["for"][:-1])) < Deploy().timeouts.lost
