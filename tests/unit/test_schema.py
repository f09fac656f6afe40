"""The published schemas: as they lie in docs, and of one mind with the models that read the same files."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from pydantic import ValidationError

from router.config.document_file import KINDS, build_file_schema
from router.jobs.limits import Limits
from router.jobs.schema import schema_of, schema_text
from router.jobs.spec import Job
from tests.support.repository import ROOT

MODELS: dict[str, type[Job] | type[Limits]] = {"job": Job, "limits": Limits}
JOB: dict[str, Any] = {
    "name": "llama-7b",
    "team": "red",
    "steps": 1000,
    "workload": {"profile": [{"accelerator": "H100", "count": 8, "steps_per_hour": 60}]},
    "gang": {"accelerators": "H100:8"},
}
SHAPE = {"parameters": "7B", "layers": 32, "hidden": 4096, "sequence_length": 2048, "tokens_per_step": 65536}

GOOD: list[dict[str, Any]] = [
    {},
    {"gang": {"accelerators": {"H100": [8, 16], "A100-80GB": 16}}},
    {"gang": {"accelerators": ["H100:8", "A100-80GB:16"], "rdma": "required", "on_demand_share": 0.5}},
    {"gang": {"any_of": [{"accelerators": "H100:8"}, {"accelerators": {"A100-80GB": 16}}]}},
    {"gang": {"options": ["H100:8"], "min_saving": "$5", "regions": 2}},
    {"use_spot": True},
    {"market": {"use_spot": False}},
    {"market": {"spot": "never"}},
    {"checkpoint": "none"},
    {"checkpoint": None},
    {"checkpoint": {"size_gib": "2 TiB", "write_gib_per_s": "4 GB/s", "interval": "auto"}},
    {"workload": {"transformer": SHAPE}, "checkpoint": {}},
    {"workload": {"transformer": SHAPE}, "checkpoint": {"optimizer": "lion", "asynchronous": True}},
    {"workload": {"profile": {"accelerators": "H100:8", "seconds_per_step": 1.5}}},
    {"workload": {"transformer": SHAPE}},
    {"workload": {"transformer": {**SHAPE, "parameters": 7e9, "active_parameters": "1.5B"}}},
    {
        "workload": {
            "transformer": SHAPE,
            "profile": [{"accelerators": "H100:8", "tokens_per_second": 9e4, "fabric": "rdma"}],
        }
    },
    {"residency": {"allow": "EU", "deny": ["DE", "aws/eu-west-3"]}},
    {"data": {"uri": "s3://a/b", "at": "aws/us-east-1", "gib": "500 GB", "egress_cap": "$40"}},
    {"data": {"uri": "s3://a/b", "at": "aws/us-east-1", "gib": 40, "egress_cap": {"gib": 100}}},
    {"status": {"steps_done": 5, "data_in": "aws/us-east-1"}, "budget": "$210", "deadline": "+18h"},
    {"steps": 1e6, "run": {"command": "python a.py", "env": {"A": "1"}}, "labels": {"kind": "sweep"}},
]
BAD: list[dict[str, Any]] = [
    {"steps": 0},
    {"steps": "many"},
    {"stepps": 5},
    {"name": None},
    {"confidence": 0.4},
    {"priority": 1001},
    {"gang": {}},
    {"gang": {"accelerators": "H100:8", "any_of": [{"accelerators": "H100:8"}]}},
    {"gang": {"accelerators": "H100:8+A100-80GB:8"}},
    {"gang": {"accelerators": {"H100": 0}}},
    {"gang": {"accelerators": "H100:8", "on_demand_share": 1.5}},
    {"workload": {}},
    {"workload": {"profile": [{"accelerator": "H100", "count": 8}]}},
    {"workload": {"profile": [{"accelerators": "H100:8", "steps_per_hour": 0}]}},
    {"workload": {"profile": [{"accelerators": "H100:8", "steps_per_hour": 60, "seconds_per_step": 60}]}},
    {"workload": {"transformer": {**SHAPE, "parameters": 7}}},
    {"workload": {"transformer": {**SHAPE, "precision": "fp64"}}},
    {"checkpoint": {}},
    {"checkpoint": {"optimizer": "adamw"}},
    {"workload": {"transformer": SHAPE}, "checkpoint": {"optimizer": "guess"}},
    {"checkpoint": {"size_gib": 1, "asynchronous": "yes"}},
    {"data": {"uri": "s3://a", "at": "aws/us-east-1", "gib": 40, "egress_cap": {}}},
    {"market": {"spot": "sometimes"}},
    {"max_wait": 30},
    {"deadline": 18},
    {"run": {"image": "x"}},
]


def accepts_schema(kind: str, document: object) -> bool:
    return bool(Draft202012Validator(schema_of(kind)).is_valid(document))


def accepts_model(kind: str, document: object) -> bool:
    try:
        MODELS[kind].model_validate(copy.deepcopy(document))
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_the_published_file_is_the_schema(kind: str) -> None:
    """When this fails: `stepfare schema KIND > docs/schema/KIND.json`."""
    assert (ROOT / f"docs/schema/{kind}.json").read_text(encoding="utf-8") == schema_text(build_file_schema(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_a_schema_in_its_own_dialect(kind: str) -> None:
    schema = json.loads(schema_text(build_file_schema(kind)))
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"].endswith("2020-12/schema")
    assert f"yaml-language-server: $schema=docs/schema/{kind}.json" in schema["$comment"]
    text = schema_text(build_file_schema(kind))
    left = [word for word in ('"gt"', '"ge"', '"lt"', '"le"', "``", ":meth:") if word in text]
    assert left == []


@pytest.mark.parametrize("change", GOOD, ids=str)
def test_what_the_model_reads_the_schema_allows(change: dict[str, Any]) -> None:
    document = JOB | change
    assert accepts_model("job", document)
    assert [e.message for e in Draft202012Validator(schema_of("job")).iter_errors(document)] == []


@pytest.mark.parametrize("change", BAD, ids=str)
def test_what_an_editor_can_see_is_seen(change: dict[str, Any]) -> None:
    document = JOB | change
    assert not accepts_schema("job", document)
    assert not accepts_model("job", document)


@pytest.mark.parametrize(
    "document",
    [
        {"limits": [{"name": "a", "amount": 8, "unit": "GPUs"}]},
        {"limits": [{"name": "a", "amount": -1, "unit": "machines"}]},
        {"reservations": [{"name": "r", "cloud": "aws", "region": "us-east-1"}]},
        {"quotas": []},
    ],
)
def test_limits_that_an_editor_refuses(document: dict[str, Any]) -> None:
    assert not accepts_schema("limits", document)
    assert not accepts_model("limits", document)


def test_clouds_may_be_one_or_several() -> None:
    assert accepts_schema("limits", {"clouds": "aws"})
    assert accepts_schema("limits", {"clouds": ["aws", "gcp"]})


def test_every_example_passes() -> None:
    added = ROOT / "examples/showback/added.yaml"  # what people add to a ledger: `ledger add` reads it in a test
    kubernetes = ROOT / "examples/schedule/cronjob.yaml"
    files = sorted(set((ROOT / "examples").rglob("*.yaml")) - {added, kubernetes})
    assert len(files) > 16
    for file in files:
        kind = file.stem if file.stem in KINDS else "job"
        for document in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            # PyYAML reads 34e9 as text; the schema must take it either way.
            # It makes dates of dates.
            written = json.loads(json.dumps(document, default=str))
            errors = [e.message for e in Draft202012Validator(build_file_schema(kind)).iter_errors(written)]
            assert (file.name, errors) == (file.name, [])


def test_every_field_of_a_job_is_described_or_plain() -> None:
    """What stands at the top of a job file is what an editor shows first."""
    fields = schema_of("job")["properties"]
    plain = {"project", "owner", "cost_center", "labels", "earliest_start", "deadline", "budget"}
    nested = {name for name, field in fields.items() if "$ref" in json.dumps(field)}
    assert {name for name, field in fields.items() if "description" not in field} <= plain | nested
    assert fields["max_wait"]["default"] == "7d"
    assert schema_of("job")["$defs"]["Gang"]["properties"]["min_saving"]["default"] == "$1.00"


def test_an_unknown_kind_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        schema_of("bill")
