"""What `apply` refuses: a clear message, the exit code, and nothing made or written."""

from __future__ import annotations

import json
import os
import pty
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import Result

from pricing.money import Usd
from router.app.quotes import with_quoted_policy
from router.planning.document.plan_json import plan_from_json, plan_to_json
from router.render.tables import format_usd
from router.spot.live.selection import default_run_policy
from router.spot.policies import Rule
from tests.support.clouds import STEPFARE
from tests.support.command import run
from tests.support.deployed import ZONE_A, Site, Template, job, planned
from tests.support.terraform_runs import needs_engine

pytestmark = needs_engine

CANARY = "canary-value-of-a-secret"


@pytest.fixture(scope="module")
def two(base: Path) -> Template:
    return planned(base, "two", job("walk", machines=2))


@pytest.fixture
def site(two: Template, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Its commands run in this process."""
    yield from _entered(two.site(tmp_path / "site"), monkeypatch)


def _entered(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    for name in ("PATH", "STEPFARE_HOME", "STEPFARE_CLOUDS", "STEPFARE_SANDBOX", "COLUMNS"):
        monkeypatch.setenv(name, site.environment[name])
    yield site
    site.end()


def _said(result: Result) -> str:
    return " ".join((result.stdout + result.stderr).split())


def _refused(site: Site, code: int, *says: str, options: tuple[object, ...] = ("--yes",), plan: object = "") -> None:
    book = () if "--book" in options else ("--book", "sandbox")
    result = run("apply", plan or site.plan, *options, *book)
    said = _said(result)
    assert result.exit_code == code, said
    assert isinstance(result.exception, SystemExit), result.exception
    for text in says:
        assert text in said
    assert CANARY not in said
    _nothing_was_made(site)


def _nothing_was_made(site: Site) -> None:
    assert not (site.home / "runs").exists()
    with site.store() as store:
        assert (store.attempts.find(), store.journal.entries(), store.audit.entries(), store.ledger.entries()) == (
            (),
            (),
            (),
            (),
        )
        assert store.plans.plan(site.digest) is None


def _changed(path: Path, change: Callable[[Any], None]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def _quoted_for(site: Site, rule: Rule) -> None:
    plan = with_quoted_policy(plan_from_json(site.plan.read_text()), default_run_policy(rule))
    site.plan.write_text(plan_to_json(plan))


@pytest.mark.slow
def test_another_policy_than_was_quoted(site: Site) -> None:
    """Unless the deploy file is to win; a file that names none does not differ."""
    _quoted_for(site, Rule.FORESIGHT)
    site.deploy(policy="greedy")
    _refused(site, 4, "its quote was made for foresight", "`policy: greedy`", "--override-policy")
    won = _said(run("apply", site.plan, "--dry-run", "--book", "sandbox", "--override-policy"))
    assert "run by greedy (least saving share 0.1, least saving usd 1), as the deploy file says" in won
    assert "the quote was made for foresight" in won
    assert "dry run: nothing was made" in won
    site.deploy(policy="foresight")
    same = _said(run("apply", site.plan, "--dry-run", "--book", "sandbox"))
    assert f"run by {default_run_policy(Rule.FORESIGHT)}, as its quote was made for" in same
    assert "deploy file's" not in same
    _quoted_for(site, Rule.GREEDY)
    site.deploy(policy=None)
    visible = _said(run("apply", site.plan, "--dry-run", "--book", "sandbox"))
    assert "as its quote was made for, not by foresight, the deploy file's" in visible
    _nothing_was_made(site)


def test_a_plan_that_was_edited_by_hand(site: Site) -> None:
    _changed(site.plan, lambda plan: plan["lines"][0].update(max_usd_per_hour="99.00"))
    _refused(site, 2, "plan.json", "digest")


@pytest.mark.parametrize("text", ["", "{}", "not JSON", '{"schema_version": 1, "lines": []}', "[]", "\0\x01"])
def test_what_is_no_plan(site: Site, text: str) -> None:
    site.plan.write_text(text)
    _refused(site, 2, "plan.json")


def test_no_such_plan(site: Site, tmp_path: Path) -> None:
    _refused(site, 2, "missing.json", "no such file", plan=tmp_path / "missing.json")
    _refused(site, 2, "cannot be read", plan=tmp_path)


def test_a_plan_that_is_too_old(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    since = datetime.now(UTC) - timedelta(seconds=10)
    monkeypatch.setenv("STEPFARE_CLOCK", f"3600@{since.isoformat(timespec='seconds')}")
    _refused(site, 6, "refused: the plan was good until", "plan again on today's prices")


def _sold(site: Site, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """The sandbox changes its prices, and a book of them is fetched."""
    script = yaml.safe_load((site.folder / "sandbox.yaml").read_text())
    change(script["prices"])
    (site.folder / "sandbox.yaml").write_text(yaml.safe_dump(script))
    result = run("prices", "refresh", "--cloud", "sandbox", "--accept-jumps")
    assert result.exit_code == 0, _said(result)


def _in_a(prices: list[dict[str, Any]]) -> dict[str, Any]:
    return next(price for price in prices if price.get("zone") == ZONE_A)


def test_a_price_above_the_ceiling(site: Site) -> None:
    def dearer(prices: list[dict[str, Any]]) -> None:
        for price in prices:
            price["steps"][0]["usd"] = "6.00" if price.get("zone") == ZONE_A else "9.00"

    _sold(site, dearer)
    _refused(site, 6, "refused: walk: sandbox/sandbox-east/sandbox-east-a/h100.1x/spot costs $12.00 an hour now, above")
    # The site's state did not make this plan, and its limits may have had discounts.
    _refused(site, 6, "plan again, or name the plan's limits, which this state does not know, with --limits")


def test_an_offer_that_is_gone(site: Site) -> None:
    _sold(site, lambda prices: prices.remove(_in_a(prices)))
    _refused(site, 6, "sandbox/sandbox-east/sandbox-east-a/h100.1x/spot is no longer in the price book (plan again")


def test_a_plan_on_the_made_up_cloud_at_prices_of_real_ones(site: Site) -> None:
    _refused(
        site, 6, "prices of sandbox, a made-up cloud, are in --book sandbox", options=("--yes", "--book", "latest")
    )
    result = run("plan", "check", site.plan)
    assert (result.exit_code, "--book sandbox" in _said(result)) == (6, True)


def test_prices_that_are_older_than_the_plans(site: Site, tmp_path: Path) -> None:
    before = sorted((site.home / "books" / "sandbox").glob("*.parquet"))
    assert len(before) == 1
    _sold(site, lambda _: None)
    folder, newer = site.folder, tmp_path / "newer.json"
    words = ("plan", folder / "jobs.yaml", "--limits", folder / "limits.yaml", "--out", newer, "--book", "sandbox")
    assert run(*words).exit_code == 0
    _refused(site, 6, "the price book is of", options=("--yes", "--book", before[0]), plan=newer)
    # A book that does not know the sandbox at all.
    _refused(site, 6, "is no longer in the price book", options=("--yes", "--book", "embedded"))


@pytest.mark.parametrize(
    ("code", "says", "options"),
    [
        (4, "is at risk, $0.01 is allowed (raise --max-cost)", ("--max-cost", "0.01")),
        (4, "above $1.00 somebody must approve (name them with --approved-by)", ("--approve-above", "$1")),
        (4, "somebody must approve", ("--approve-above", "1", "--approved-by", "  ")),
        (2, "--max-cost: ", ("--max-cost", "much")),
        (2, "--approve-above: -1 is below zero", ("--approve-above", "-1")),
        (2, "'--tries'", ("--tries", "0")),
        (2, "none.yaml", ("--limits", "none.yaml")),
        (2, "none.yaml", ("--deploy", "none.yaml")),
        (2, "nobook", ("--book", "nobook")),
        (2, "nojobs.yaml", ("--jobs", "nojobs.yaml")),
    ],
)
def test_options(site: Site, code: int, says: str, options: tuple[str, ...]) -> None:
    _refused(site, code, says, options=("--yes", *options))


def _expected_usd(site: Site) -> Usd:
    """Return the cost that the plan expects of its one order: on spot, and on the fallback behind it."""
    (line,) = plan_from_json(site.plan.read_text()).lines
    assert line.fallback is not None
    own = line.usd_per_hour.over(timedelta(microseconds=int(line.hours * 3_600_000_000)))
    return own + line.fallback.cost_usd


def test_a_teams_budget(site: Site, tmp_path: Path) -> None:
    limits = tmp_path / "limits.yaml"
    limits.write_text(yaml.safe_dump({"teams": [{"team": "team-a", "budget": "$0.60", "spent": "$0.10"}]}))
    total = format_usd(_expected_usd(site) + Usd.parse("0.10"))
    _refused(site, 4, f"team team-a would come to {total} of a budget of $0.60", options=("--yes", "--limits", limits))


def test_nobody_there_to_be_asked(site: Site) -> None:
    _refused(site, 2, "--yes: nobody can be asked here", "agree with --yes", options=())


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param("n\n", id="no"),
        pytest.param("\n", id="nothing", marks=pytest.mark.slow),
        pytest.param("\x04", id="end", marks=pytest.mark.slow),
    ],
)
def test_whoever_is_asked_and_does_not_say_yes(site: Site, answer: str) -> None:
    asks, terminal = pty.openpty()
    try:
        process = subprocess.Popen(
            [str(STEPFARE), "apply", str(site.plan), "--book", "sandbox"],
            env=site.environment,
            stdin=terminal,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        os.write(asks, answer.encode())
        out, err = process.communicate(timeout=60)
    finally:
        os.close(asks)
        os.close(terminal)
    assert process.returncode == 4, err
    assert f"Make 1 gang, expected {format_usd(_expected_usd(site))}, at risk up to $" in err
    assert err.endswith("? [y/N]: not applied\n" if answer != "\x04" else "? [y/N]: \nnot applied\n")
    assert out == ""
    _nothing_was_made(site)


def test_a_job_that_was_changed_since(site: Site) -> None:
    jobs = site.folder / "jobs.yaml"
    jobs.write_text(jobs.read_text().replace("steps: 1000", "steps: 2000"))
    _refused(site, 2, "job walk: error: the job was changed since it was planned", options=("--yes", "--jobs", jobs))


def test_a_job_that_nobody_knows(site: Site) -> None:
    (site.home / "state.db").unlink()
    _refused(site, 2, "job walk: error: the specification of this job is not known", "give its file with --jobs PATH")


def test_a_job_without_anything_to_start(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = {name: value for name, value in job("walk", machines=2).items() if name != "run"}
    template = planned(base, "no-run", nothing)
    for site in _entered(template.site(tmp_path / "site"), monkeypatch):
        _refused(site, 2, "job walk: error: has no `run`: there is nothing to start")


def test_a_secret_that_is_not_set(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STEPFARE_JOB_NOT_SET", raising=False)
    monkeypatch.setenv("STEPFARE_JOB_SET", CANARY)
    env = {"TOKEN": "secret:env:STEPFARE_JOB_NOT_SET", "OTHER": "secret:env:STEPFARE_JOB_SET"}
    template = planned(base, "secret", job("walk", machines=2, run={"env": env}))
    for site in _entered(template.site(tmp_path / "site"), monkeypatch):
        _refused(
            site,
            2,
            "job walk: error: run.env.TOKEN: refers to the variable STEPFARE_JOB_NOT_SET, which is not set",
            "export STEPFARE_JOB_NOT_SET",
        )


def test_secrets_that_the_team_may_not_name_and_those_it_may(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job file of anybody would otherwise send the keys of whoever applies to machines that its author logs in to."""
    key = tmp_path / "key"
    key.write_text(CANARY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARY)
    env = {"A": "secret:env:AWS_SECRET_ACCESS_KEY", "B": f"secret:file:{key}"}
    mine = job("walk", machines=2, run={"env": env})
    for site in _entered(planned(base, "keys", mine).site(tmp_path / "site"), monkeypatch):
        _refused(site, 2, "run.env.A: refers to the variable AWS_SECRET_ACCESS_KEY, which team team-a may not")
        site.deploy(secrets={"team-a": {"env": ["AWS_SECRET_ACCESS_KEY"]}})
        _refused(site, 2, f"run.env.B: refers to {key}, which team team-a may not")
        site.deploy(secrets={"team-a": {"env": ["AWS_SECRET_ACCESS_KEY"], "files": [str(tmp_path)]}})
        result = run("apply", site.plan, "--dry-run", "--book", "sandbox")
        said = _said(result)
        assert result.exit_code == 0, said
        assert "secrets of walk (team team-a): A is secret:env:AWS_SECRET_ACCESS_KEY, B is secret:file:" in said
        assert CANARY not in said


def test_a_reference_that_was_swapped(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STEPFARE_JOB_PLANNED", "STEPFARE_JOB_OTHER"):
        monkeypatch.setenv(name, CANARY)
    mine = job("walk", machines=2, run={"env": {"TOKEN": "secret:env:STEPFARE_JOB_PLANNED"}})
    for site in _entered(planned(base, "swap", mine).site(tmp_path / "site"), monkeypatch):
        other = site.folder / "other.yaml"
        other.write_text((site.folder / "jobs.yaml").read_text().replace("STEPFARE_JOB_PLANNED", "STEPFARE_JOB_OTHER"))
        changed = "job walk: error: the job was changed since it was planned"
        _refused(site, 2, changed, options=("--yes", "--jobs", other))
        _refused(site, 2, changed, options=("--dry-run", "--jobs", other))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("coordinator: {listen: nowhere}", "deploy.yaml:1:23: error: coordinator.listen: is no address with a port"),
        ("engin: terraform", "deploy.yaml:1:1: error: engin"),
        ("timeouts: {rendezvous: soon}", "timeouts.rendezvous"),
        ("clouds: {lambda: {}}", "no machines can be made there"),
        ("{", "deploy.yaml"),
        ("- 1", "a deploy file is a mapping of fields"),
    ],
)
def test_a_deploy_file_that_is_wrong(site: Site, text: str, says: str) -> None:
    (site.home / "deploy.yaml").write_text(text)
    _refused(site, 2, says)


def test_engines_that_cannot_be_used(site: Site, tmp_path: Path) -> None:
    site.deploy(engine=str(tmp_path / "terraform"))
    _refused(site, 1, "the configured engine", "is not an executable file", "install terraform or tofu")
    old = tmp_path / "terraform"
    old.write_text('#!/bin/sh\necho "Terraform v1.2.0"\n')
    old.chmod(0o755)
    _refused(site, 1, "is Terraform 1.2.0; 1.6 or newer is needed")
    old.write_text("#!/bin/sh\nexit 3\n")
    _refused(site, 1, "is not Terraform or does not run")


def test_a_port_that_is_taken(site: Site) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        site.deploy(coordinator={"listen": f"127.0.0.1:{taken.getsockname()[1]}"})
        _refused(site, 1, f"cannot listen on 127.0.0.1:{taken.getsockname()[1]}", "stop what listens there")


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"this is a text, and no database\n" * 200, "is not a database, or is damaged"), (b"", "is empty")],
)
def test_a_state_that_is_none(site: Site, content: bytes, says: str) -> None:
    (site.home / "state.db").write_bytes(content)
    for words in (("apply", site.plan, "--yes"), ("status",), ("destroy", "--all", "--yes"), ("sweep",), ("audit",)):
        result = run(*words)
        assert result.exit_code == 1, _said(result)
        assert says in _said(result)
        assert "restore it from a backup, then run `stepfare sweep`" in _said(result)
    assert (site.home / "state.db").read_bytes() == content


def test_a_home_that_cannot_be(site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("STEPFARE_HOME", str(file / "home"))
    book = next((site.home / "books" / "sandbox").glob("*.parquet"))
    result = run("apply", site.plan, "--yes", "--book", book)
    assert result.exit_code in (1, 2), _said(result)
    assert str(file) in _said(result)
    assert file.read_text() == ""


def _tree(folder: Path) -> Mapping[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_dry_run_writes_nothing(site: Site) -> None:
    before = _tree(site.folder)
    result = run("apply", site.plan, "--dry-run", "--book", "sandbox")
    assert result.exit_code == 0, _said(result)
    assert "walk sandbox/sandbox-east-a 2 x h100.1x spot" in _said(result)
    assert "dry run: nothing was made or written" in result.stderr
    assert _tree(site.folder) == before


def test_a_dry_run_shows_what_it_would_do_before_it_asks_for_an_address(site: Site, tmp_path: Path) -> None:
    job, plan = tmp_path / "job.yaml", tmp_path / "cloud.json"
    job.write_text(
        "name: tiny\nteam: research\nsteps: 1000\ndeadline: +18h\nrun: {command: python train.py}\n"
        "workload: {profile: [{accelerator: H100, count: 8, steps_per_hour: 900}]}\n"
        "gang: {accelerators: H100:8}\ncheckpoint: {size_gib: 80}\n"
    )
    site.deploy(coordinator=None)
    assert run("plan", job, "--book", "embedded", "--out", plan).exit_code == 0
    shown = run("apply", plan, "--book", "embedded", "--dry-run")
    assert shown.exit_code == 0
    assert "2 to be made" in shown.stderr or "1 gang, expected" in shown.stderr
    assert "`coordinator: {listen: ..., url: https://...}`" in shown.stderr
    refused = run("apply", plan, "--book", "embedded", "--yes")
    assert refused.exit_code == 2
    assert "`coordinator: {listen: ..., url: https://...}`" in refused.stderr


def test_a_dry_run_needs_no_home(site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    book = shutil.copy(next((site.home / "books" / "sandbox").glob("*.parquet")), tmp_path / "book.parquet")
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path / "none"))
    words = ("apply", site.plan, "--dry-run", "--book", book)
    known = run(*words, "--jobs", site.folder / "jobs.yaml")
    assert known.exit_code == 0, _said(known)
    assert run(*words).exit_code == 2  # no job is known there
    for other in (("status",), ("audit",), ("logs", "walk"), ("sweep",), ("destroy", "--all", "--yes")):
        assert run(*other).exit_code in (0, 2), other
    assert not (tmp_path / "none").exists()
