"""Whatever stands in a field of a job or limits file is accepted or refused, never a crash."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from router.jobs.limits import Limits
from router.jobs.spec import Job

JOB: dict[str, Any] = {
    "name": "a-b",
    "team": "red",
    "labels": {"kind": "sweep"},
    "steps": 1000,
    "status": {
        "steps_done": 5,
        "running": {
            "cloud": "aws",
            "region": "us-east-1",
            "instance_type": "p5.48xlarge",
            "market": "spot",
            "accelerators": 8,
            "since": "2026-11-20T10:00Z",
        },
        "checkpoint_in": "aws/us-east-1",
        "data_in": ["aws/us-east-1"],
    },
    "earliest_start": "+1h",
    "deadline": "2026-11-25T09:00+01:00",
    "budget": "$210",
    "confidence": 0.9,
    "priority": 1,
    "workload": {
        "profile": [
            {"accelerators": "H100:8", "seconds_per_step": 2},
            {"accelerator": "H100", "count": 16, "tokens_per_second": 100, "fabric": "rdma"},
        ],
        "transformer": {
            "parameters": "7B",
            "layers": 32,
            "hidden": 4096,
            "sequence_length": 2048,
            "tokens_per_step": 65536,
        },
    },
    "gang": {"accelerators": {"H100": [8, 16], "A100-80GB": 16}, "min_saving": 5},
    "max_wait": "2d",
    "use_spot": True,
    "checkpoint": {"size_gib": "500 GB", "write_gib_per_s": "2 GB/s", "interval": "30m"},
    "startup": "5m",
    "data": {"uri": "s3://corpus", "at": "aws/us-east-1", "gib": "2 TiB", "egress_cap": "$50"},
    "residency": {"allow": ["EU", "aws"], "deny": "DE"},
    "run": {"command": "train", "env": {"TOKEN": "very-secret"}},
}
LIMITS: dict[str, Any] = {
    "clouds": ["aws"],
    "default_cap_machines": 4,
    "limits": [{"name": "a", "region": "aws/us-east-1", "amount": 1, "unit": "vcpus", "market": "spot"}],
    "reservations": [
        {
            "name": "r",
            "cloud": "aws",
            "region": "x",
            "instance_type": "p5",
            "machines": 2,
            "usd_per_hour": "$3/h",
        }
    ],
    "discounts": [{"cloud": "aws", "percent": "12.5%"}],
    "teams": [{"team": "red", "budget": 5, "spent": "1"}],
    "egress_month_to_date_gb": {"aws": 9900},
}
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [
        *(
            None,
            True,
            False,
            0,
            -1,
            1.5,
            10**400,
            float("nan"),
            float("inf"),
            [],
            {},
            [[]],
            [None],
            {"a": None},
        ),
        *(
            "",
            " ",
            "yes",
            "-5",
            "$-5",
            "-$-5",
            "$1,200",
            "€5",
            "50%",
            "9" * 600 + "h",
            "9e999999 GB",
            "9e99 GB",
        ),
        *(
            "5 gb",
            "500",
            "+18h",
            "+-3h",
            "1h1h",
            "2026-11-25",
            "0001-01-01T00:00+14:00",
            "9999-12-31T23:59-12:00",
        ),
        *(
            "H100:7.5",
            "H100:",
            "H100:0",
            "H100:8+A100:8",
            "a\nb",
            "1_000",
            "١٢",
            "aws/",
            {"H100": {}},
            {"H100": []},
        ),
    ]
)
JUNK = ODD | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


def _paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _paths(item, (*path, key))


def _with(base: dict[str, Any], path: tuple[str | int, ...], junk: Any) -> Any:
    if not path:
        return junk
    changed: Any = copy.deepcopy(base)
    inside = changed
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = junk
    return changed


@pytest.mark.parametrize(("model", "base"), [(Job, JOB), (Limits, LIMITS)], ids=["job", "limits"])
@given(data=st.data())
def test_any_value_anywhere_is_accepted_or_refused(
    model: type[BaseModel], base: dict[str, Any], data: st.DataObject
) -> None:
    path = data.draw(st.sampled_from(list(_paths(base))))
    try:
        read = model.model_validate(_with(base, path, data.draw(JUNK)))
    except ValidationError:
        return
    assert model.model_validate(json.loads(read.model_dump_json())) == read


def test_what_was_accepted_reads_back_equal_and_shows_no_secret() -> None:
    job = Job.model_validate(JOB)
    again = Job.model_validate(job.model_dump(mode="json"))
    assert (again, again.digest, hash(again)) == (job, job.digest, hash(job))
    assert "very-secret" not in repr(job)


def test_environment_values_are_no_part_of_the_digest_but_names_are() -> None:
    def digest(env: dict[str, str]) -> str:
        return Job.model_validate({**JOB, "run": {"command": "train", "env": env}}).digest

    assert digest({"TOKEN": "one"}) == digest({"TOKEN": "two"}) != digest({"OTHER": "one"})
