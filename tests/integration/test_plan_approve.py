"""``stepfare plan approve``, and `apply` with rules: what is recorded, listed, revoked and refused."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import Result

from pricing.money import Usd
from router.config.approval_file import load_approval_rules
from router.controller.accept.accept import APPLY
from router.controller.accept.approval import APPROVE, REVOKE, SET_RULES
from router.planning.document.plan_json import plan_from_json, plan_to_json
from router.state.audit import verify_chain
from tests.support.command import run
from tests.support.deployed import Site, Template, job, planned
from tests.support.terraform_runs import needs_engine

pytestmark = needs_engine
RULES = "approvers: [{name: ana}, {name: bo, up_to: $0.01}]\n"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    return planned(tmp_path_factory.getbasetemp(), "approved", job("walk", machines=2))


def moded(mode: str) -> dict[str, Any]:
    """A job that is told by a variable what to do."""
    return job("walk", machines=2, run={"env": {"MODE": mode}})


@pytest.fixture
def valued(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    yield from entered(planned(tmp_path_factory.getbasetemp(), "valued", moded("train")), tmp_path, monkeypatch)


@pytest.fixture
def site(template: Template, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    yield from entered(template, tmp_path, monkeypatch)


def entered(template: Template, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A site whose commands run in this process, and whose plan carl made."""
    site = template.site(tmp_path / "site")
    for name in ("PATH", "STEPFARE_HOME", "STEPFARE_CLOUDS", "STEPFARE_SANDBOX", "COLUMNS"):
        monkeypatch.setenv(name, site.environment[name])
    text = site.plan.read_text(encoding="utf-8")
    with site.store() as store:
        store.made_plans.put(site.digest, text, plan_from_json(text).as_of, datetime.now(UTC), "carl@desk", "night")
    yield site
    site.end()


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "approval.yaml"
    path.write_text(RULES, encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files belong to the user of this process; the system says that commands run as another one."""
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


@pytest.fixture(autouse=True)
def act_as(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Commands run by sudo, as the account that is named: by robot at first."""

    def act(name: str) -> None:
        monkeypatch.setattr(os, "getuid", lambda: 0)
        monkeypatch.setenv("SUDO_USER", name)

    act("robot")
    return act


def clock(monkeypatch: pytest.MonkeyPatch, speed: int, seconds: int) -> None:
    """Time has run this many times as fast for so many seconds, and runs on."""
    since = datetime.now(UTC) - timedelta(seconds=seconds)
    monkeypatch.setenv("STEPFARE_CLOCK", f"{speed}@{since.isoformat(timespec='seconds')}")


def said(result: Result) -> str:
    return " ".join((result.stdout + result.stderr).split())


def applied(site: Site, *options: object) -> Result:
    return run("apply", site.plan, "--dry-run", "--book", "sandbox", *options)


def hold(rules: Path, text: str = RULES) -> None:
    """These are the rules of the state from now on."""
    rules.write_text(text, encoding="utf-8")
    result = run("approvals", "set", rules)
    assert (result.exit_code, "set by robot@" in said(result)) == (0, True), said(result)


@pytest.fixture
def approve(site: Site, act_as: Callable[[str], None]) -> Callable[..., Result]:
    """Somebody approves the plan, and robot goes on."""

    def approve(*options: object, name: str = "ana") -> Result:
        act_as(name)
        result = run("plan", "approve", site.plan, *options)
        act_as("robot")
        return result

    return approve


Approve = Callable[..., Result]


def test_a_plan_is_refused_until_it_is_approved_and_again_after_a_revocation(
    site: Site, rules: Path, approve: Approve
) -> None:
    assert applied(site).exit_code == 0
    hold(rules)
    refused = applied(site)
    assert refused.exit_code == 4, said(refused)
    assert "is at risk, which somebody must approve, and nobody did" in said(refused)
    assert "stepfare plan approve PLAN" in said(refused)
    given = approve("--note", "seen with the team")
    assert given.exit_code == 0, said(given)
    assert f"plan-{site.digest[:12]}: $" in given.stdout
    assert applied(site).exit_code == 0
    assert applied(site, "--approve-above", "0.01").exit_code == 0
    taken = approve("--revoke")
    assert taken.exit_code == 0, said(taken)
    again = applied(site)
    assert (again.exit_code, "ana revoked it at" in said(again)) == (4, True)
    assert approve("--revoke").exit_code == 1
    with site.store() as store:
        entries = store.audit.entries()
    assert verify_chain(entries) is None
    assert [(entry.what, entry.digest, entry.details.get("by")) for entry in entries[1:]] == [
        (APPROVE, site.digest, "ana"),
        (REVOKE, site.digest, "ana"),
    ]
    assert (entries[0].what, entries[0].details["rules"]) == (
        SET_RULES,
        load_approval_rules(rules).model_dump(mode="json"),
    )
    assert entries[1].who.startswith("ana@")
    assert entries[1].details["note"] == "seen with the team"
    assert entries[1].details["rules"] == entries[0].digest


def test_apply_records_who_approved_and_the_figure_that_was_approved(site: Site, rules: Path, approve: Approve) -> None:
    hold(rules)
    assert approve().exit_code == 0
    named = run("apply", site.plan, "--yes", "--book", "sandbox", "--approved-by", "bo")
    assert (named.exit_code, "`plan approve` records who approves" in said(named)) == (2, True)
    checked = json.loads(run("plan", "check", site.plan, "--book", "sandbox", "-o", "json").stdout)
    result = run("apply", site.plan, "--yes", "--book", "sandbox", "--max-cost", checked["at_risk_usd"])
    assert result.exit_code == 0, said(result)
    with site.store() as store:
        approval, entry = store.audit.entries()[1:3]
    assert (entry.what, entry.details["approved_by"]) == ("apply", "ana")
    assert str(entry.usd) == str(approval.usd) == checked["at_risk_usd"]
    assert entry.details["at_risk_by_team"] == {"team-a": str(entry.usd)}


def test_an_approval_is_of_the_values_of_variables_that_jobs_had_then(
    valued: Site, rules: Path, act_as: Callable[[str], None]
) -> None:
    """Values are in no digest, since some are secret, and whoever applies may name job files."""
    hold(rules)
    act_as("ana")
    assert run("plan", "approve", valued.plan).exit_code == 0
    act_as("robot")
    assert applied(valued).exit_code == 0
    same, other = (valued.folder / f"{name}.yaml" for name in ("same", "other"))
    for file, mode in ((same, "train"), (other, "other")):
        file.write_text(yaml.safe_dump(moded(mode)), encoding="utf-8")
    assert applied(valued, "--jobs", same).exit_code == 0
    refused = applied(valued, "--jobs", other)
    assert (refused.exit_code, "ana approved other values of variables in `env`" in said(refused)) == (4, True)
    with valued.store() as store:
        assert "train" not in json.dumps([entry.details for entry in store.audit.entries()])


@pytest.mark.parametrize("name", ["LD_PRELOAD", "PYTHONPATH"])
def test_variables_that_load_code_are_not_added_after_an_approval(
    valued: Site, rules: Path, act_as: Callable[[str], None], name: str
) -> None:
    """They would start other code than was approved. Names of variables are in a job's digest, and so in the plan's."""
    hold(rules)
    act_as("ana")
    assert run("plan", "approve", valued.plan).exit_code == 0
    act_as("robot")
    attack = moded("train")
    attack["run"]["env"][name] = str(valued.folder / "evil")
    file = valued.folder / "attack.yaml"
    file.write_text(yaml.safe_dump(attack), encoding="utf-8")
    refused = applied(valued, "--jobs", file)
    assert (refused.exit_code, "the job was changed since it was planned" in said(refused)) == (2, True), said(refused)
    assert "evil" not in said(refused)
    assert applied(valued).exit_code == 0


def test_a_plan_goes_on_with_the_values_that_it_was_applied_with(valued: Site, rules: Path) -> None:
    hold(rules, f"{RULES}no_approval_up_to: 1000000\n")
    with valued.store() as store:
        store.audit.add("robot@desk", APPLY, valued.digest, Usd(1), datetime.now(UTC), environments="0" * 64)
    refused = applied(valued)
    assert (refused.exit_code, "robot@desk applied it with other values of variables" in said(refused)) == (4, True)


def test_the_list_says_what_counts(site: Site, rules: Path, approve: Approve) -> None:
    assert run("plan", "approve", "--list").stdout == "nothing was approved yet\n"
    hold(rules)
    approve()
    approve("--revoke")
    approve()
    text = run("plan", "approve", "--list").stdout
    assert [word for word in text.split() if word in ("revoked", "counts")] == ["revoked", "counts"]
    rows = json.loads(run("plan", "approve", site.plan, "--list", "-o", "json").stdout)["approvals"]
    assert [(row["name"], row["state"], row["digest"]) for row in rows] == [
        ("ana", "revoked", site.digest),
        ("ana", "counts", site.digest),
    ]
    hold(rules, "approvers: [{name: bo}]\n")
    assert "not allowed" in run("plan", "approve", "--list").stdout
    assert "APPROVE" not in run("audit").stdout
    assert " approve " in run("audit").stdout


def test_a_plan_that_this_state_did_not_make_is_neither_approved_nor_applied(
    site: Site, rules: Path, approve: Approve
) -> None:
    """An edited plan whose digest was computed anew is a plan that nobody made."""
    hold(rules)
    assert approve().exit_code == 0
    changed = plan_from_json(site.plan.read_text(encoding="utf-8"))
    site.plan.write_text(plan_to_json(replace(changed, gap_asked=0.25)), encoding="utf-8")
    for refused in (applied(site), approve()):
        assert (refused.exit_code, "was not made with this state" in said(refused)) == (4, True), said(refused)


@pytest.mark.parametrize(
    ("who", "options", "says"),
    [
        ("eve", (), "eve is not among the approvers (ana, bo)"),
        ("eve", ("--by", "ana"), "ana approves as ana, not as eve"),
        ("bo", (), "bo may approve up to $0.01"),
    ],
)
def test_whom_the_rules_do_not_let_approve(
    site: Site, rules: Path, approve: Approve, who: str, options: tuple[str, ...], says: str
) -> None:
    hold(rules)
    result = approve(*options, name=who)
    assert (result.exit_code, says in said(result)) == (4, True), said(result)
    with site.store() as store:
        assert store.audit.entries(APPROVE) == ()


def test_an_approval_expires(site: Site, rules: Path, approve: Approve, monkeypatch: pytest.MonkeyPatch) -> None:
    hold(rules, f"{RULES}max_age: 30m\n")
    assert approve().exit_code == 0
    clock(monkeypatch, 60, 45)
    refused = applied(site)
    assert refused.exit_code == 4, said(refused)
    assert "ana's approval expired at" in said(refused)
    assert "expired" in run("plan", "approve", "--list").stdout


def test_a_stale_plan_is_not_approved(
    site: Site, rules: Path, approve: Approve, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(rules)
    clock(monkeypatch, 3600, 10)
    result = approve()
    assert (result.exit_code, "the plan was good until" in said(result)) == (6, True)


def test_maker_and_applier_are_none_of_the_two_approvers(site: Site, rules: Path, approve: Approve) -> None:
    two = "approvers: [{name: robot}, {name: bo}, {name: carl}]\ntwo_approvers_above: $0.01\n"
    hold(rules, two)
    first = approve(name="bo")
    assert (first.exit_code, "one more approver is needed" in said(first)) == (0, True)
    assert approve(name="robot").exit_code == 0
    assert approve(name="carl").exit_code == 0
    refused = applied(site)
    assert refused.exit_code == 4
    assert "robot approved as robot, who applies it: four_eyes asks for somebody else" in said(refused)
    assert "carl approved as carl, who made it: four_eyes asks for somebody else" in said(refused)
    hold(rules, f"{two}four_eyes: false\n")
    assert applied(site).exit_code == 0


def test_a_deploy_file_has_rules_where_the_state_has_none(
    site: Site, rules: Path, tmp_path: Path, approve: Approve
) -> None:
    site.deploy(approval_rules=str(rules))
    assert applied(site).exit_code == 4
    assert approve().exit_code == 0
    assert applied(site).exit_code == 0
    own = tmp_path / "own.yaml"
    own.write_text("approvers: [{name: me}]\nno_approval_up_to: 1000000\n", encoding="utf-8")
    hold(rules, "approvers: [{name: bo}]\n")
    site.deploy(approval_rules=str(own))
    refused = applied(site)
    assert (refused.exit_code, f"{own} is not read: the rules that robot@" in said(refused)) == (4, True)
    site.deploy(approval_rules="approval.yaml")
    assert "is no absolute path" in said(applied(site))


def test_rules_of_a_file_that_the_applier_can_change_bind_nobody_and_are_refused(site: Site, rules: Path) -> None:
    site.deploy(approval_rules=str(rules))
    rules.chmod(0o666)
    refused = applied(site)
    assert refused.exit_code == 4
    assert "these rules bind nobody: the user that applies may write to the file (mode 0666)" in said(refused)
    assert "stepfare approvals set" in said(refused)


def test_who_administers_the_rules_is_told_that_they_bind_others(
    site: Site, rules: Path, approve: Approve, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.deploy(approval_rules=str(rules))
    become(monkeypatch, 0)
    assert "root can change these rules: they bind only who applies as another user" in said(applied(site))
    hold(rules)
    assert "you can change the rules of approvals: they bind only who applies as another user" in said(applied(site))


def test_the_rules_are_shown_with_who_set_them(site: Site, rules: Path) -> None:
    assert "no rules are set" in run("approvals", "show").stdout
    site.deploy(approval_rules=str(rules))
    assert f"{rules} holds" in said(run("approvals", "show"))
    hold(rules, f"{RULES}max_age: 30m\n")
    shown = run("approvals", "show")
    assert "set by robot@" in shown.stderr
    rules.write_text(shown.stdout, encoding="utf-8")
    assert run("approvals", "set", rules).exit_code == 0
    content = json.loads(run("approvals", "show", "-o", "json").stdout)
    assert content["rules"] == {"approvers": [{"name": "ana"}, {"name": "bo", "up_to": "0.01"}], "max_age": "30m"}
    assert content["set_by"].startswith("robot@")


def test_a_plain_user_changes_no_rules_no_clock_and_no_tokens(
    site: Site, rules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("token", "make", "ana", "--grant", "approver").exit_code == 0
    hold(rules)
    monkeypatch.setattr(os, "getuid", lambda: site.home.stat().st_uid + 4321)
    before = run("approvals", "show", "-o", "json").stdout
    for words in (("approvals", "set", rules), ("token", "make", "ana", "--grant", "approver")):
        refused = run(*words)
        assert (refused.exit_code, "only an administrator of" in said(refused)) == (7, True), said(refused)
        assert f"the folder {site.home} belongs to another user" in said(refused)
    assert run("approvals", "show", "-o", "json").stdout == before
    clock(monkeypatch, 1, 0)
    refused = applied(site)
    assert (refused.exit_code, "rules of approvals hold by the real time" in said(refused)) == (4, True)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "which plan?"),
        (("PLAN",), "there are no rules to approve by"),
        (("--list", "--by", "ana"), "lists and changes nothing"),
        (("missing.json", "--by", "ana"), "no such file"),
    ],
)
def test_words_that_do_not_go_together(site: Site, options: tuple[str, ...], says: str) -> None:
    result = run("plan", "approve", *(site.plan if word == "PLAN" else word for word in options))
    assert (result.exit_code, says in said(result)) == (2, True), said(result)
