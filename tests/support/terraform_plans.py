"""What a plan of a module would make, read from Terraform's own JSON, and mistakes planted in copies of modules."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pricing.machine_images import find_machine_image, machine_images
from tests.support.terraform_standin import Engine, Finished

ATTEMPT = "a1"
TAGS = {
    "stepfare_attempt": ATTEMPT,
    "stepfare_plan": "p1",
    "stepfare_job": "llama",
    "team": "research",
    "cost_center": "42",
}


def variables(nodes: list[dict[str, Any]], **more: object) -> dict[str, object]:
    """A full set of module variables: the tags above, user data that differs by rank, images, and `more`."""
    nodes = [{**n, "image": _image(n["instance_type"])} for n in nodes]
    texts = {str(n["rank"]): f"#cloud-config\n# rank {n['rank']}\n" for n in nodes}
    return {"attempt": ATTEMPT, "tags": TAGS, "nodes": nodes, "user_data": texts, **more}


def _image(instance_type: str) -> str | None:
    rows = (find_machine_image(cloud, instance_type) for cloud in {row.cloud for row in machine_images()})
    return next((row.image for row in rows if row is not None), None)


def planned(engine: Engine, folder: Path) -> list[dict[str, Any]]:
    """The resources that a plan of an initialised root folder makes: type, name, index, values."""
    engine.must(folder, "plan", "-input=false", "-no-color", "-out=plan.bin")
    shown = json.loads(engine.must(folder, "show", "-json", "plan.bin").out)
    return list(_resources(shown["planned_values"]["root_module"]))


def untagged(resources: list[dict[str, Any]], field: str, wanted: Mapping[str, str]) -> list[str]:
    """Addresses of the planned resources that could carry `field` (tags, labels) and lack part of what is wanted."""
    return [
        r["address"]
        for r in resources
        if field in r["values"] and not wanted.items() <= (r["values"][field] or {}).items()
    ]


def with_mistake(engine: Engine, folder: Path, module: str, file: str, old: str, new: str) -> Finished:
    """`terraform validate` of a copy of a module in which one text (it has to be there) is another."""
    copy = engine.copy(folder, module)
    text = (copy / file).read_text()
    assert old in text
    (copy / file).write_text(text.replace(old, new, 1))
    return engine.run(copy, "validate", "-json")


def errors(done: Finished) -> list[str]:
    """The summaries and details of the errors that `validate -json` found."""
    report = json.loads(done.out)
    return [f"{d['summary']}: {d.get('detail', '')}" for d in report["diagnostics"] if d["severity"] == "error"]


def suite(engine: Engine, folder: Path, module: str) -> dict[str, str]:
    """Runs a module's `terraform test`; the outcome of each run by name. Failures come with their messages."""
    done = engine.run(engine.copy(folder, module), "test", "-json")
    outcomes: dict[str, str] = {}
    said: dict[str, list[str]] = {}
    for message in done.messages():
        run = message.get("@testrun", "")
        if message["type"] == "test_run" and message["test_run"].get("progress", "complete") == "complete":
            outcomes[run] = message["test_run"]["status"]
        if message["type"] == "diagnostic" and message["diagnostic"]["severity"] == "error":
            said.setdefault(run, []).append(f"{message['diagnostic']['summary']}: {message['diagnostic']['detail']}")
    return {run: " ".join([outcome, *said.get(run, [])]) for run, outcome in outcomes.items()}


def _resources(module: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from (r for r in module.get("resources", []) if r["mode"] == "managed")
    for child in module.get("child_modules", []):
        yield from _resources(child)
