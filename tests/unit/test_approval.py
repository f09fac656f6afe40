"""Rules of approvals: who may approve how much, how many must, for how long; and what does not count."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pricing.money import Usd
from pricing.problems import InvalidInputError
from router.config.approval_file import ProcessIdentity, change_problem, load_approval_rules
from router.controller.accept.accept import APPLY
from router.controller.accept.approval import (
    APPROVE,
    REVOKE,
    Approval,
    ApprovalRules,
    Exposure,
    PlanPeople,
    approvals_of,
    at_risk_by_team,
    exposure_of,
    judge_approvals,
    needed_approvers,
)
from router.controller.accept.guardrails import RefusalReason
from router.planning.document.plan_json import plan_content
from router.state.audit import verify_chain
from router.state.store import StateStore
from tests.support.scenes import NORTH, a_job, plan_of

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
PLAN = plan_of([a_job("a"), a_job("b", steps=100)], [NORTH])
DIGEST: str = plan_content(PLAN)["digest"]
EXPOSURE = Exposure(at_risk_by_team(PLAN, {}), {})
USD = EXPOSURE.usd


def rules(**fields: Any) -> ApprovalRules:
    fields.setdefault("approvers", [{"name": "ana", "up_to": "$1000"}, {"name": "bo"}])
    return ApprovalRules.model_validate(fields)


def by(name: str, login: str = "", **changes: Any) -> Approval:
    approval = Approval(1, NOW, name, login or f"{name}@desk", DIGEST, USD, "", "")
    return replace(approval, **changes)


def against(found: ApprovalRules, *approvals: Approval, applier: str = "robot@ci", **more: Any) -> list[str]:
    """What is said against applying the plan an hour after its approval."""
    now, exposure = more.pop("now", NOW + timedelta(hours=1)), more.pop("exposure", EXPOSURE)
    people = PlanPeople(more.pop("maker", ""), applier, more.pop("database_user", ""))
    return [r.what for r in judge_approvals(found, exposure, DIGEST, approvals, people, now, **more).refusals]


def test_orders_put_their_ceilings_at_risk_by_team() -> None:
    assert EXPOSURE.plan == {"red": USD}
    assert EXPOSURE.plan_usd == USD >= PLAN.cost_usd > Usd(0)


def applied(store: StateStore, digest: str, usd: str, at: datetime, team: str = "red") -> None:
    amounts = {team: str(Usd.parse(usd))}
    store.audit.add("eve@desk", APPLY, digest, Usd.parse(usd), at, at_risk_by_team=amounts)


def test_what_a_team_applied_within_a_day_is_judged_with_what_it_applies_now(tmp_path: Path) -> None:
    with StateStore.open(f"sqlite:///{tmp_path}/state.db", now=NOW) as store:
        applied(store, "1" * 64, "1000", NOW - timedelta(hours=24))
        applied(store, "2" * 64, "40", NOW - timedelta(hours=23))
        applied(store, "2" * 64, "30", NOW - timedelta(hours=22))
        applied(store, "3" * 64, "500", NOW, team="blue")
        applied(store, "4" * 64, "7", NOW)
        entries = store.audit.entries()
    ours = {"red": Usd.parse(20)}
    found = exposure_of(ours, "5" * 64, entries, NOW)
    assert (found.plan_usd, found.usd) == (Usd.parse(20), Usd.parse(57))
    # A plan that goes on is judged as when it began: what was applied after it makes no difference.
    assert exposure_of(ours, "4" * 64, entries, NOW + timedelta(hours=9)).usd == Usd.parse(50)
    two = rules(no_approval_up_to="30", max_usd="50", max_usd_by_team={"red": "50"})
    refusals = judge_approvals(two, found, "5" * 64, (), PlanPeople(), NOW).refusals
    assert [r.what for r in refusals] == [
        "the plan puts $20.00 ($57.00 with what was applied within a day) at risk, and the rules allow $50.00",
        "team red puts $20.00 ($57.00 with what was applied within a day) at risk, and the rules allow $50.00",
        "$20.00 ($57.00 with what was applied within a day) is at risk, which somebody must approve, and nobody did",
    ]


def test_an_approval_of_somebody_whom_the_rules_allow_is_enough() -> None:
    assert against(rules(), by("ana")) == []
    judged = judge_approvals(rules(), EXPOSURE, DIGEST, [by("ana"), by("bo")], PlanPeople(), NOW)
    assert judged.approvers == ("ana", "bo")


def test_nobody_and_too_little_to_ask_for() -> None:
    (said,) = against(rules())
    assert said == f"${USD.dollars():,.2f} is at risk, which somebody must approve, and nobody did"
    assert against(rules(no_approval_up_to=str(USD))) == []
    assert needed_approvers(rules(no_approval_up_to="1"), Usd.parse("1.01")) == 1


@pytest.mark.parametrize(
    ("approval", "says"),
    [
        (by("eve"), "eve is not among the approvers (ana, bo)"),
        (by("Ana"), "Ana is not among the approvers"),
        (by("ana", at=NOW - timedelta(hours=23)), "ana's approval expired at 2026-11-21 19:00Z"),
        (by("ana", revoked_at=NOW), "ana revoked it at 2026-11-21 18:00Z"),
        (by("ana", login="robot@desk"), "ana approved as robot, who applies it: four_eyes asks for somebody else"),
        (by("ana", login="eve@desk"), "ana approves as ana, not as eve"),
        (by("ana", digest="0" * 64), "the last approval, by ana, is of plan-000000000000: a plan that changed"),
    ],
)
def test_what_does_not_count(approval: Approval, says: str) -> None:
    (said,) = against(rules(), approval)
    assert says in said


def test_more_than_an_approver_may_approve() -> None:
    few = rules(approvers=[{"name": "ana", "up_to": "$1"}, {"name": "bo"}])
    assert "ana may approve up to $1.00, and" in against(few, by("ana"))[0]
    assert against(few, by("ana"), by("bo")) == []


def test_a_name_bound_to_a_login_is_not_taken_on_trust() -> None:
    bound = rules(approvers=[{"name": "ana", "login": "ana.b"}, {"name": "bo", "login": "bo@desk"}])
    assert "ana approves as ana.b, not as ana" in against(bound, by("ana"))[0]
    assert against(bound, by("ana", login="ana.b@anywhere")) == []
    assert "bo approves as bo@desk, not as bo" in against(bound, by("bo", login="bo@elsewhere"))[0]


def test_a_name_bound_to_a_database_user_is_approved_and_applied_by_two_of_them() -> None:
    bound = rules(approvers=[{"name": "ana", "database_user": "ana_db"}])
    assert "ana approves as database user ana_db, not as eve_db" in against(bound, by("ana", database_user="eve_db"))[0]
    given = by("ana", database_user="ana_db")
    assert against(bound, given, database_user="eve_db") == []
    assert "who applies it" in against(bound, given, applier="zed@desk", database_user="ana_db")[0]
    assert against(rules(), by("ana", database_user="shared"), database_user="shared") == []


def test_two_people_above_an_amount() -> None:
    two = rules(two_approvers_above="1")
    assert "two people must approve, and only ana did" in against(two, by("ana"))[0]
    assert "and only ana did" in against(two, by("ana"), by("ana", seq=2))[0]
    assert against(two, by("ana"), by("bo")) == []
    one_login = {"two_approvers_above": "1", "approvers": [{"name": n, "login": "x"} for n in ("ana", "bo")]}
    (said,) = against(rules(**one_login), by("ana", login="x@1"), by("bo", login="x@2"))
    assert "bo and ana approved under one login, x" in said
    assert against(rules(**one_login, four_eyes=False), by("ana", login="x@1"), by("bo", login="x@1")) == []
    assert against(rules(two_approvers_above=str(USD)), by("ana")) == []


def test_four_eyes_looks_at_names_and_logins_and_can_be_switched_off() -> None:
    assert against(rules(), by("ana"), applier="ana@ci") != []
    assert against(rules(four_eyes=False), by("ana"), applier="ana@desk") == []
    assert against(rules(), by("ana"), by("bo"), applier="ana@ci") == []


def test_maker_approver_and_applier_are_different_people_where_the_rules_ask_for_it() -> None:
    (said,) = against(rules(), by("ana"), maker="ana@desk")
    assert "ana approved as ana, who made it: four_eyes asks for somebody else" in said
    assert against(rules(four_eyes=False), by("ana"), maker="ana@desk") == []
    assert against(rules(), by("ana"), maker="robot@ci") == []
    (said,) = against(rules(maker_may_apply=False), by("ana"), maker="robot@laptop")
    assert said == "robot made the plan: the rules ask that somebody else applies it"
    assert against(rules(maker_may_apply=False), by("ana"), maker="carl@desk") == []


def test_an_approval_holds_for_its_age_and_for_later_gangs_of_an_accepted_plan() -> None:
    short = rules(max_age="90m")
    assert against(short, by("ana"), now=NOW + timedelta(minutes=89)) == []
    assert against(short, by("ana"), now=NOW + timedelta(minutes=90)) != []
    late = NOW + timedelta(days=3)
    assert against(short, by("ana"), now=late, accepted_before=True) == []
    assert against(short, by("ana", revoked_at=NOW), now=late, accepted_before=True) != []


def test_no_approval_lifts_a_ceiling() -> None:
    low = rules(max_usd="1", max_usd_by_team={"red": "$2", "blue": "1"})
    found = judge_approvals(low, EXPOSURE, DIGEST, [by("ana"), by("bo")], PlanPeople(), NOW).refusals
    assert [refusal.cause for refusal in found] == [RefusalReason.COST, RefusalReason.COST]
    assert "the plan puts $" in found[0].what
    assert "team red puts $" in found[1].what


def test_a_renewed_approval_counts_though_the_first_one_expired_or_was_revoked() -> None:
    old = by("ana", at=NOW - timedelta(days=2))
    assert against(rules(), old, by("ana", seq=2)) == []
    assert against(rules(), by("ana", revoked_at=NOW), by("ana", seq=2)) == []


def test_approvals_are_read_from_the_audit_log_and_its_chain_holds(tmp_path: Path) -> None:
    with StateStore.open(f"sqlite:///{tmp_path}/state.db", now=NOW) as store:
        store.audit.add("ana@desk", APPROVE, DIGEST, USD, NOW, by="ana", note="seen", rules=rules().digest)
        store.audit.add("bo@desk", APPROVE, DIGEST, USD, NOW, by="bo", note="", rules="")
        store.audit.add("robot@ci", "apply", DIGEST, USD, NOW, approved_by="ana")
        store.audit.add("ana@desk", REVOKE, DIGEST, USD, NOW + timedelta(hours=1), by="ana", note="")
        store.audit.add("ana@desk", APPROVE, DIGEST, USD, NOW + timedelta(hours=2), by="ana", note="again", rules="")
        entries = store.audit.entries()
    assert verify_chain(entries) is None
    found = approvals_of(entries)
    assert [(a.name, a.note, a.revoked_at) for a in found] == [
        ("ana", "seen", NOW + timedelta(hours=1)),
        ("bo", "", None),
        ("ana", "again", None),
    ]
    assert (found[0].login, found[0].usd, found[0].rules) == ("ana@desk", USD, rules().digest)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty: nobody could approve anything"),
        ("- ana", "a rules file is a mapping of fields"),
        ("approvers: []", "approvers"),
        ("max_usd: 5", "approvers"),
        ("approvers: [{name: ana}, {name: ana}]", "'ana' is there twice"),
        ("approvers: [{name: ana}]\ntwo_approvers_above: 5", "there is only one approver"),
        ("approvers: [{name: ana, up_to: lots}]", "approvers[0].up_to"),
        ("approvers: [{name: ana}]\nmax_age: 0h", "max_age"),
        ("approvers: [{name: ana}]\nfour_eye: true", "four_eye"),
        ("approvers: [{name: ana}]\n---\napprovers: [{name: bo}]", "one document"),
        ("approvers: [", "approval.yaml"),
    ],
)
def test_rules_that_are_wrong_are_refused_with_their_place(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "approval.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInputError) as refused:
        load_approval_rules(path)
    problem = refused.value.problems[0]
    assert str(path) in problem.where
    assert says in f"{problem.field}: {problem.what} {problem.where}"


def test_rules_are_read_and_their_digest_is_of_their_content(tmp_path: Path) -> None:
    path = tmp_path / "approval.yaml"
    path.write_text("approvers:\n- {name: ana, up_to: $1000}\n- name: bo\n", encoding="utf-8")
    assert load_approval_rules(path) == rules()
    assert load_approval_rules(path).digest == rules().digest != rules(four_eyes=False).digest
    with pytest.raises(InvalidInputError, match="missing"):
        load_approval_rules(tmp_path / "missing.yaml")
    with pytest.raises(ValidationError):
        rules(max_usd="-5")


@pytest.fixture
def guarded(tmp_path: Path) -> Path:
    """A rules file in a folder of its own, both of this process' user."""
    (tmp_path / "etc").mkdir(mode=0o755)
    path = tmp_path / "etc" / "approval.yaml"
    path.write_text("approvers: [{name: ana}]\n", encoding="utf-8")
    path.chmod(0o644)
    return path


def somebody_else(path: Path, *groups: int) -> ProcessIdentity:
    return ProcessIdentity(path.stat().st_uid + 4321, frozenset(groups))


def test_rules_of_another_user_that_nobody_else_may_write_bind(guarded: Path) -> None:
    assert change_problem(guarded, somebody_else(guarded)) == ""
    assert change_problem(guarded, ProcessIdentity(0, frozenset())) == ""


def test_rules_that_the_applier_could_change_are_found_out(guarded: Path, tmp_path: Path) -> None:
    other = somebody_else(guarded)
    group = guarded.stat().st_gid
    guarded.chmod(0o666)
    assert change_problem(guarded, other) == "the user that applies may write to the file (mode 0666)"
    guarded.chmod(0o664)
    assert change_problem(guarded, other) == ""
    assert "may write to the file (mode 0664)" in change_problem(guarded, replace(other, groups=frozenset({group})))
    guarded.chmod(0o644)
    guarded.parent.chmod(0o777)
    assert f"may write to the folder {guarded.parent} (mode 0777)" in change_problem(guarded, other)
    guarded.parent.chmod(0o1777)
    assert change_problem(guarded, other) == ""
    link = tmp_path / "link.yaml"
    link.symlink_to(guarded)
    assert change_problem(link, other) == ""
    tmp_path.chmod(0o777)
    assert f"the folder {tmp_path}" in change_problem(link, other)
    assert "cannot be read" in change_problem(tmp_path / "missing.yaml", other)


def test_the_owner_of_the_rules_can_change_them_whatever_the_mode(guarded: Path) -> None:
    guarded.chmod(0o444)
    if os.geteuid() == 0:  # Root owns nothing that could be taken from it, so the file goes to another user.
        os.chown(guarded, 4321, -1)
    owner = ProcessIdentity(guarded.stat().st_uid, frozenset())
    assert change_problem(guarded, owner) == "the file belongs to the user that applies"
