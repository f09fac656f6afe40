"""Terraform's JSON lines as the runner reads them: lines as 1.15 writes them, and what is no such line."""

from __future__ import annotations

import base64
import json

import pytest

from terraform.errors import Diagnostic
from terraform.events import HIDDEN, Masker, ResourceChange, TerraformEvent, Transcript, secret_values
from terraform.render import parse_nodes

CANARY = "canary-7c1e-token"
ADDRESS = 'module.gang.aws_instance.node["1"]'
RESOURCE = {"addr": ADDRESS, "module": "module.gang", "resource_type": "aws_instance", "resource_key": "1"}


def _read(*messages: object) -> tuple[Transcript, list[TerraformEvent | None]]:
    said = Transcript(Masker([CANARY]))
    return said, [said.read(json.dumps(message)) for message in messages]


def test_steps_become_events() -> None:
    hook = {"resource": RESOURCE, "action": "create", "id_key": "id", "id_value": "i-1", "elapsed_seconds": 12}
    said, events = _read(
        {"type": "apply_start", "hook": {"resource": RESOURCE, "action": "create"}},
        {"type": "provision_progress", "hook": {"resource": RESOURCE, "output": CANARY}},
        {"type": "apply_complete", "hook": hook},
    )
    done = TerraformEvent("apply_complete", ADDRESS, "create", "i-1", 12.0)
    assert events == [TerraformEvent("apply_start", ADDRESS, "create"), None, done]
    assert said.done == [done]


def test_drift_and_plans_are_kept_apart() -> None:
    said, _ = _read(
        {"type": "resource_drift", "change": {"resource": RESOURCE, "action": "delete"}},
        {"type": "planned_change", "change": {"resource": RESOURCE, "action": "create"}},
        {"type": "planned_change", "change": {"resource": RESOURCE, "action": "replace", "reason": "tainted"}},
    )
    assert said.drift == [ResourceChange(ADDRESS, "delete")]
    assert said.planned == [ResourceChange(ADDRESS, "create"), ResourceChange(ADDRESS, "replace", "tainted")]


def test_diagnostics_keep_where_and_why_without_secrets() -> None:
    detail = f"Error running command 'x': exit status 3. Output: token {CANARY}\n"
    said, _ = _read(
        {
            "type": "diagnostic",
            "diagnostic": {"severity": "error", "summary": "s", "detail": detail, "address": ADDRESS},
        },
        {
            "type": "diagnostic",
            "diagnostic": {"severity": "warning", "summary": "old", "snippet": {"values": [CANARY]}},
        },
    )
    error, warning = said.diagnostics
    assert error == Diagnostic(
        "error", "s", f"Error running command 'x': exit status 3. Output: token {HIDDEN}", ADDRESS
    )
    assert str(error) == f"{ADDRESS}: s: Error running command 'x': exit status 3. Output: token {HIDDEN}"
    assert (warning.is_error, str(warning)) == (False, "old")


def test_outputs_count_once_they_have_values() -> None:
    announced = {"type": "outputs", "outputs": {"nodes": {"sensitive": False, "action": "create"}}}
    known = {"type": "outputs", "outputs": {"nodes": {"sensitive": False, "type": "list", "value": [1]}}}
    assert _read(announced)[0].outputs is None
    assert _read(announced, known)[0].outputs == {"nodes": [1]}


def test_what_is_no_event_is_passed_over() -> None:
    said = Transcript(Masker([]))
    for line in ("", "{", "[1]", "null", "Error: not JSON", '{"type": 7}', '{"type": "apply_start"}', '{"hook": 1}'):
        said.read(line)
    assert (said.planned, said.drift, said.diagnostics, said.done) == ([], [], [], [])


def test_masks_the_whole_its_lines_its_escapes_and_base64() -> None:
    script = f"#!/bin/sh\nexport TOKEN={CANARY}\necho ok\n"
    mask = Masker([script, "short"])
    for text in (script, json.dumps(script), f"line 2: export TOKEN={CANARY}"):
        assert CANARY not in mask(text)
    assert mask(base64.b64encode(script.encode()).decode()) == HIDDEN
    assert mask("echo ok, short") == "echo ok, short"
    assert CANARY not in repr(mask)


def test_secret_variables_are_known_by_name() -> None:
    environment = {"AWS_SECRET_ACCESS_KEY": "a", "ARM_CLIENT_SECRET": "b", "PG_CONN_STR": "c", "PATH": "d", "HOME": "e"}
    assert secret_values(environment) == ("a", "b", "c")


def test_made_nodes_are_read_or_refused() -> None:
    row = {
        "rank": 1,
        "id": "i-1",
        "address": "",
        "private_address": "10.0.0.1",
        "zone": None,
        "market": "spot",
        "max_usd_per_hour": "60.48",
    }
    second, first = row, {**row, "rank": 0, "id": "i-0", "max_usd_per_hour": None}
    nodes = parse_nodes({"nodes": [second, first]})
    assert parse_nodes({"nodes": json.dumps([second, first])}) == nodes
    assert [(node.rank, node.id, node.address, str(node.max_usd_per_hour)) for node in nodes] == [
        (0, "i-0", None, "None"),
        (1, "i-1", None, "60.48"),
    ]
    assert parse_nodes({}) == ()
    for bad in ([{"rank": 0}], [{**row, "market": "lease"}], [{**row, "max_usd_per_hour": "much"}], ["node"]):
        with pytest.raises(ValueError, match="is not what was agreed"):
            parse_nodes({"nodes": bad})
