"""The limits file: what is wrong in it, where, and what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from pricing.book_file import embedded_book, read_book
from pricing.problems import InvalidInputError
from router.config.book_check import check_limits_against_book
from router.config.job_files import load_limits, read_limits, teams_without_jobs
from router.config.plan_files import read_plan
from router.files.missing_file import missing_file
from router.jobs.limits import Limits
from tests.support.repository import ROOT


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_example_is_read_and_all_its_names_are_known() -> None:
    loaded = load_limits(ROOT / "examples" / "nightly" / "limits.yaml")
    assert loaded.limits.limits
    assert loaded.limits.reservations
    check_limits_against_book(loaded, embedded_book())


def test_an_empty_file_limits_nothing(folder: Path) -> None:
    Path("limits.yaml").write_text("# none yet\n", encoding="utf-8")
    assert read_limits(Path("limits.yaml")) == Limits.none()
    check_limits_against_book(load_limits(Path("limits.yaml")), embedded_book())


PLAN = "usd_per_hour: 5, discount: 0.3"
LIMIT = "{name: a, cloud: aws, amount: 8, unit: machines}"
IN_TURN = f"""commitments:
- {{name: a, cloud: aws, {PLAN}, until: 2027-01-01T00:00Z}}
- {{name: b, cloud: aws, family: p5, {PLAN}, from: 2027-01-01T00:00Z}}"""
BAD = {
    "unknown field": ("projects: []", "1:1", "projects", "no field of a limits file", ""),
    "near field": ("limit: []", "1:1", "limit", "no field of a limits file", "did you mean limits?"),
    "unknown unit": (
        "limits: [{name: a, amount: 8, unit: gpus}]", "1:37", "limits[0].unit", "'gpus' is not one of", "",
    ),
    "field inside": (
        "limits:\n- {name: a, amount: 8, unit: vcpus, regoin: x}", "2:37", "limits[0].regoin",
        "limits[0] has no such field", "did you mean region?",
    ),
    "negative amount": ("limits: [{name: a, amount: -8, unit: vcpus}]", "1:28", "limits[0].amount", "at least 0", ""),
    "twice": (f"limits:\n- {LIMIT}\n- {LIMIT}", "3:3", "limits[1]", "'a' is there twice", "keep one"),
    "percent": ("discounts: [{cloud: aws, percent: 120}]", "1:35", "discounts[0].percent", "100", ""),
    "market": ("discounts: [{cloud: aws, market: spott, percent: 2}]", "1:34", "discounts[0].market", "'spott'",
               "did you mean spot?"),
    "dates": (
        "maintenance: [{name: a, cloud: aws, from: 2026-11-22T10:00Z, until: 2026-11-22T09:00Z}]", "1:69",
        "maintenance[0].until", "ends before it begins", "until lies after from",
    ),
    "near an alias": (
        "maintenance: [{name: a, cloud: aws, frmo: 1, from: 2026-11-22T10:00Z, until: 2026-11-22T12:00Z}]",
        "1:37", "maintenance[0].frmo", "has no such field", "did you mean from?",
    ),
    "commitment dates": (
        f"commitments: [{{name: a, cloud: aws, until: 2026-11-21T00:00Z, from: 2026-11-22T00:00Z, {PLAN}}}]", "1:44",
        "commitments[0].until", "ends before it begins", "until lies after from",
    ),
    "discount": (
        "commitments: [{name: a, cloud: aws, usd_per_hour: 5, discount: 1}]", "1:64", "commitments[0].discount",
        "less than 1", "",
    ),
    "nothing committed": (
        "commitments: [{name: a, cloud: aws, usd_per_hour: 0, discount: 0.3}]", "1:51", "commitments[0].usd_per_hour",
        "commits nothing", "dollars an hour",
    ),
    "commitments overlap": (
        f"commitments:\n- {{name: a, cloud: aws, {PLAN}}}\n- {{name: b, cloud: aws, family: p5, {PLAN}}}",
        "3:3", "commitments[1]", "'b' and 'a' could cover the same machines at the same time", "another region",
    ),
    "commitments in turn": (
        IN_TURN,
        "3:3", "commitments[1]", "do not match alike", "match alike",
    ),
    "missing": ("teams: [{team: a}]", "1:9", "teams[0].budget", "is missing", "budget"),
    "a list": ("- name: a", "1:1", "", "not a list", "limits:"),
    "two documents": ("clouds: [aws]\n---\nclouds: [gcp]", "3:1", "", "one document", "---"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_bad_line_is_refused_with_place_field_reason_and_remedy(folder: Path, case: str) -> None:
    text, place, field, what, remedy = BAD[case]
    Path("limits.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInputError) as caught:
        read_limits(Path("limits.yaml"))
    (problem,) = caught.value.problems
    assert (problem.where, problem.field) == (f"limits.yaml:{place}", field)
    assert what in problem.what
    assert remedy in problem.remedy


BAD_NAMES = {
    "clouds: [aws, gpc]": ("clouds[1]", "gcp"),
    "limits: [{name: a, cloud: azur, amount: 1, unit: vcpus}]": ("limits[0].cloud", "azure"),
    "limits: [{name: a, cloud: aws, region: us-eats-1, amount: 1, unit: vcpus}]": ("limits[0].region", "us-east-1"),
    "limits: [{name: a, accelerator: H10O, amount: 1, unit: vcpus}]": ("limits[0].accelerator", "H100"),
    "limits: [{name: a, cloud: aws, family: p55, amount: 1, unit: vcpus}]": ("limits[0].family", "p5"),
    "limits: [{name: a, instance_type: p5.48xlrge, amount: 1, unit: vcpus}]": (
        "limits[0].instance_type", "p5.48xlarge",
    ),
    "reservations: [{name: a, cloud: aws, region: us-eats-1, instance_type: p5.48xlarge, machines: 1}]": (
        "reservations[0].region", "us-east-1",
    ),
    "discounts: [{cloud: gcp, family: a33, percent: 5}]": ("discounts[0].family", "a3"),
    "egress_month_to_date_gb: {asw: 5}": ("egress_month_to_date_gb.asw", "aws"),
    "egress_caps_gb: {asw: 5}": ("egress_caps_gb.asw", "aws"),
    "commitments: [{name: a, cloud: aws, family: p55, usd_per_hour: 5, discount: 0.3}]": (
        "commitments[0].family", "p5",
    ),
    "commitments: [{name: a, cloud: aws, accelerator: H10O, usd_per_hour: 5, discount: 0.3}]": (
        "commitments[0].accelerator", "H100",
    ),
    "maintenance: [{name: a, cloud: azur, from: 2026-11-22T10:00Z, until: 2026-11-22T12:00Z}]": (
        "maintenance[0].cloud", "azure",
    ),
    "maintenance: [{name: a, cloud: aws, region: us-eats-1, from: 2026-11-22T10:00Z, until: 2026-11-22T12:00Z}]": (
        "maintenance[0].region", "us-east-1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", BAD_NAMES)
def test_a_limit_on_a_name_nobody_knows_is_refused(folder: Path, text: str) -> None:
    """It would limit nothing, and nobody would notice."""
    Path("limits.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInputError) as caught:
        check_limits_against_book(load_limits(Path("limits.yaml")), embedded_book())
    (problem,) = caught.value.problems
    field, meant = BAD_NAMES[text]
    assert problem.field == field
    assert meant in problem.remedy


def test_no_such_file_is_a_problem_with_its_name() -> None:
    with pytest.raises(InvalidInputError, match=r"nowhere\.yaml: no such file"):
        read_limits(Path("nowhere.yaml"))


TEAMS = "teams:\n- {team: research, budget: $5}\n- {team: serach, budget: $5}\n- {team: vision, budget: $5}\n"


def test_a_budget_of_a_team_that_no_job_has_is_told_with_a_near_name(folder: Path) -> None:
    Path("limits.yaml").write_text(TEAMS, encoding="utf-8")
    loaded = load_limits(Path("limits.yaml"))
    misspelt, other = teams_without_jobs(loaded, {"research", "search"})
    assert (misspelt.where, misspelt.field) == ("limits.yaml:3:10", "teams[1].team")
    assert "no job here is of team 'serach'" in misspelt.what
    assert misspelt.remedy == "did you mean search?"
    assert (other.where, other.field) == ("limits.yaml:4:10", "teams")
    assert "team vision" in other.what


def test_a_budget_beside_another_of_a_near_name_is_not_taken_for_a_slip(folder: Path) -> None:
    Path("limits.yaml").write_text(TEAMS, encoding="utf-8")
    (found,) = teams_without_jobs(load_limits(Path("limits.yaml")), {"research"})
    assert "the teams serach, vision" in found.what
    assert found.remedy == ""
    loaded = load_limits(Path("limits.yaml"))
    assert teams_without_jobs(loaded, {"research", "serach", "vision"}) == ()


def remedy(path: Path) -> str:
    (problem,) = missing_file(path).problems
    assert (problem.where, problem.what) == (str(path), "no such file")
    return problem.remedy


def test_the_nearest_name_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "limits.yaml").touch()
    assert remedy(tmp_path / "nolimits.yaml") == f"did you mean {tmp_path / 'limits.yaml'}?"
    for other in ("prices.yaml", "limits.csv"):
        assert remedy(tmp_path / other) == "check the path"
    assert remedy(tmp_path / "gone" / "limits.yaml") == f"there is no folder {tmp_path / 'gone'}: check the path"


@pytest.mark.parametrize("read", [read_limits, read_plan, read_book])
def test_every_reader_has_a_remedy(tmp_path: Path, read: object) -> None:
    assert callable(read)
    with pytest.raises(InvalidInputError) as refused:
        read(tmp_path / "none.csv")
    assert [each.remedy for each in refused.value.problems] == ["check the path"]


def test_a_job_file_is_no_plan_and_the_remedy_makes_one_of_it(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("name: a\n", encoding="utf-8")
    with pytest.raises(InvalidInputError) as refused:
        read_plan(tmp_path / "job.yaml")
    (problem,) = refused.value.problems
    assert problem.what == "is YAML, such as a file of jobs, and no plan"
    assert problem.remedy == f"make one of it: stepfare plan --out plan.json {tmp_path / 'job.yaml'}"
