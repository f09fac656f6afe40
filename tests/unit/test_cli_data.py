"""Copies of data on the command line: what is listed, what is removed and what stays; what plans know of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from router.cli.console import ExitCode
from router.jobs.job_json import job_json
from router.state.data_copies import DataCopy
from router.state.store import StateStore
from tests.support.command import run, write_job
from tests.support.scenes import a_job
from tests.support.state_values import attempt, node

CANARY = "canary-91c3"
URI = "s3://corpus/tokens"
NOW = datetime.now(UTC)
DAY = timedelta(days=1)


class Home:
    """A home with a state; copies lie in folders of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def store(self) -> Iterator[StateStore]:
        with StateStore.open(f"sqlite:///{self.folder / 'state.db'}", now=NOW) as store:
            yield store

    def copy(self, name: str, **more: Any) -> DataCopy:
        """A whole copy with a file, and a neighbour that is none of it."""
        near = self.folder.parent / "near"
        for file in (near / name / "files" / "deep" / "a", near / name / "manifest.json", near / "other"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("x")
        url = f"file://{near / name}"
        copy = DataCopy(URI, "aws", "us-east-1", url, "red", 2 * 10**9, 2, NOW, NOW, NOW + DAY)
        made = replace(copy, **more)
        with self.store() as store:
            store.data_copies.put(made)
        return made

    def left(self) -> set[str]:
        return {path.name for path in (self.folder.parent / "near").iterdir()}

    def listed(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(run("data", "list", "-o", "json").stdout)["copies"]
        return found


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("STEPFARE_DEPLOY", raising=False)
    return Home(tmp_path / "home")


def test_copies_are_listed_with_owner_size_and_end_date(home: Home) -> None:
    home.copy("one")
    home.copy("two", region="us-west-2", until=NOW - DAY)
    home.copy("three", region="eu-west-1", made_at=None, uri=f"{URI}?endpoint_override={CANARY}")
    assert [(copy["region"], copy["state"], copy["team"], copy["attempt"]) for copy in home.listed()] == [
        ("aws/us-east-1", "whole", "red", None),
        ("aws/us-west-2", "expired", "red", None),
        ("aws/eu-west-1", "not whole", "red", None),
    ]
    table, wide, csv = (run("data", "list", *more).stdout for more in ((), ("-o", "wide"), ("-o", "csv")))
    assert table.splitlines()[0].split() == ["DATA", "REGION", "OWNER", "SIZE", "UNTIL", "STATE"]
    assert wide.splitlines()[0].split()[-3:] == ["USED", "BY", "COPY"]
    assert csv.splitlines()[0].startswith("uri,region,team,bytes,files,")
    assert "2.0 GB" in table
    assert CANARY not in table + wide + csv + json.dumps(home.listed())


def test_without_copies_there_is_nothing(home: Home) -> None:
    with home.store():
        pass
    assert run("data", "list").stdout == "there are no copies of data\n"
    assert run("data", "list", "-o", "wide").stdout == "there are no copies of data\n"
    assert run("data", "remove", "--expired", "--yes").exit_code == ExitCode.OK


def test_a_copy_is_removed_with_what_is_below_its_folder_alone(home: Home) -> None:
    home.copy("one")
    home.copy("two", region="us-west-2")
    assert run("data", "remove", URI).exit_code == ExitCode.INVALID_INPUT, "nobody can be asked"
    assert home.left() == {"one", "two", "other"}
    removed = run("data", "remove", URI, "--region", "aws/us-west-2", "--yes")
    assert (removed.exit_code, removed.stdout) == (ExitCode.OK, "")
    assert (home.left(), [copy["region"] for copy in home.listed()]) == ({"one", "other"}, ["aws/us-east-1"])
    with home.store() as store:
        (entry,) = store.audit.entries()
    assert (entry.what, entry.details["uri"], entry.details["region"]) == ("remove data", URI, "aws/us-west-2")


def test_expired_copies_are_removed_others_stay(home: Home) -> None:
    home.copy("one")
    home.copy("two", region="us-west-2", until=NOW - DAY)
    assert run("data", "remove", "--expired", "--yes").exit_code == ExitCode.OK
    assert home.left() == {"one", "other"}


@pytest.mark.parametrize("more", [("s3://unknown",), (URI, "--region", "gcp/x"), (), (URI, "--expired")])
def test_what_names_no_copy_is_refused(home: Home, more: tuple[str, ...]) -> None:
    home.copy("one")
    refused = run("data", "remove", *more, "--yes")
    assert refused.exit_code == ExitCode.INVALID_INPUT
    assert home.left() == {"one", "other"}


def test_a_copy_in_use_stays(home: Home) -> None:
    home.copy("one", until=NOW - DAY)
    home.copy("two", region="us-west-2")
    job = a_job("llama", data={"uri": URI, "at": "aws/north-1", "gib": 1})
    with home.store() as store:
        store.plans.put_jobs({"j" * 64: job_json(job)}, NOW)
        store.attempts.add(attempt("a1", machines=1), [node("a1")])
    assert [copy["state"] for copy in home.listed()] == ["in use", "whole"]
    refused = run("data", "remove", URI, "--region", "aws/us-east-1", "--yes")
    assert (refused.exit_code, "a1 of llama uses it" in " ".join(refused.stderr.split())) == (ExitCode.FAILURE, True)
    assert run("data", "remove", "--expired", "--yes").exit_code == ExitCode.OK
    assert home.left() == {"one", "two", "other"}
    assert run("data", "remove", URI, "--yes").exit_code == ExitCode.PARTIAL
    assert home.left() == {"one", "other"}


def test_a_bucket_that_cannot_be_changed_leaves_the_record_and_no_plan_counts_on_it(home: Home) -> None:
    home.copy("one", url="http://no.such/store")
    removed = run("data", "remove", URI, "--yes")
    assert removed.exit_code == ExitCode.FAILURE
    assert [copy["state"] for copy in home.listed()] == ["not whole"]


@pytest.mark.parametrize("days", [1, -1])
def test_a_plan_counts_on_copies_until_their_end_date(home: Home, tmp_path: Path, days: int) -> None:
    home.copy("one", cloud="gcp", region="us-central1", until=NOW + days * DAY)
    more = f"data: {{uri: '{URI}', at: aws/us-east-1, gib: 500}}\nresidency: {{allow: [gcp/us-central1]}}\n"
    file = write_job(tmp_path / "jobs", "near", more=more)
    plan = tmp_path / "plan.json"
    planned = run("plan", file, "--book", "embedded", "-o", "json", "--out", plan)
    assert planned.exit_code == ExitCode.OK, planned.stderr
    assert [move["what"] for move in json.loads(planned.stdout)["moves"]] == ([] if days > 0 else ["data"])
    # The job's file is the planned job, though the plan knew more of its data.
    explained = run("explain", plan, "near", "--jobs", file, "--book", "embedded")
    assert explained.exit_code == ExitCode.OK, explained.stderr
