"""Interruptions by hand: the call by which each cloud lets its customers try one. Charges of the call are noted."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NOTICE_S = 120


class NotPlayedError(Exception):
    """The notice cannot be given here; the message says why."""


@dataclass(frozen=True, slots=True)
class Target:
    """The machine that is to be interrupted, as `status` names it."""

    attempt: str
    machine: str
    region: str
    market: str


@dataclass(frozen=True, slots=True)
class Account:
    """How the cloud is reached: ``url`` replaces its address where a service of this computer plays it."""

    cloud: str
    subscription: str = ""
    fis_role: str = ""
    url: str | None = None


def give_notice(account: Account, target: Target) -> str:
    """Have the cloud announce an interruption to a machine; the call that was made. NotPlayedError."""
    if target.market != "spot":
        raise NotPlayedError(f"{target.market}: clouds announce interruptions to spot machines alone")
    return {"aws": _aws, "gcp": _gcp, "azure": _azure}[account.cloud](account, target)


def take(account: Account, target: Target) -> str:
    """End a machine behind everybody's back, where no notice can be had (AWS); the call that was made."""
    if account.cloud != "aws":
        raise NotPlayedError("no interruption without a notice: a machine that was deleted by hand tells nothing more")
    _boto("ec2", account, target).terminate_instances(InstanceIds=[target.machine])
    return f"ec2:TerminateInstances {target.machine}"


def _boto(service: str, account: Account, target: Target) -> Any:
    import boto3

    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x"} if account.url else {}
    return boto3.client(service, target.region, endpoint_url=account.url, **keys)


def _aws(account: Account, target: Target) -> str:
    """By AWS Fault Injection Service ($0.10 a minute of its action)."""
    if not account.fis_role:
        raise NotPlayedError("no --fis-role: AWS announces by its fault injection service alone, which needs a role")
    fis = _boto("fis", account, target)
    spot: Mapping[str, Any] = {
        "resourceType": "aws:ec2:spot-instance",
        "resourceTags": {"stepfare_attempt": target.attempt},
        "selectionMode": "ALL",
    }
    action = {
        "actionId": "aws:ec2:send-spot-instance-interruptions",
        "parameters": {"durationBeforeInterruption": f"PT{NOTICE_S // 60}M"},
        "targets": {"SpotInstances": "machines"},
    }
    template = fis.create_experiment_template(
        description="stepfare smoke run: one interruption",
        stopConditions=[{"source": "none"}],
        targets={"machines": spot},
        actions={"interrupt": action},
        roleArn=account.fis_role,
    )["experimentTemplate"]["id"]
    try:
        fis.start_experiment(experimentTemplateId=template)
    finally:
        fis.delete_experiment_template(id=template)
    return f"fis:StartExperiment, send-spot-instance-interruptions to {target.machine}"


def _gcp(account: Account, target: Target) -> str:
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import compute_v1

    nobody: Any = AnonymousCredentials
    local: Any = {"credentials": nobody(), "client_options": {"api_endpoint": account.url}}
    client: Any = compute_v1.InstancesClient(**(local if account.url else {}))
    parts = target.machine.split("/")
    where = dict(zip(parts[::2], parts[1::2], strict=True))
    client.simulate_maintenance_event_unary(project=where["projects"], zone=where["zones"], instance=where["instances"])
    return f"instances.simulateMaintenanceEvent {target.machine}"


def _azure(account: Account, target: Target) -> str:
    from azure.core.credentials import AccessToken
    from azure.core.pipeline.policies import HeadersPolicy
    from azure.identity import DefaultAzureCredential
    from azure.mgmt.compute import ComputeManagementClient

    class Nobody:
        def get_token(self, *_: str, **__: Any) -> AccessToken:
            return AccessToken("nobody", int(time.time()) + 3600)

    local: Any = {"base_url": account.url, "authentication_policy": HeadersPolicy({"Authorization": "Bearer nobody"})}
    credential: Any = Nobody() if account.url else DefaultAzureCredential()
    client = ComputeManagementClient(credential, account.subscription, **(local if account.url else {}))
    parts = target.machine.split("/")
    client.virtual_machines.simulate_eviction(parts[4], parts[8])
    return f"virtualMachines/simulateEviction {parts[8]}"
