"""From a choice to what Terraform is given: names, tags, machines, and what each of them is told."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import subprocess
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from pricing.fabrics import find_fabric
from pricing.money import UsdPerHour
from pricing.places import PROVISIONABLE_CLOUDS, Market
from router.agent.config import AgentConfig, parse_config
from router.agent.starters import read_job_environment
from router.config.job_files import load_jobs
from router.controller.plans import Order
from router.controller.workspace.bootstrap import MAX_USER_DATA_BYTES, CoordinatorEndpoint, NodeSecrets
from router.controller.workspace.placement_options import GangPlacement
from router.controller.workspace.workspaces import attempt_name, build_workspace, new_attempt
from router.deploy.deploy_settings import Deploy
from router.jobs.job_json import job_json, parse_job
from router.jobs.spec import Job
from router.state.records import NodeRecord
from terraform.module_metadata import BootMethod, module_facts
from terraform.render import SECRETS, render
from terraform.spec import Host, ReadableSpec, WorkspaceSpec
from tests.support.night import FOLDER
from tests.support.scenes import NOW, a_job

TOKEN, SECRET = "token-canary-6a2e", "secret-canary-9f40"
STATE = "s0123456789"
PLAN = hashlib.sha256(b"plan").hexdigest()
HOME = CoordinatorEndpoint("https://stepfare.example.com:7433", "ab" * 32)
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
DEPLOY = Deploy.model_validate(
    {
        "clouds": {
            "aws": {
                "local_nvme": "/mnt/scratch",
                "checkpoint_bucket": "checkpoints",
                "permissions_boundary": "arn:aws:iam::123456789012:policy/stepfare-boundary",
                "reads": [
                    {"bucket": "corpus"},
                    {"bucket": "speech", "team": "speech"},
                    {"bucket": "corpus", "team": "research"},
                    {"registry": "arn:aws:ecr:us-east-1:123456789012:repository/train", "team": "research"},
                ],
                "regions": {"r1": {"image": "ami-1"}},
            },
            "azure": {"ssh_public_key": KEY},
            "static": {"private_key_path": "/srv/keys/id", "hosts": {"10.0.0.1": {"private_address": "192.168.0.1"}}},
        },
    }
)
CLOUDS = sorted(PROVISIONABLE_CLOUDS)
MADE = [cloud for cloud in CLOUDS if module_facts(cloud).boot is BootMethod.CLOUD_INIT]
RUN = {"command": "torchrun train.py", "env": {"BATCH": "512"}}


@cache
def examples() -> tuple[Job, ...]:
    return load_jobs([FOLDER], NOW).jobs


def order_of(job: str, gang: str = "", start: datetime = NOW) -> Order:
    return Order(job, gang or f"{job}/1", start, start + timedelta(hours=5), ())


def choice_of(
    cloud: str,
    machines: int = 2,
    *,
    market: Market = Market.SPOT,
    zone: str | None = None,
    instance_type: str = "p9.48xlarge",
) -> GangPlacement:
    zone = "r1-a" if cloud == "gcp" else zone
    seat = NodeRecord("", 0, "", zone, instance_type, market, "H100", 8, UsdPerHour.parse("24"), UsdPerHour.parse("30"))
    return GangPlacement(0, cloud, "r1", (seat,) * machines, NOW, NOW + timedelta(hours=5))


def made(
    job: Job,
    cloud: str = "aws",
    machines: int = 2,
    *,
    deploy: Deploy = DEPLOY,
    home: CoordinatorEndpoint = HOME,
    secrets: NodeSecrets | None = None,
    fabric: str = "efa",
    assumed: float | None = None,
    **more: Any,
) -> WorkspaceSpec:
    order, choice = order_of(job.name), choice_of(cloud, machines, **more)
    name = attempt_name(STATE, PLAN, order, 1)
    attempt, nodes = new_attempt(name, PLAN, order, choice, 1, job, job.digest, TOKEN, NOW)
    hosts: dict[int, Host] = {}
    if cloud == "static":
        hosts = {node.rank: Host(f"10.0.0.{node.rank + 1}") for node in nodes}
        nodes = tuple(replace(node, address=hosts[node.rank].address) for node in nodes)
    given = secrets or NodeSecrets(TOKEN, {"BATCH": "512"}, {"API_KEY": SECRET})
    return build_workspace(
        attempt, nodes, job, deploy, STATE, home, given, fabric=fabric, hosts=hosts, assumed_gb_per_s=assumed
    )


def script_files(text: str) -> dict[str, str]:
    """What a node's script writes, read out of its text."""
    found = re.search(r"^FILES = (.*)$", text, re.MULTILINE)
    assert found is not None
    files: dict[str, str] = ast.literal_eval(found[1])
    return files


def files_of(text: str) -> dict[str, str]:
    if not text.startswith("#cloud-config\n"):
        return script_files(text)
    content = yaml.safe_load(text)
    return {file["path"].rpartition("/")[2]: file["content"] for file in content["write_files"]}


def config_of(spec: WorkspaceSpec, rank: int = 0) -> AgentConfig:
    """As the agent reads it."""
    return parse_config(json.loads(files_of(spec.user_data[rank])["agent.json"]))


@pytest.mark.parametrize("cloud", CLOUDS)
def test_every_nightly_job_can_be_made_in_every_cloud(cloud: str) -> None:
    assert len(examples()) > 20
    for job in examples():
        spec = made(job, cloud)
        files = render(spec)
        assert all(json.loads(text) for text in files.values())
        assert job.run is not None
        for rank, text in spec.user_data.items():
            config = config_of(spec, rank)
            assert (config.job, config.attempt, config.rank, config.nodes) == (job.name, spec.attempt, rank, 2)
            assert (config.engine, config.processes_per_node) == (job.run.engine, 8)
            assert config.command.endswith(job.run.command)
            assert len(text.encode()) < MAX_USER_DATA_BYTES // 2


@pytest.mark.parametrize("cloud", CLOUDS)
def test_secrets_are_in_user_data_alone(cloud: str) -> None:
    job = a_job("bert", run=RUN)
    spec = made(job, cloud)
    files = render(spec)
    for word in (TOKEN, SECRET):
        assert all(word in text for text in spec.user_data.values())
        assert word not in repr(spec)
        assert [name for name, text in files.items() if word in text] == [SECRETS]
        assert word not in repr(NodeSecrets(TOKEN, {"A": SECRET}, {"B": SECRET}))
    order, choice = order_of("bert"), choice_of("aws")
    attempt, nodes = new_attempt("bert-1", PLAN, order, choice, 1, job, job.digest, TOKEN, NOW)
    assert TOKEN not in repr((attempt, nodes))
    assert attempt.token_hash == hashlib.sha256(TOKEN.encode()).hexdigest()


@pytest.mark.parametrize("cloud", MADE)
def test_machines_of_clouds_are_told_by_cloud_init(cloud: str) -> None:
    text = made(a_job("bert", run=RUN), cloud).user_data[1]
    content = yaml.safe_load(text)
    assert text.startswith("#cloud-config\n")
    files = {file["path"]: file for file in content["write_files"]}
    assert files["/etc/stepfare/token"]["content"] == f"{TOKEN}\n"
    assert {file["permissions"] for path, file in files.items() if path.startswith("/etc/stepfare/")} == {"0600"}
    fetch = next(command for command in content["runcmd"] if "fetch-agent" in command[0])
    assert fetch[1:3] == [f"{HOME.url}/v1/agents/{HOME.agent_sha256}", HOME.agent_sha256]
    # It is tried for as long as a machine lasts unheard, which is then switched off.
    assert fetch[3:] == ["/opt/stepfare/agent.pyz", "1800"]
    after = content["runcmd"][content["runcmd"].index(fetch) + 1]
    assert after == "test -e /opt/stepfare/agent.pyz || systemctl poweroff"
    mounts = [command[1:] for command in content["runcmd"] if "/opt/stepfare/mount-nvme.sh" in command]
    assert mounts == ([["/opt/stepfare/mount-nvme.sh", "/mnt/scratch"]] if cloud == "aws" else [])


@pytest.mark.parametrize("cloud", sorted(set(CLOUDS) - set(MADE)))
def test_other_machines_are_told_by_a_script(cloud: str, tmp_path: Any) -> None:
    home = replace(HOME, ca="PEM\n")
    text = made(a_job("bert", run=RUN), cloud, home=home).user_data[1]
    assert text.startswith("#!")
    files = script_files(text)
    assert (files["token"], files["ca.pem"]) == (f"{TOKEN}\n", "PEM\n")
    (tmp_path / "env.json").write_text(files["env.json"])
    given = read_job_environment(str(tmp_path / "env.json"))
    assert (given.plain, given.secret) == ({"BATCH": "512"}, {"API_KEY": SECRET})


def test_what_differs_on_this_machine() -> None:
    job = a_job("bert", run=RUN)
    here, away = config_of(made(job, "sandbox")), config_of(made(job, "aws"))
    assert (here.master_port, here.gpus, away.master_port, away.gpus) == (0, False, 29500, True)
    assert here.heartbeat_seconds < away.heartbeat_seconds
    assert here.gang_seconds == away.gang_seconds == timedelta(minutes=45).total_seconds()


def test_a_host_of_ones_own_says_where_the_gang_reaches_it() -> None:
    spec = made(a_job("bert", run=RUN), "static")
    assert [config_of(spec, rank).address for rank in (0, 1)] == ["192.168.0.1", None]
    assert [host.address for host in spec.hosts.values()] == ["10.0.0.1", "10.0.0.2"]


def test_what_the_deploy_file_says_of_the_cloud_and_region() -> None:
    spec = made(a_job("bert", run=RUN), "aws")
    assert (spec.image, spec.checkpoint_bucket, spec.fabric) == ("ami-1", "checkpoints", "efa")
    assert spec.permissions_boundary == "arn:aws:iam::123456789012:policy/stepfare-boundary"
    network = {"id": "vpc-1", "subnets": {"": "subnet-1"}}
    other = Deploy.model_validate(
        {
            "clouds": {"aws": {"network": network, "disk_gib": 300}},
            "backend": {"kind": "gcs", "settings": {"bucket": "states", "prefix": "a/{attempt}"}},
        }
    )
    spec = made(a_job("bert", run=RUN), "aws", deploy=other)
    assert (spec.network.network_id, dict(spec.network.subnet_ids), spec.disk_gib) == ("vpc-1", {"": "subnet-1"}, 300)
    assert spec.backend.of("x")["prefix"] == "a/x"


def test_tags_of_the_organisation_are_beside_those_of_the_attempt() -> None:
    job = a_job("bert", run=RUN)
    deploy = Deploy.model_validate({"tags": {"Owner": "Ops"}, "team_tags": {job.team: {"code": "R-1"}}})
    own, more = made(job, deploy=Deploy()).tags, made(job, deploy=deploy).tags
    assert dict(more) == {**own, "Owner": "Ops", "code": "R-1"}


def test_only_a_bid_has_a_ceiling() -> None:
    job = a_job("bert", run=RUN)
    (spot, _), (bought, _) = made(job).nodes, made(job, market=Market.ON_DEMAND).nodes
    assert (str(spot.max_usd_per_hour), bought.max_usd_per_hour) == ("30.00", None)
    assert [node.rank for node in made(job, machines=20).nodes] == list(range(20))


def reserved(*entries: dict[str, str]) -> Deploy:
    clouds = {"aws": {"reservations": entries}, "gcp": {"reservations": entries}}
    return Deploy.model_validate({"clouds": clouds})


CR = {"id": "cr-1", "region": "r1", "instance_type": "p9.48xlarge"}


@pytest.mark.parametrize(
    ("zone", "entries", "got"),
    [
        (None, [CR], (None, "cr-1")),
        ("r1-a", [CR], ("r1-a", "cr-1")),
        ("r1-a", [{**CR, "zone": "r1-b"}, {**CR, "id": "cr-2", "zone": "r1-a"}], ("r1-a", "cr-2")),
        # It lies in one zone, so that is where the machine goes.
        (None, [{**CR, "zone": "r1-b"}], ("r1-b", "cr-1")),
    ],
)
def test_a_reserved_machine_names_what_was_bought(
    zone: str | None, entries: list[dict[str, str]], got: tuple[str | None, str]
) -> None:
    spec = made(a_job("bert", run=RUN), deploy=reserved(*entries), market=Market.RESERVED, zone=zone)
    assert {(node.zone, node.reservation, node.placement_group) for node in spec.nodes} == {(*got, None)}
    assert {node.max_usd_per_hour for node in spec.nodes} == {None}


def test_a_reserved_machine_is_in_the_group_of_its_reservation() -> None:
    deploy = reserved({**CR, "placement_group": "hall-1"})
    spec = made(a_job("bert", run=RUN), deploy=deploy, market=Market.RESERVED)
    assert {node.placement_group for node in spec.nodes} == {"hall-1"}
    assert {node.placement_group for node in made(a_job("bert", run=RUN), deploy=deploy).nodes} == {None}


@pytest.mark.parametrize(
    "entries", [[], [{**CR, "region": "r2"}], [{**CR, "instance_type": "x"}], [{**CR, "zone": "b"}]]
)
@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_a_reserved_machine_without_a_name_would_be_bought_at_a_price_that_nobody_saw(
    cloud: str, entries: list[dict[str, str]]
) -> None:
    with pytest.raises(ValueError, match=rf"clouds\.{cloud}\.reservations of the deploy file"):
        made(a_job("bert", run=RUN), cloud, deploy=reserved(*entries), market=Market.RESERVED, zone="r1-a")


def test_an_automatic_reservation_is_not_asked_for_by_name() -> None:
    open_one = reserved({"region": "r1", "instance_type": "p9.48xlarge"})
    spec = made(a_job("bert", run=RUN), "gcp", deploy=open_one, market=Market.RESERVED)
    assert {(node.market, node.reservation) for node in spec.nodes} == {(Market.RESERVED, None)}


IN_IMAGE = {**RUN, "image": "registry.example.com/i:1"}


@pytest.mark.parametrize(
    ("cloud", "instance_type", "image", "run", "installs"),
    [
        ("gcp", "g2-standard-8", None, IN_IMAGE, True),
        ("gcp", "g2-standard-8", None, RUN, False),
        ("gcp", "g2-standard-8", "projects/p/global/images/mine", IN_IMAGE, False),
        ("aws", "g6.xlarge", None, IN_IMAGE, False),
    ],
)
def test_docker_and_the_toolkit_are_installed_where_the_image_lacks_them_and_the_job_needs_them(
    cloud: str, instance_type: str, image: str | None, run: dict[str, Any], installs: bool
) -> None:
    deploy = Deploy.model_validate({"clouds": {cloud: {"image": image}}})
    spec = made(a_job("bert", run=run), cloud, deploy=deploy, instance_type=instance_type)
    assert ("install-containers.sh" in files_of(spec.user_data[0])) == installs
    commands = yaml.safe_load(spec.user_data[0])["runcmd"]
    versions = [command[2:] for command in commands if "/opt/stepfare/install-containers.sh" in command]
    assert versions == ([["29.6.2", "1.19.1"]] if installs else [])


@pytest.mark.parametrize(
    ("cloud", "instance_type", "fabric", "image", "setup"),
    [
        ("aws", "p5.48xlarge", "efa", None, None),
        ("azure", "Standard_ND96isr_H100_v5", "infiniband", None, None),
        ("gcp", "a3-ultragpu-8g", "roce", None, "setup-gib.sh"),
        ("gcp", "a3-megagpu-8g", "gpudirect-tcpxo", None, "setup-tcpxo.sh"),
        ("gcp", "a3-megagpu-8g", "gpudirect-tcpxo", "projects/p/global/images/mine", None),
        ("gcp", "a3-highgpu-8g", "none", None, None),
    ],
)
@pytest.mark.parametrize("run", [RUN, IN_IMAGE])
def test_a_fabric_is_set_up_before_the_agent_starts_and_its_needs_are_told(
    cloud: str, instance_type: str, fabric: str, image: str | None, setup: str | None, run: dict[str, Any]
) -> None:
    key = {"ssh_public_key": "ssh-rsa AAAA"} if cloud == "azure" else {}
    deploy = Deploy.model_validate({"clouds": {cloud: {"image": image, **key}}})
    more: dict[str, Any] = {"deploy": deploy, "instance_type": instance_type, "fabric": fabric, "assumed": 225.0}
    spec = made(a_job("bert", run=run), cloud, **more)
    config = config_of(spec)
    row = find_fabric(cloud, fabric)
    assert config.fabric.name == ("" if row is None else fabric)
    assert config.fabric.environment == ("" if row is None else row.environment)
    assert config.assumed_gb_per_s == 225.0
    commands = [command for command in yaml.safe_load(spec.user_data[0])["runcmd"] if isinstance(command, list)]
    steps = [command[1:] if command[0].endswith("boot-step.sh") else command for command in commands]
    names = [step[0].rpartition("/")[2] for step in steps]
    assert [name for name in names if name.startswith("setup-")] == ([] if setup is None else [setup])
    if setup is not None:
        # Its software comes in containers, whatever the job runs in.
        order = [names.index(name) for name in ("install-containers.sh", setup, "fetch-agent.sh")]
        assert order == sorted(order)


def test_the_checks_of_the_deploy_file_hold_on_this_machine_where_it_says_so() -> None:
    job = a_job("bert", run=RUN)
    said = Deploy.model_validate({"preflight": "warn"})
    plain = [config_of(made(job, cloud, deploy=Deploy())).preflight for cloud in ("sandbox", "static")]
    assert plain == ["off", "warn"]
    assert config_of(made(job, "sandbox", deploy=said)).preflight == "warn"


def test_the_image_says_how_a_container_gets_its_gpus() -> None:
    for instance_type, vendor in (("Standard_ND96isr_MI300X_v5", "amd"), ("Standard_ND96isr_H100_v5", "nvidia")):
        spec = made(a_job("bert", run=IN_IMAGE), "azure", instance_type=instance_type)
        assert config_of(spec).gpu_vendor == vendor


def test_a_machine_whose_image_nothing_documents_is_made_from_ones_own_alone() -> None:
    job = a_job("bert", run=RUN)
    with pytest.raises(
        ValueError, match=r"aws p3\.8xlarge: no image documents this machine .*add an image of your own"
    ):
        made(job, "aws", deploy=Deploy(), instance_type="p3.8xlarge")
    own = Deploy.model_validate({"clouds": {"aws": {"image": "ami-1"}}})
    assert made(job, "aws", deploy=own, instance_type="p3.8xlarge").image == "ami-1"


def test_reserved_hosts_and_sandbox_machines_need_no_name() -> None:
    for cloud in ("sandbox", "static"):
        assert {node.reservation for node in made(a_job("a", run=RUN), cloud, market=Market.RESERVED).nodes} == {None}


def test_what_is_missing_or_fits_no_cloud_is_a_value_error_without_a_secret() -> None:
    good = a_job("bert", run=RUN)
    huge = NodeSecrets(TOKEN, {}, {"API_KEY": SECRET * 2000})
    cases: list[tuple[Any, str]] = [
        (lambda: made(a_job("bert")), "nothing to start"),
        (lambda: made(good, "azure", deploy=Deploy()), "ssh_public_key"),
        (lambda: made(good, home=replace(HOME, url="http://stepfare.example.com")), "in the clear"),
        (lambda: made(good, home=replace(HOME, url="nonsense")), "coordinator"),
        (lambda: made(good, secrets=huge), "shorten the command"),
        (lambda: made(good, "sandbox", secrets=huge), "shorten the command"),
    ]
    for make, what in cases:
        with pytest.raises(ValueError, match=what) as caught:
            make()
        assert not {TOKEN, SECRET} & set(str(caught.value).split())
        assert SECRET not in str(caught.value)


def test_code_comes_as_image_archive_repository_or_not_at_all() -> None:
    digest = "ab" * 32
    cases: dict[tuple[str, str, str], dict[str, Any]] = {
        ("none", "", ""): {},
        ("image", "registry.example.com/a:1", ""): {"image": "registry.example.com/a:1"},
        ("git", "https://x/a.git", "v1"): {"code": {"git": "https://x/a.git", "ref": "v1"}},
        ("archive", "https://x/a.tar", digest): {"code": {"archive": "https://x/a.tar", "sha256": digest}},
    }
    for (kind, source, version), more in cases.items():
        code = config_of(made(a_job("bert", run={**RUN, **more}))).code
        assert (code.kind, code.source, code.version) == (kind, source, version)


@pytest.mark.parametrize(
    "command", ["echo in $PWD", "# a note\necho in $PWD", "echo one\necho in $PWD", "cat <<E\nin\nE"]
)
def test_a_working_folder_holds_for_every_line_of_the_command_or_none_is_run(command: str, tmp_path: Any) -> None:
    folder = "it's here"
    run = config_of(made(a_job("bert", run={"command": command, "workdir": folder}))).command
    away = subprocess.run(["sh", "-c", run], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (away.returncode, away.stdout) == (1, "")
    (tmp_path / folder).mkdir()
    there = subprocess.run(["sh", "-c", run], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert there.returncode == 0
    assert there.stdout.splitlines()[-1].startswith("in")


def test_records_of_an_attempt() -> None:
    job = a_job("bert", run=RUN, cost_center="cc", project="p")
    order, choice = order_of("bert"), choice_of("gcp", 3)
    attempt, nodes = new_attempt("bert-1", PLAN, order, choice, 2, job, job.digest, TOKEN, NOW)
    assert (attempt.usd_per_hour, attempt.max_usd_per_hour, attempt.at_risk_usd) == (
        choice.usd_per_hour,
        choice.max_usd_per_hour,
        choice.at_risk_usd,
    )
    assert (attempt.number, attempt.choice, attempt.machines, attempt.engine) == (2, 0, 3, "torchrun")
    assert (attempt.job_digest, attempt.team, attempt.project, attempt.cost_center) == (job.digest, "red", "p", "cc")
    assert [(node.rank, node.name, node.zone) for node in nodes] == [(n, f"bert-1-{n}", "r1-a") for n in range(3)]
    assert sum(node.usd_per_hour.nanos for node in nodes) == attempt.usd_per_hour.nanos


def test_a_job_is_the_same_after_it_was_kept() -> None:
    more = (
        a_job("x", run={**RUN, "code": {"git": "https://x/a.git", "ref": "v1"}, "workdir": "src", "engine": "ray"}),
        a_job("y", checkpoint=None, deadline="+18h", budget="$10", earliest_start="+1h", spot="only"),
        a_job(
            "z",
            status={"steps_done": 5, "checkpoint_in": "aws/north-1"},
            data={"uri": "s3://a/b", "at": "aws/north-1", "gib": 4, "egress_cap": "$40"},
        ),
    )
    for job in (*examples(), *more):
        kept = parse_job(job_json(job))
        assert kept == job
        assert kept.digest == job.digest
    with pytest.raises(ValidationError):
        parse_job("{}")


def test_machines_read_what_everybody_and_their_team_may_read() -> None:
    image = "arn:aws:ecr:us-east-1:123456789012:repository/train"
    assert made(a_job(team="research", run=RUN)).readable == ReadableSpec(("corpus",), (image,))
    assert made(a_job(team="speech", run=RUN)).readable == ReadableSpec(("corpus", "speech"))
    assert made(a_job(team="research", run=RUN), "gcp").readable == ReadableSpec()
