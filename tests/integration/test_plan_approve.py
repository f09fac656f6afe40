"""``stepfare plan approve``, and `apply` with rules: what is recorded, listed, revoked and refused."""

from __future__ import annotations

import getpass
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from router.controller.approval import APPROVE, REVOKE
from router.planning.plan_json import plan_from_json, plan_to_json
from router.state.audit import verify_chain
from tests.support.command import run
from tests.support.deployed import Site, Template, job, planned
from tests.support.terraform_runs import needs_engine

pytestmark = needs_engine
RULES = "approvers: [{name: ana}, {name: bo, up_to: $0.01}]\nfour_eyes: false\n"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    return planned(tmp_path_factory.getbasetemp(), "approved", job("walk", machines=2))


@pytest.fixture
def site(template: Template, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Its commands run in this process."""
    site = template.site(tmp_path / "site")
    for name in ("PATH", "STEPFARE_HOME", "STEPFARE_CLOUDS", "STEPFARE_SANDBOX", "COLUMNS"):
        monkeypatch.setenv(name, site.environment[name])
    yield site
    site.end()


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "approval.yaml"
    path.write_text(RULES, encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules belong to the user of this process; the system says that commands run as another one."""
    access = os.access

    def may(path: Any, mode: int, **more: Any) -> bool:
        if mode == os.W_OK:
            return bool(Path(path).stat().st_mode & stat.S_IWOTH)
        return access(path, mode, **more)

    become(monkeypatch, os.geteuid() + 4321)
    monkeypatch.setattr(os, "access", may)


def become(monkeypatch: pytest.MonkeyPatch, uid: int) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(os, "getegid", lambda: uid)
    monkeypatch.setattr(os, "getgroups", list)


def clock(monkeypatch: pytest.MonkeyPatch, speed: int, seconds: int) -> None:
    """Time has run this many times as fast for so many seconds, and runs on."""
    since = datetime.now(UTC) - timedelta(seconds=seconds)
    monkeypatch.setenv("STEPFARE_CLOCK", f"{speed}@{since.isoformat(timespec='seconds')}")


def said(result: Result) -> str:
    return " ".join((result.stdout + result.stderr).split())


def applied(site: Site, *options: object) -> Result:
    return run("apply", site.plan, "--dry-run", "--book", "sandbox", *options)


def approved(site: Site, rules: Path, *options: object, name: str = "ana") -> Result:
    return run("plan", "approve", site.plan, "--by", name, "--rules", rules, *options)


def test_a_plan_is_refused_until_it_is_approved_and_again_after_a_revocation(site: Site, rules: Path) -> None:
    assert applied(site).exit_code == 0
    refused = applied(site, "--rules", rules)
    assert refused.exit_code == 4, said(refused)
    assert "is at risk, which somebody must approve, and nobody did" in said(refused)
    assert "stepfare plan approve PLAN --approved-by WHO" in said(refused)
    given = approved(site, rules, "--note", "seen with the team")
    assert given.exit_code == 0, said(given)
    assert f"plan-{site.digest[:12]}: $" in given.stdout
    assert applied(site, "--rules", rules).exit_code == 0
    assert applied(site, "--rules", rules, "--approve-above", "0.01").exit_code == 0
    taken = approved(site, rules, "--revoke")
    assert taken.exit_code == 0, said(taken)
    again = applied(site, "--rules", rules)
    assert (again.exit_code, "ana revoked it at" in said(again)) == (4, True)
    assert approved(site, rules, "--revoke").exit_code == 1
    with site.store() as store:
        entries = store.audit.entries()
    assert verify_chain(entries) is None
    assert [(entry.what, entry.digest, entry.details["by"]) for entry in entries] == [
        (APPROVE, site.digest, "ana"),
        (REVOKE, site.digest, "ana"),
    ]
    assert entries[0].who.startswith(f"{getpass.getuser()}@")
    assert entries[0].details["note"] == "seen with the team"
    assert len(str(entries[0].details["rules"])) == 64
    assert entries[0].usd.nanos > 0


def test_apply_records_who_approved(site: Site, rules: Path) -> None:
    assert approved(site, rules).exit_code == 0
    result = run("apply", site.plan, "--yes", "--book", "sandbox", "--rules", rules)
    assert result.exit_code == 0, said(result)
    with site.store() as store:
        entry = store.audit.entries()[-1]
    assert (entry.what, entry.details["approved_by"]) == ("apply", "ana")


def test_the_list_says_what_counts(site: Site, rules: Path) -> None:
    assert run("plan", "approve", "--list").stdout == "nothing was approved yet\n"
    approved(site, rules)
    approved(site, rules, "--revoke")
    approved(site, rules)
    text = run("plan", "approve", "--list", "--rules", rules).stdout
    assert [word for word in text.split() if word in ("revoked", "counts")] == ["revoked", "counts"]
    rows = json.loads(run("plan", "approve", site.plan, "--list", "-o", "json").stdout)["approvals"]
    assert [(row["name"], row["state"], row["digest"]) for row in rows] == [
        ("ana", "revoked", site.digest),
        ("ana", "recorded", site.digest),
    ]
    rules.write_text("approvers: [{name: bo}]\n", encoding="utf-8")
    assert "not allowed" in run("plan", "approve", "--list", "--rules", rules).stdout
    assert "APPROVE" not in run("audit").stdout
    assert " approve " in run("audit").stdout


def test_a_plan_that_changed_needs_its_own_approval(site: Site, rules: Path) -> None:
    assert approved(site, rules).exit_code == 0
    changed = plan_from_json(site.plan.read_text(encoding="utf-8"))
    site.plan.write_text(plan_to_json(replace(changed, gap_asked=0.25)), encoding="utf-8")
    refused = applied(site, "--rules", rules)
    assert refused.exit_code == 4
    assert f"the last approval, by ana, is of plan-{site.digest[:12]}: a plan that changed needs its own" in said(
        refused
    )


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("eve", 4, "eve is not among the approvers (ana, bo)"),
        ("bo", 4, "bo may approve up to $0.01"),
        (" ", 2, "who approves?"),
    ],
)
def test_whom_the_rules_do_not_let_approve(site: Site, rules: Path, name: str, code: int, says: str) -> None:
    result = approved(site, rules, name=name)
    assert (result.exit_code, says in said(result)) == (code, True), said(result)
    with site.store() as store:
        assert store.audit.entries() == ()


def test_an_approval_expires(site: Site, rules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules.write_text(f"{RULES}max_age: 30m\n", encoding="utf-8")
    assert approved(site, rules).exit_code == 0
    clock(monkeypatch, 60, 45)
    refused = applied(site, "--rules", rules)
    assert refused.exit_code == 4, said(refused)
    assert "ana's approval expired at" in said(refused)
    assert "expired" in run("plan", "approve", "--list", "--rules", rules).stdout


def test_a_stale_plan_is_not_approved(site: Site, rules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, 3600, 10)
    result = approved(site, rules)
    assert (result.exit_code, "the plan was good until" in said(result)) == (6, True)


def test_four_eyes_and_two_people(site: Site, rules: Path) -> None:
    rules.write_text("approvers: [{name: ana}, {name: bo}]\ntwo_approvers_above: $0.01\n", encoding="utf-8")
    first = approved(site, rules)
    assert (first.exit_code, "one more approver is needed" in said(first)) == (0, True)
    assert approved(site, rules, name="bo").exit_code == 0
    refused = applied(site, "--rules", rules)
    assert refused.exit_code == 4
    assert "who applies it: four_eyes asks for somebody else" in said(refused)
    rules.write_text(f"{rules.read_text(encoding='utf-8')}four_eyes: false\n", encoding="utf-8")
    assert applied(site, "--rules", rules).exit_code == 0


def test_the_deploy_file_names_the_rules_and_no_option_sets_them_aside(site: Site, rules: Path, tmp_path: Path) -> None:
    site.deploy(approval_rules=str(rules))
    assert applied(site).exit_code == 4
    assert applied(site, "--rules", rules).exit_code == 4
    other = tmp_path / "other.yaml"
    other.write_text("approvers: [{name: me}]\nno_approval_up_to: 1000000\n", encoding="utf-8")
    refused = applied(site, "--rules", other)
    assert (refused.exit_code, "the deploy file names other rules" in said(refused)) == (2, True)
    assert run("plan", "approve", site.plan, "--by", "ana").exit_code == 0
    assert applied(site).exit_code == 0
    rules.unlink()
    assert applied(site).exit_code == 2
    site.deploy(approval_rules="approval.yaml")
    assert "is no absolute path" in said(applied(site))


def test_rules_that_the_applier_can_change_bind_nobody_and_are_refused(site: Site, rules: Path) -> None:
    assert approved(site, rules).exit_code == 0
    rules.chmod(0o666)
    refused = applied(site, "--rules", rules)
    assert refused.exit_code == 4
    assert "these rules bind nobody: the user that applies may write to the file (mode 0666)" in said(refused)
    assert "writable by that user alone" in said(refused)


def test_root_is_told_that_the_rules_do_not_bind_it(site: Site, rules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    become(monkeypatch, 0)
    approved(site, rules)
    result = applied(site, "--rules", rules)
    assert result.exit_code == 0
    assert "root can change these rules: they bind only who applies as another user" in said(result)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "which plan?"),
        (("PLAN",), "who approves?"),
        (("PLAN", "--by", "ana"), "there are no rules to approve by"),
        (("--list", "--by", "ana"), "lists and changes nothing"),
        (("missing.json", "--by", "ana"), "cannot be read"),
    ],
)
def test_words_that_do_not_go_together(site: Site, options: tuple[str, ...], says: str) -> None:
    result = run("plan", "approve", *(site.plan if word == "PLAN" else word for word in options))
    assert (result.exit_code, says in said(result)) == (2, True), said(result)
