"""Turn a placement into what Terraform needs: the attempt with its machines, and the workspace. Pure."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from pricing.fabrics import Fabric, find_fabric
from pricing.machine_images import explain_unmade, find_machine_image
from pricing.places import Market
from providers.fleet import ATTEMPT_TAG, STATE_TAG
from router.agent.config import AgentConfig, AgentConfigError, FabricSetup
from router.agent.config import CodeSource as AgentCode
from router.controller.history.attempt_history import ResumePoint
from router.controller.plans import Order
from router.controller.workspace.bootstrap import (
    Bootstrap,
    CoordinatorEndpoint,
    NodeSecrets,
    node_script,
    render_cloud_init,
)
from router.controller.workspace.placement_options import GangPlacement
from router.deploy.cloud_settings import CloudDeploy, ReservedEntry
from router.deploy.deploy_settings import Deploy
from router.jobs.spec import Job, Run
from router.ledger.entry import utc
from router.state.records import Attempt, NodeRecord
from terraform.module_metadata import BootMethod, module_facts
from terraform.spec import ATTEMPT_CHARACTERS, Backend, Host, NetworkSpec, NodeSpec, WorkspaceSpec, to_tag_value

_JOB_CHARACTERS = 28  # This leaves room for the digest within the 40 characters of a name.
_DIGEST_CHARACTERS = 10
# An attempt's name ends with more of a digest.
_NETWORK_DIGEST_CHARACTERS = 6
_NETWORK = re.compile(r"net-[a-z0-9-]+-[0-9a-f]{6}")
# Ray's workers drain for up to 30 s.
GRACE_SECONDS = 30.0
_START = ResumePoint()
_LOCAL_HEARTBEAT_SECONDS, _LOCAL_FAREWELL_SECONDS = 1.0, 60.0


@dataclass(frozen=True, slots=True)
class GangNetwork:
    """The network of a gang that the plan counts on: what sets up its fabric, and its bus bandwidth in GB/s."""

    fabric: Fabric | None = None
    assumed_gb_per_s: float | None = None


def attempt_name(state_id: str, plan: str, order: Order, number: int) -> str:
    """Return the name of the attempt with that number of an order; the same input always gives the same name.

    Machines are named after it, so that nothing is created twice.
    """
    slug = re.sub(r"[^a-z0-9-]+", "-", order.job.lower())[:_JOB_CHARACTERS].strip("-")
    slug = slug if slug[:1].isalpha() else f"j{slug}"[:_JOB_CHARACTERS].rstrip("-")
    what = f"{state_id} {plan} {order.gang} {utc(order.start).isoformat()} {number}"
    return f"{slug}-{hashlib.sha256(what.encode()).hexdigest()[:_DIGEST_CHARACTERS]}"


def new_attempt(
    name: str,
    plan: str,
    order: Order,
    choice: GangPlacement,
    number: int,
    job: Job,
    digest: str,
    token: str,
    now: datetime,
    before: ResumePoint = _START,
    checkpoint_seconds: float | None = None,
    policies: tuple[str, str] = ("", ""),
) -> tuple[Attempt, tuple[NodeRecord, ...]]:
    """Return the records of an attempt that is about to be provisioned."""
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
    seats = enumerate(choice.seats)
    return attempt, tuple(replace(seat, attempt=name, rank=rank, name=f"{name}-{rank}") for rank, seat in seats)


def build_workspace(
    attempt: Attempt,
    nodes: tuple[NodeRecord, ...],
    job: Job,
    deploy: Deploy,
    state_id: str,
    home: CoordinatorEndpoint,
    secrets: NodeSecrets,
    *,
    data: str = "",
    fabric: str = "none",
    hosts: Mapping[int, Host] | None = None,
    assumed_gb_per_s: float | None = None,
) -> WorkspaceSpec:
    """Return the workspace for Terraform.

    ``data`` is the URL where the training reads its data. ``hosts`` by rank, for a cloud whose machines exist already.
    ``assumed_gb_per_s``: the bus bandwidth over ``fabric`` that the plan assumes.
    ValueError, which holds no secret, when something is missing or does not fit a cloud.
    """
    for node in nodes:
        _check_reservation(node, attempt, deploy)
        _check_image(node, attempt, deploy)
    network = GangNetwork(find_fabric(attempt.cloud, fabric), assumed_gb_per_s)
    user_data = {node.rank: _user_data(attempt, node, job, deploy, home, secrets, data, network) for node in nodes}
    return replace(
        build_release_workspace(attempt, nodes, deploy, state_id, fabric=fabric, hosts=hosts), user_data=user_data
    )


def build_release_workspace(
    attempt: Attempt,
    nodes: tuple[NodeRecord, ...],
    deploy: Deploy,
    state_id: str,
    *,
    fabric: str = "none",
    hosts: Mapping[int, Host] | None = None,
) -> WorkspaceSpec:
    """Return the workspace of machines that are to be released, without user data. ValueError."""
    cloud = deploy.cloud(attempt.cloud, attempt.region)
    return WorkspaceSpec(
        attempt=attempt.id,
        cloud=attempt.cloud,
        region=attempt.region,
        nodes=tuple(_machine(node, attempt.region, cloud) for node in nodes),
        tags={**deploy.tags_of(attempt.team, attempt.cloud), **resource_tags(attempt, state_id)},
        image=cloud.image,
        network=NetworkSpec(cloud.network.id, cloud.network.subnets) if cloud.network else NetworkSpec(),
        fabric=fabric,
        disk_gib=cloud.disk_gib,
        checkpoint_bucket=cloud.checkpoint_bucket,
        readable=cloud.readable(attempt.team),
        permissions_boundary=cloud.permissions_boundary,
        instance_profile=cloud.instance_profile,
        end_role=cloud.end_role,
        ssh_public_key=cloud.ssh_public_key,
        backend=Backend(deploy.backend.kind, deploy.backend.settings),
        hosts=dict(hosts or {}),
        lifetime_seconds=deploy.lifetime.most_seconds(attempt.planned_time)
        if module_facts(attempt.cloud).lifetime_limited
        else None,
        private_key_path=Path(cloud.private_key_path).expanduser() if cloud.private_key_path else None,
    )


def network_name(state_id: str, cloud: str, region: str) -> str:
    """Return the name of the network that the gangs of a state share in a region; it stands where an attempt's does."""
    digest = hashlib.sha256(f"{state_id} {cloud} {region}".encode()).hexdigest()[:_NETWORK_DIGEST_CHARACTERS]
    return f"net-{cloud}-{region}"[: ATTEMPT_CHARACTERS - len(digest) - 1].rstrip("-") + f"-{digest}"


def is_network_name(name: str) -> bool:
    """Return whether the name is one of :func:`network_name`, not an attempt's."""
    return _NETWORK.fullmatch(name) is not None


def build_network(
    cloud: str, region: str, zones: tuple[str, ...], fabric: str, deploy: Deploy, state_id: str
) -> WorkspaceSpec:
    """Return the workspace of the network that gangs share in a region, in those zones. ValueError."""
    name = network_name(state_id, cloud, region)
    own = {ATTEMPT_TAG: name, STATE_TAG: state_id}
    return WorkspaceSpec(
        attempt=name,
        cloud=cloud,
        region=region,
        nodes=(),
        tags={**deploy.tags_of("", cloud), **own},
        shared_zones=zones,
        fabric=fabric,
        backend=Backend(deploy.backend.kind, deploy.backend.settings),
    )


def resource_tags(attempt: Attempt, state_id: str) -> dict[str, str]:
    """Return the tags of every machine, with values that every cloud accepts."""
    values = {
        ATTEMPT_TAG: attempt.id,
        STATE_TAG: state_id,
        "stepfare_plan": attempt.plan[:12],
        "stepfare_job": attempt.job,
        "team": attempt.team,
        "project": attempt.project,
        "cost_center": attempt.cost_center,
    }
    return {name: to_tag_value(value) for name, value in values.items() if value}


def _check_reservation(node: NodeRecord, attempt: Attempt, deploy: Deploy) -> None:
    name, region = attempt.cloud, attempt.region
    if node.market is not Market.RESERVED or module_facts(name).boot is not BootMethod.CLOUD_INIT:
        return
    if _matching_reservation(node, region, deploy.cloud(name, region)) is None:
        # Clouds would create the machine on demand, at a price that nobody agreed to.
        raise ValueError(
            f"{name}/{node.zone or region} {node.instance_type} was planned on a reservation, and none is named: "
            f"add it to clouds.{name}.reservations of the deploy file"
        )


def _check_image(node: NodeRecord, attempt: Attempt, deploy: Deploy) -> None:
    why = explain_unmade(attempt.cloud, node.instance_type)
    if why and deploy.cloud(attempt.cloud, attempt.region).image is None:
        raise ValueError(
            f"{attempt.cloud} {node.instance_type}: {why}: plan again, or add an image of your own"
            f" as clouds.{attempt.cloud}.image to the deploy file"
        )


def _machine(node: NodeRecord, region: str, cloud: CloudDeploy) -> NodeSpec:
    reservation = _matching_reservation(node, region, cloud) if node.market is Market.RESERVED else None
    return NodeSpec(
        rank=node.rank,
        name=node.name,
        zone=node.zone or (reservation.zone if reservation is not None else None),
        instance_type=node.instance_type,
        market=node.market,
        # Only a spot bid has a ceiling; the rest costs what the list says.
        max_usd_per_hour=node.max_usd_per_hour if node.market is Market.SPOT else None,
        reservation=reservation.id if reservation is not None else None,
        placement_group=reservation.placement_group if reservation is not None else None,
    )


def _matching_reservation(node: NodeRecord, region: str, cloud: CloudDeploy) -> ReservedEntry | None:
    for entry in cloud.reservations:
        is_match = (entry.region, entry.instance_type) == (region, node.instance_type)
        if is_match and (entry.zone is None or node.zone in (None, entry.zone)):
            return entry
    return None


def _user_data(
    attempt: Attempt,
    node: NodeRecord,
    job: Job,
    deploy: Deploy,
    home: CoordinatorEndpoint,
    secrets: NodeSecrets,
    data: str,
    network: GangNetwork,
) -> str:
    if job.run is None:
        raise ValueError(f"job {job.name} has no `run`: there is nothing to start")
    script = module_facts(attempt.cloud).boot is BootMethod.SCRIPT
    config = _config(attempt, node, job.run, deploy, home, data, network)
    settings, row = deploy.cloud(attempt.cloud, attempt.region), find_machine_image(attempt.cloud, node.instance_type)
    # An image of the user's own holds a driver, Docker, the toolkit and the fabric's software, or the job needs none.
    setup = network.fabric.setup if network.fabric is not None and settings.image is None else None
    installs = row is not None and settings.image is None and (config.code.kind == "image" or setup is not None)
    bootstrap = Bootstrap(
        config=config,
        home=home,
        secrets=secrets,
        local_nvme=None if script else settings.local_nvme,
        containers=row.installs if row is not None and installs else None,
        deallocates=module_facts(attempt.cloud).end_role,
        fabric_setup=setup,
    )
    try:
        return node_script(bootstrap) if script else render_cloud_init(bootstrap)
    except AgentConfigError as error:
        raise ValueError(f"job {job.name}: its machines could not be told what to do: {error}") from None


def _config(
    attempt: Attempt,
    node: NodeRecord,
    run: Run,
    deploy: Deploy,
    home: CoordinatorEndpoint,
    data: str = "",
    network: GangNetwork = GangNetwork(),
) -> AgentConfig:
    local = module_facts(attempt.cloud).local
    row = find_machine_image(attempt.cloud, node.instance_type)
    host = deploy.cloud(attempt.cloud, attempt.region)
    store = host.store_of(attempt.job) or ""
    timeouts = deploy.timeouts
    # The time exceeds the wait of the provisioning process: the first machine may be up long before the last, and those
    # of a gang that takes over wait for the checkpoint, too.
    gang_wait = timeouts.apply + timeouts.rendezvous + (timeouts.checkpoint_copy if store else timedelta(0))
    return AgentConfig(
        attempt=attempt.id,
        job=attempt.job,
        rank=node.rank,
        nodes=attempt.machines,
        # Either every line of the command runs in the folder, or none runs.
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
        master_port=0 if local else AgentConfig.master_port,
        gpus=not local,
        gpu_vendor=(row.vendor if row is not None else "") or AgentConfig.gpu_vendor,
        gang_seconds=gang_wait.total_seconds(),
        grace_seconds=GRACE_SECONDS,
        heartbeat_seconds=_LOCAL_HEARTBEAT_SECONDS if local else AgentConfig.heartbeat_seconds,
        farewell_seconds=_LOCAL_FAREWELL_SECONDS if local else AgentConfig.farewell_seconds,
        metadata=module_facts(attempt.cloud).metadata,
        resume_step=attempt.first_step,
        resume_manifest=attempt.first_manifest,
        checkpoint_seconds=attempt.checkpoint_seconds,
        checkpoint_store=store,
        # Processes of this machine share it.
        preflight=deploy.preflight if checks_machines(attempt.cloud, deploy) else AgentConfig.preflight,
        assumed_gb_per_s=network.assumed_gb_per_s,
        fabric=_fabric_setup(network.fabric),
        accelerator=node.accelerator,
        lease_seconds=deploy.lifetime.unheard.total_seconds(),
        lifetime_seconds=deploy.lifetime.seconds(attempt.planned_time),
        power_off=module_facts(attempt.cloud).boot is BootMethod.CLOUD_INIT,
        data=data,
    )


def checks_machines(cloud: str, deploy: Deploy) -> bool:
    """Return whether machines are checked: processes of this one where the deploy file says so itself."""
    says_so = not module_facts(cloud).local or "preflight" in deploy.model_fields_set
    return says_so and deploy.preflight != AgentConfig.preflight


def _fabric_setup(row: Fabric | None) -> FabricSetup:
    if row is None:
        return FabricSetup()
    return FabricSetup(row.fabric, row.environment, row.script, row.folders, row.libraries, row.present)


def _code(run: Run) -> AgentCode:
    if run.image is not None:
        return AgentCode("image", run.image)
    if run.code is None:
        return AgentCode()
    if run.code.git is not None:
        return AgentCode("git", run.code.git, run.code.ref or "")
    return AgentCode("archive", run.code.archive or "", run.code.sha256 or "")
