"""The Google Cloud module under the schema of hashicorp/google: `terraform test`, labels, planted mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.terraform_plans import TAGS, errors, planned, suite, untagged, variables, with_mistake
from tests.support.terraform_standin import Engine

GANG = [
    {"rank": r, "name": f"n{r}", "zone": "us-central1-a", "instance_type": "a3-megagpu-8g", "market": "spot"}
    for r in range(2)
]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return Engine.beside(tmp_path_factory.mktemp("standin"))


def test_suite_passes(engine: Engine, tmp_path: Path) -> None:
    outcomes = suite(engine, tmp_path / "gcp", "gcp")
    assert set(outcomes.values()) == {"pass"}, outcomes
    assert len(outcomes) == 10


def test_everything_is_labelled_or_named_after_the_attempt(engine: Engine, tmp_path: Path) -> None:
    given = variables(GANG, region="us-central1", fabric="gpudirect-tcpxo", checkpoint_bucket="b")
    resources = planned(engine, engine.root(tmp_path / "root", "gcp", given))
    assert untagged(resources, "labels", TAGS) == []
    machines = [r["values"] for r in resources if r["type"] == "google_compute_instance"]
    assert len(machines) == 2
    assert all(TAGS.items() <= m["boot_disk"][0]["initialize_params"][0]["labels"].items() for m in machines)

    # What carries no labels has the attempt in its name.
    unnamed = ("google_service_account", "google_storage_bucket_iam_member")
    named = [(r["type"], r["values"]) for r in resources if r["type"] not in unnamed]
    assert all(v["name"].startswith("stepfare-a1") and len(v["name"]) <= 63 for _, v in named)
    (account,) = (r["values"] for r in resources if r["type"] == "google_service_account")
    assert account["display_name"] == "stepfare-a1"


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("machines.tf", "  machine_type = each", "  machine_kind = each", '"machine_kind" is not expected here'),
        pytest.param(
            "machines.tf",
            "provisioning_model",
            "provisioning_mode",
            '"provisioning_mode" is not expected here',
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "machines.tf", "  scheduling {", "  schedule {", '"schedule" are not expected here', marks=pytest.mark.slow
        ),
        ("fabric.tf", "group_placement_policy", "group_placement", '"group_placement" are not expected here'),
    ],
)
def test_a_planted_mistake_is_caught(engine: Engine, tmp_path: Path, file: str, old: str, new: str, said: str) -> None:
    done = with_mistake(engine, tmp_path / "gcp", "gcp", file, old, new)
    assert done.code == 1
    assert any(said in e for e in errors(done)), errors(done)
