"""From a choice to what Terraform is given: the attempt with its machines, and the workspace that makes them. Pure."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from pricing.places import Market
from router.agent.config import BadConfig, Config
from router.agent.config import Code as AgentCode
from router.config.deploy_file import CloudDeploy, Deploy, ReservedEntry
from router.controller.bootstrap import AgentAt, Bootstrap, cloud_init
from router.controller.node_script import node_script
from router.controller.orders import Order
from router.controller.placement_options import Choice, Seat
from router.jobs.spec import Job, Run
from router.ledger.entry import utc
from router.state.records import Attempt, NodeRecord
from terraform.module_metadata import Boot, boot_of, is_local, metadata_of
from terraform.spec import Backend, Host, Network, Node, WorkspaceSpec, taggable

_JOB_CHARACTERS = 28  # leaves room for the digest in the 40 of an attempt's name
_DIGEST_CHARACTERS = 10
# Ray's workers drain for up to 30 s.
GRACE_SECONDS = 30.0
_LOCAL_HEARTBEAT_SECONDS, _LOCAL_FAREWELL_SECONDS = 1.0, 60.0


@dataclass(frozen=True, slots=True)
class Home:
    """Where machines call home: base URL, the agent's digest, and the PEM text of an authority to trust."""

    url: str
    agent_sha256: str
    ca: str | None = None


@dataclass(frozen=True, slots=True)
class Secrets:
    """What only the machines get to see; in no repr."""

    token: str = field(repr=False)
    plain: Mapping[str, str] = field(default_factory=dict, repr=False)
    secret: Mapping[str, str] = field(default_factory=dict, repr=False)


def attempt_name(state_id: str, plan: str, order: Order, number: int) -> str:
    """The same for the same try of the same order: machines are named after it, so that nothing is made twice."""
    slug = re.sub(r"[^a-z0-9-]+", "-", order.job.lower())[:_JOB_CHARACTERS].strip("-")
    slug = slug if slug[:1].isalpha() else f"j{slug}"[:_JOB_CHARACTERS].rstrip("-")
    what = f"{state_id} {plan} {order.gang} {utc(order.start).isoformat()} {number}"
    return f"{slug}-{hashlib.sha256(what.encode()).hexdigest()[:_DIGEST_CHARACTERS]}"


@dataclass(frozen=True, slots=True)
class Before:
    """What an attempt goes on from: the attempt before it, and the last step that is confirmed to be saved."""

    attempt: str = ""
    step: int = 0
    manifest: str = ""


def new_attempt(
    name: str,
    plan: str,
    order: Order,
    choice: Choice,
    number: int,
    job: Job,
    digest: str,
    token: str,
    now: datetime,
    before: Before = Before(),
    checkpoint_seconds: float | None = None,
    policies: tuple[str, str] = ("", ""),
) -> tuple[Attempt, tuple[NodeRecord, ...]]:
    """The records of an attempt that is about to be made."""
    attempt = Attempt(
        id=name,
        plan=plan,
        job=order.job,
        job_digest=digest,
        gang=order.gang,
        start=order.start,
        end=choice.end,
        choice=choice.rank,
        number=number,
        cloud=choice.cloud,
        region=choice.region,
        machines=len(choice.seats),
        engine=job.run.engine if job.run else "command",
        team=job.team,
        project=job.project,
        cost_center=job.cost_center,
        usd_per_hour=choice.usd_per_hour,
        max_usd_per_hour=choice.max_usd_per_hour,
        at_risk_usd=choice.at_risk_usd,
        directory=name,
        token_hash=hashlib.sha256(token.encode()).hexdigest(),
        created_at=now,
        resumes=before.attempt,
        first_step=before.step,
        first_manifest=before.manifest,
        checkpoint_seconds=checkpoint_seconds,
        policy=policies[0],
        quoted_policy=policies[1],
    )
    return attempt, tuple(_node(name, rank, seat) for rank, seat in enumerate(choice.seats))


def _node(attempt: str, rank: int, seat: Seat) -> NodeRecord:
    return NodeRecord(
        attempt=attempt,
        rank=rank,
        name=f"{attempt}-{rank}",
        zone=seat.zone,
        instance_type=seat.instance_type,
        market=seat.market,
        accelerator=seat.accelerator,
        accelerators=seat.accelerators,
        usd_per_hour=seat.usd_per_hour,
        max_usd_per_hour=seat.max_usd_per_hour,
        price_as_of=seat.price_as_of,
        price_source=seat.price_source,
        on_demand_usd_per_hour=seat.on_demand_usd_per_hour,
        reservation_cost=seat.reservation_cost,
    )


def workspace(
    attempt: Attempt,
    nodes: tuple[NodeRecord, ...],
    job: Job,
    deploy: Deploy,
    state_id: str,
    home: Home,
    secrets: Secrets,
    *,
    fabric: str = "none",
    hosts: Mapping[int, Host] | None = None,
) -> WorkspaceSpec:
    """What Terraform is given. ``hosts`` by rank, for a cloud whose machines are there already.

    ValueError when something is missing or does not fit a cloud; it holds no secret.
    """
    for node in nodes:
        _check_reserved(node, attempt, deploy)
    told = {node.rank: _user_data(attempt, node, job, deploy, home, secrets) for node in nodes}
    return replace(workspace_to_release(attempt, nodes, deploy, state_id, fabric=fabric, hosts=hosts), user_data=told)


def workspace_to_release(
    attempt: Attempt,
    nodes: tuple[NodeRecord, ...],
    deploy: Deploy,
    state_id: str,
    *,
    fabric: str = "none",
    hosts: Mapping[int, Host] | None = None,
) -> WorkspaceSpec:
    """As :func:`workspace`, of machines that are to go: nothing is told to them. ValueError."""
    cloud = deploy.cloud(attempt.cloud, attempt.region)
    return WorkspaceSpec(
        attempt=attempt.id,
        cloud=attempt.cloud,
        region=attempt.region,
        nodes=tuple(_machine(node, attempt.region, cloud) for node in nodes),
        tags=tags(attempt, state_id),
        image=cloud.image,
        network=Network(cloud.network.id, cloud.network.subnets) if cloud.network else Network(),
        fabric=fabric,
        disk_gib=cloud.disk_gib,
        checkpoint_bucket=cloud.checkpoint_bucket,
        permissions_boundary=cloud.permissions_boundary,
        instance_profile=cloud.instance_profile,
        ssh_public_key=cloud.ssh_public_key,
        backend=Backend(deploy.backend.kind, deploy.backend.settings),
        hosts=dict(hosts or {}),
        private_key_path=Path(cloud.private_key_path).expanduser() if cloud.private_key_path else None,
    )


def tags(attempt: Attempt, state_id: str) -> dict[str, str]:
    """What marks every machine; values are made such that every cloud takes them."""
    known = {
        "stepfare_attempt": attempt.id,
        "stepfare_state": state_id,
        "stepfare_plan": attempt.plan[:12],
        "stepfare_job": attempt.job,
        "team": attempt.team,
        "project": attempt.project,
        "cost_center": attempt.cost_center,
    }
    return {name: taggable(value) for name, value in known.items() if value}


def _check_reserved(node: NodeRecord, attempt: Attempt, deploy: Deploy) -> None:
    name, region = attempt.cloud, attempt.region
    if node.market is not Market.RESERVED or boot_of(name) is not Boot.CLOUD_INIT:
        return
    if _bought(node, region, deploy.cloud(name, region)) is None:
        # Clouds would make it on demand, at a price that nobody agreed to.
        raise ValueError(
            f"{name}/{node.zone or region} {node.instance_type} was planned on a reservation, and none is named: "
            f"add its id to clouds.{name}.reservations of the deploy file"
        )


def _machine(node: NodeRecord, region: str, cloud: CloudDeploy) -> Node:
    bought = _bought(node, region, cloud) if node.market is Market.RESERVED else None
    return Node(
        rank=node.rank,
        name=node.name,
        zone=node.zone or (bought.zone if bought is not None else None),
        instance_type=node.instance_type,
        market=node.market,
        # Only a bid has a ceiling; the rest costs what the list says.
        max_usd_per_hour=node.max_usd_per_hour if node.market is Market.SPOT else None,
        reservation=bought.id if bought is not None else None,
    )


def _bought(node: NodeRecord, region: str, cloud: CloudDeploy) -> ReservedEntry | None:
    for entry in cloud.reservations:
        fits = (entry.region, entry.instance_type) == (region, node.instance_type)
        if fits and (entry.zone is None or node.zone in (None, entry.zone)):
            return entry
    return None


def _user_data(attempt: Attempt, node: NodeRecord, job: Job, deploy: Deploy, home: Home, secrets: Secrets) -> str:
    if job.run is None:
        raise ValueError(f"job {job.name} has no `run`: there is nothing to start")
    script = boot_of(attempt.cloud) is Boot.SCRIPT
    config = _config(attempt, node, job.run, deploy, home)
    agent = AgentAt(f"{home.url.rstrip('/')}/v1/agents/{home.agent_sha256}", home.agent_sha256)
    told = Bootstrap(
        config=config,
        agent=agent,
        token=secrets.token,
        plain=secrets.plain,
        secret=secrets.secret,
        local_nvme=None if script else deploy.cloud(attempt.cloud, attempt.region).local_nvme,
        ca=home.ca,
    )
    try:
        return node_script(told, agent) if script else cloud_init(told)
    except BadConfig as error:
        raise ValueError(f"job {job.name}: its machines could not be told what to do: {error}") from None


def _config(attempt: Attempt, node: NodeRecord, run: Run, deploy: Deploy, home: Home) -> Config:
    local = is_local(attempt.cloud)
    host = deploy.cloud(attempt.cloud, attempt.region)
    store = host.store_of(attempt.job) or ""
    patience = deploy.patience
    # Longer than whoever made them waits: the first machine may be there long before the last, and those of a gang that
    # takes over wait for the checkpoint, too.
    gang = patience.apply + patience.meet + (patience.carry if store else timedelta(0))
    return Config(
        attempt=attempt.id,
        job=attempt.job,
        rank=node.rank,
        nodes=attempt.machines,
        # Every line of the command, or none.
        command=run.command if run.workdir is None else f"cd {shlex.quote(run.workdir)} || exit 1\n{run.command}",
        workdir="",
        coordinator=home.url,
        token_file="",
        log_folder="",
        spool_folder="",
        engine=run.engine,
        processes_per_node=max(node.accelerators, 1),
        code=_code(run),
        address=host.hosts[node.address].private_address if node.address in host.hosts else None,
        master_port=0 if local else Config.master_port,
        gpus=not local,
        gang_seconds=gang.total_seconds(),
        grace_seconds=GRACE_SECONDS,
        heartbeat_seconds=_LOCAL_HEARTBEAT_SECONDS if local else Config.heartbeat_seconds,
        farewell_seconds=_LOCAL_FAREWELL_SECONDS if local else Config.farewell_seconds,
        metadata=metadata_of(attempt.cloud),
        resume_step=attempt.first_step,
        resume_manifest=attempt.first_manifest,
        checkpoint_seconds=attempt.checkpoint_seconds,
        checkpoint_store=store,
    )


def _code(run: Run) -> AgentCode:
    if run.image is not None:
        return AgentCode("image", run.image)
    if run.code is None:
        return AgentCode()
    if run.code.git is not None:
        return AgentCode("git", run.code.git, run.code.ref or "")
    return AgentCode("archive", run.code.archive or "", run.code.sha256 or "")


def spec_json(job: Job) -> str:
    """A job as the state database keeps it; read back with :func:`job_of`."""
    return json.dumps(job.model_dump(mode="json"), sort_keys=True)


def job_of(text: str) -> Job:
    """The job of :func:`spec_json`."""
    return Job.model_validate_json(text)
