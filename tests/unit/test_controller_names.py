"""Names of attempts and tags of machines: any job, any team, for every cloud."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime, timedelta
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.money import UsdPerHour
from pricing.places import PROVISIONABLE_CLOUDS, Market
from router.agent.config import metadata_module
from router.controller.plans import Order
from router.controller.workspace.bootstrap import CoordinatorEndpoint, NodeSecrets
from router.controller.workspace.placement_options import GangPlacement
from router.controller.workspace.workspaces import attempt_name, build_workspace, new_attempt, resource_tags
from router.deploy.deploy_settings import Deploy
from router.jobs.spec import Job
from router.state.records import NodeRecord
from terraform.module_metadata import BootMethod, module_facts
from terraform.render import render
from terraform.spec import ATTEMPT_CHARACTERS, NAME_CHARACTERS, Host
from terraform.workdir import MODULES
from tests.support.scenes import NOW, a_job

STATE, TOKEN = "s0123456789", "token"
PLAN = hashlib.sha256(b"plan").hexdigest()
HOME = CoordinatorEndpoint("https://stepfare.example.com:7433", "ab" * 32)
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
CLOUDS = sorted(PROVISIONABLE_CLOUDS)
RUN = {"command": "torchrun train.py"}


def order_of(job: str, gang: str = "", start: datetime = NOW) -> Order:
    return Order(job, gang or f"{job}/1", start, start + timedelta(hours=5), ())


def choice_of(cloud: str) -> GangPlacement:
    zone = "r1-a" if cloud == "gcp" else None
    seat = NodeRecord(
        "", 0, "", zone, "p9.48xlarge", Market.SPOT, "H100", 8, UsdPerHour.parse("24"), UsdPerHour.parse("30")
    )
    return GangPlacement(0, cloud, "r1", (seat, seat), NOW, NOW + timedelta(hours=5))


NAMES = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", fullmatch=True)
TEXTS = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), min_size=1, max_size=80).filter(
    lambda text: bool(text.strip())
)


@given(NAMES | st.sampled_from(["7b", "0", "a" * 63, "7" * 63, "a-" * 31 + "a", "9-" * 31 + "9"]), st.integers(1, 99))
def test_any_jobs_attempts_have_names_that_every_module_takes(job: str, number: int) -> None:
    order = order_of(job)
    name = attempt_name(STATE, PLAN, order, number)
    assert name == attempt_name(STATE, PLAN, order, number)
    assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", name)
    assert len(name) <= ATTEMPT_CHARACTERS
    assert len(f"{name}-9999") <= NAME_CHARACTERS


def test_two_attempts_never_share_a_name() -> None:
    """Resources are called after it: the same name would be the same machine."""
    names = [
        attempt_name(state, plan, order_of(job, f"{job}/{gang}", start), number)
        for state in (STATE, "s9876543210")
        for plan in (PLAN, PLAN[::-1])
        for job in ("a", "b", "a" * 28, "a" * 63, "a" * 62 + "b")
        for gang in (1, 2)
        for start in (NOW, NOW + timedelta(microseconds=1))
        for number in range(1, 12)
    ]
    assert len(set(names)) == len(names)


def test_a_moment_is_the_same_in_any_zone() -> None:
    paris = NOW.astimezone(datetime.strptime("+0100", "%z").tzinfo)
    assert attempt_name(STATE, PLAN, order_of("a", start=paris), 1) == attempt_name(STATE, PLAN, order_of("a"), 1)
    assert NOW.tzinfo is UTC


@given(NAMES, TEXTS, st.none() | TEXTS, st.none() | TEXTS, st.sampled_from(CLOUDS))
def test_any_team_project_and_cost_center_make_tags_that_every_cloud_takes(
    name: str, team: str, project: str | None, center: str | None, cloud: str
) -> None:
    job = _job(name, team, project, center)
    order = order_of(job.name)
    attempt, _ = new_attempt("a1", PLAN, order, choice_of(cloud), 1, job, job.digest, TOKEN, NOW)
    found = resource_tags(attempt, STATE)
    assert {"stepfare_attempt", "stepfare_state", "stepfare_plan", "stepfare_job", "team"} <= set(found)
    assert ("project" in found, "cost_center" in found) == (project is not None, center is not None)
    for key, value in found.items():
        # Google Cloud's labels, the narrowest: AWS and Azure take all of that and more.
        assert re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", key)
        assert re.fullmatch(r"[a-z0-9_-]{1,63}", value)
    assert (found["stepfare_plan"], found["stepfare_attempt"], found["stepfare_state"]) == (PLAN[:12], "a1", STATE)


@cache
def _base() -> Job:
    return a_job("base", run=RUN)


def _job(name: str, team: str, project: str | None, center: str | None) -> Job:
    changed = {"name": name, "team": team.strip(), "project": project, "cost_center": center}
    return _base().model_copy(update=changed)


def test_teams_that_look_alike_have_tags_of_their_own() -> None:
    names = ["ML Platform", "ml platform", "ml-platform", "ml_platform", "ML-Platform", "ML  Platform", "ml-platform!"]
    found = set()
    for team in names:
        job = _job("a", team, None, None)
        attempt, _ = new_attempt("a1", PLAN, order_of("a"), choice_of("aws"), 1, job, job.digest, TOKEN, NOW)
        found.add(resource_tags(attempt, STATE)["team"])
    assert len(found) == len(names)


@given(NAMES | st.sampled_from(["7b", "a" * 63, "7" * 63]), st.sampled_from(CLOUDS))
def test_a_job_of_any_name_can_be_made_anywhere(name: str, cloud: str) -> None:
    job = _job(name, "red", None, None)
    attempt, nodes = new_attempt(
        attempt_name(STATE, PLAN, order_of(name), 1),
        PLAN,
        order_of(name),
        choice_of(cloud),
        1,
        job,
        job.digest,
        TOKEN,
        NOW,
    )
    hosts = {node.rank: Host(f"10.0.0.{node.rank}") for node in nodes} if cloud == "static" else {}
    deploy = Deploy.model_validate({"clouds": {"azure": {"ssh_public_key": KEY}}})
    spec = build_workspace(attempt, nodes, job, deploy, STATE, HOME, NodeSecrets(TOKEN), hosts=hosts)
    assert render(spec)
    assert all(name in text for text in spec.user_data.values())


def test_every_cloud_with_a_module_says_how_it_boots() -> None:
    assert {folder.name for folder in MODULES.iterdir()} == PROVISIONABLE_CLOUDS
    scripts = {cloud for cloud in PROVISIONABLE_CLOUDS if module_facts(cloud).boot is BootMethod.SCRIPT}
    assert scripts == {"sandbox", "static"}
    # What runs scripts has a script that starts them.
    assert scripts == {path.parent.name for path in MODULES.glob("*/start.sh")}


def test_a_cloud_without_a_module_boots_nothing() -> None:
    with pytest.raises(ValueError, match=r"no machines can be made on 'lambda'; only on aws, .*static"):
        module_facts("lambda")


def test_local_machines_are_the_sandbox_alone() -> None:
    assert [cloud for cloud in sorted(PROVISIONABLE_CLOUDS) if module_facts(cloud).local] == ["sandbox"]


def test_who_tells_a_machine_of_its_end() -> None:
    services = {cloud: module_facts(cloud).metadata for cloud in PROVISIONABLE_CLOUDS}
    assert services == {"aws": "aws", "azure": "azure", "gcp": "gcp", "sandbox": "files", "static": "none"}
    # The agent knows each of them.
    assert all(service == "none" or metadata_module(service) for service in services.values())


def test_what_a_workspace_has_to_name() -> None:
    assert [cloud for cloud in sorted(PROVISIONABLE_CLOUDS) if module_facts(cloud).zones_named] == ["gcp"]
    # Only the module that has no machines of its own declares them.
    declared = {path.parent.name for path in MODULES.glob("*/*.tf") if 'variable "hosts"' in path.read_text()}
    assert {cloud for cloud in PROVISIONABLE_CLOUDS if module_facts(cloud).hosts_named} == declared


@pytest.mark.parametrize("cloud", sorted(PROVISIONABLE_CLOUDS))
def test_every_module_has_the_resource_that_is_a_machine_for_each_rank(cloud: str) -> None:
    kind, name = module_facts(cloud).machine.split(".")
    text = "\n".join(path.read_text() for path in (MODULES / cloud).glob("*.tf"))
    block = re.search(rf'^resource "{kind}" "{name}" \{{\n(.*?)^\}}', text, re.MULTILINE | re.DOTALL)
    assert block is not None
    assert re.search(r"^  for_each\s+= ", block[1], re.MULTILINE)
