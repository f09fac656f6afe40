"""A plain user of the machine against rules of approvals that root set: whatever they try, no plan is applied."""

from __future__ import annotations

import os
import pwd
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from pricing.money import Usd, UsdPerHour
from router.planning.document.plan_json import plan_content, plan_from_json, plan_to_json
from tests.support.deployed import Ran, Running, Site, Template, job
from tests.support.terraform_runs import needs_engine

pytestmark = [
    pytest.mark.slow,
    needs_engine,
    pytest.mark.skipif(
        sys.platform != "linux" or os.getuid() != 0, reason="only root, on Linux, can run a command as another user"
    ),
]
EVE, ANA = "nobody", "daemon"
RULES = {"approvers": [{"name": ANA}, {"name": EVE}], "no_approval_up_to": "0.01"}


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that every user reaches, as pytest's own is not."""
    made = Path(tempfile.mkdtemp(prefix="stepfare-attacks-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def template(folder: Path) -> Template:
    return Template(folder / "planned", [job("walk", machines=1)])


@pytest.fixture
def site(template: Template, folder: Path) -> Iterator[Site]:
    """A state whose folder is root's and whose files every user may write, as a group that shares it does.

    Root made its plan; the rules are root's too.
    """
    site = template.site(Path(tempfile.mkdtemp(dir=folder)))
    site.folder.chmod(0o755)
    text = site.plan.read_text(encoding="utf-8")
    with site.store() as store:
        store.made_plans.put(site.digest, text, plan_from_json(text).as_of, datetime.now(UTC), "root@desk", "night")
    set_rules(site)
    (site.folder / "cloud").mkdir(exist_ok=True)
    (site.folder / "eve").mkdir()
    for path in (site.home, site.folder / "cloud", site.folder / "eve", *site.home.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    yield site
    site.end()


def set_rules(site: Site, **changes: object) -> None:
    rules = site.folder / "approval.yaml"
    rules.write_text(yaml.safe_dump({**RULES, **changes}), encoding="utf-8")
    assert site.run("approvals", "set", rules).code == 0


def as_user(site: Site, name: str, *words: object, **environment: str) -> Ran:
    """The command as that user has it; the environment is theirs to choose."""
    said = Path(tempfile.mkdtemp(dir=site.folder))
    arguments = (pwd.getpwnam(name).pw_uid, *words)
    chosen = {**site.environment, "HOME": str(site.folder / "eve"), **environment}
    return Running(arguments, chosen, said, "tests.support.command_as_user").wait()


def approve(site: Site, name: str, plan: Path | None = None, *words: object, **environment: str) -> Ran:
    return as_user(site, name, "plan", "approve", plan or site.plan, *words, **environment)


def apply(
    site: Site, *words: object, plan: Path | None = None, name: str = EVE, environment: Mapping[str, str] | None = None
) -> Ran:
    words = ("apply", plan or site.plan, "--yes", "--book", "sandbox", *words)
    return as_user(site, name, *words, **environment or {})


def make_plan(site: Site, name: str) -> Path:
    """A plan that eve makes, of a job of that name."""
    file, out = site.folder / "eve" / f"{name}.yaml", site.folder / "eve" / f"{name}.json"
    file.write_text(yaml.safe_dump(job(name, "true", machines=1)), encoding="utf-8")
    made = as_user(site, EVE, "plan", file, "--book", "sandbox", "--limits", site.folder / "limits.yaml", "--out", out)
    assert made.code == 0, made.said
    return out


def refused(site: Site, ran: Ran, says: str, *, code: int = 4, plan: str = "") -> None:
    assert (ran.code, says in ran.said) == (code, True), ran.said
    with site.store() as store:
        assert store.plans.plan(plan or site.digest) is None
        assert store.attempts.find() == ()


NOBODY_DID = "which somebody must approve, and nobody did"


def test_the_rules_let_an_approved_plan_through(site: Site) -> None:
    """Without this, the attacks could fail for another reason than the rules."""
    refused(site, apply(site), NOBODY_DID)
    assert approve(site, ANA).code == 0
    done = apply(site, "--dry-run")
    assert done.code == 0, done.said


def test_a_deploy_file_without_rules(site: Site) -> None:
    own = site.folder / "eve" / "deploy.yaml"
    own.write_text("policy: greedy\n", encoding="utf-8")
    refused(site, apply(site, "--deploy", own), NOBODY_DID)


def test_a_deploy_file_with_other_rules(site: Site) -> None:
    rules, own = (site.folder / "eve" / name for name in ("rules.yaml", "deploy.yaml"))
    rules.write_text("approvers: [{name: nobody}]\nno_approval_up_to: 1000000\n", encoding="utf-8")
    own.write_text(f"approval_rules: {rules}\n", encoding="utf-8")
    refused(site, apply(site, "--deploy", own), NOBODY_DID)


def test_rules_of_ones_own_in_place_of_roots(site: Site) -> None:
    rules = site.folder / "eve" / "rules.yaml"
    rules.write_text("approvers: [{name: nobody}]\nno_approval_up_to: 1000000\n", encoding="utf-8")
    tried = as_user(site, EVE, "approvals", "set", rules)
    refused(site, tried, "only an administrator of the state sets its rules", code=7)
    refused(site, apply(site), NOBODY_DID)


@pytest.mark.parametrize("variable", ["LOGNAME", "USER", "LNAME", "USERNAME", "SUDO_USER"])
def test_the_name_of_an_approver_in_the_environment(site: Site, variable: str) -> None:
    claimed = approve(site, EVE, None, "--by", ANA, **{variable: ANA})
    refused(site, claimed, "daemon approves as daemon, not as nobody")
    refused(site, apply(site, environment={variable: ANA}), NOBODY_DID)


def test_a_plan_that_was_edited_with_its_digest_computed_anew(site: Site) -> None:
    plan = plan_from_json(site.plan.read_text(encoding="utf-8"))
    cheap = tuple(replace(line, max_usd_per_hour=UsdPerHour(1), fallback=None) for line in plan.lines)
    own = site.folder / "eve" / "plan.json"
    edited = replace(plan, lines=cheap)
    own.write_text(plan_to_json(edited), encoding="utf-8")
    says = "was not made with this state, as rules of approvals require"
    refused(site, apply(site, plan=own), says, plan=plan_content(edited)["digest"])
    refused(site, approve(site, EVE, own), says)


def test_two_plans_of_half_the_sum(site: Site) -> None:
    halves = [make_plan(site, name) for name in ("walk-a", "walk-b")]
    second = plan_from_json(halves[1].read_text(encoding="utf-8"))
    half = Usd.parse(site.run("plan", "check", halves[1], "-o", "json").json["at_risk_usd"])
    set_rules(site, no_approval_up_to=str(Usd(half.nanos * 3 // 2)))
    done = apply(site, plan=halves[0])
    assert done.code == 0, done.said
    tried = apply(site, plan=halves[1])
    assert (tried.code, "with what was applied within a day) is at risk" in tried.said) == (4, True), tried.said
    with site.store() as store:
        assert store.plans.plan(plan_content(second)["digest"]) is None


def test_the_maker_of_a_plan_approves_it(site: Site) -> None:
    own = make_plan(site, "run")
    digest = plan_content(plan_from_json(own.read_text(encoding="utf-8")))["digest"]
    approve(site, EVE, own)
    refused(site, apply(site, plan=own, name="bin"), "nobody approved as nobody, who made it", plan=digest)


def test_whoever_applies_a_plan_approves_it(site: Site) -> None:
    assert approve(site, EVE).code == 0
    refused(site, apply(site), "nobody approved as nobody, who applies it")


def test_the_maker_applies_where_the_rules_ask_for_somebody_else(site: Site) -> None:
    own = make_plan(site, "run")
    digest = plan_content(plan_from_json(own.read_text(encoding="utf-8")))["digest"]
    set_rules(site, maker_may_apply=False)
    assert approve(site, ANA, own).code == 0
    refused(site, apply(site, plan=own), "nobody made the plan: the rules ask that somebody else", plan=digest)


def test_a_token_in_the_name_of_an_approver(site: Site) -> None:
    tried = as_user(site, EVE, "token", "make", ANA, "--grant", "approver")
    refused(site, tried, "only an administrator of a state with rules of approvals makes tokens", code=7)


def test_a_console_that_asks_an_identity_provider_of_ones_own(site: Site) -> None:
    own = site.folder / "eve" / "deploy.yaml"
    oidc = {"issuer": "https://id.example.com", "client_id": "eve", "grants": {"all": ["approver"]}}
    own.write_text(yaml.safe_dump({"console": {"oidc": oidc}}), encoding="utf-8")
    tried = as_user(site, EVE, "serve", "--port", "0", "--deploy", own)
    refused(site, tried, "only an administrator of a state with rules of approvals serves a console", code=7)


def test_a_clock_that_was_turned_back_to_when_an_approval_held(site: Site) -> None:
    set_rules(site, max_age="1m")
    assert approve(site, ANA).code == 0
    ahead = datetime.now(UTC) + timedelta(seconds=1)
    refused(
        site,
        apply(site, environment={"STEPFARE_CLOCK": f"2@{ahead.isoformat()}"}),
        "rules of approvals hold by the real time",
    )


def test_the_name_of_an_approver_as_an_option(site: Site) -> None:
    refused(site, apply(site, "--approved-by", ANA), "`plan approve` records who approves", code=2)


def test_a_home_as_it_is_made_lets_no_other_user_in(template: Template, folder: Path) -> None:
    site = template.site(Path(tempfile.mkdtemp(dir=folder)))
    site.folder.chmod(0o755)
    site.home.chmod(0o700)
    tried = apply(site)
    assert tried.code in (1, 2), tried.said
    with site.store() as store:
        assert store.plans.plan(site.digest) is None
