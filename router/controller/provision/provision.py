"""Provision one gang: preview, apply, count the machines and wait until all ranks meet.

Every step is recorded before it is taken. An attempt that an earlier process left half done is resumed where it stands:
its directory, token and name are the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from pricing.units import format_count
from providers.errors import ProviderError
from router.agent import protocol
from router.agent.config import AgentConfig
from router.controller.context import ControllerContext
from router.controller.history.metering import DISK_GIB, PROVISIONING
from router.controller.release.inventory import MachineInventory, own_machines, record_found_machines
from router.controller.release.shared_network import join_network
from router.controller.workspace.workspaces import checks_machines
from router.faults.fault import (
    JOB_FAULT,
    OURS,
    SHORT,
    STOPPED,
    UNHEALTHY,
    UNKNOWN_FAULT,
    Fault,
    fault_of_error,
    find_telling_line,
    stated_fault,
)
from router.state.records import Attempt, NodeRecord, Phase
from terraform.errors import TerraformError
from terraform.module_metadata import module_facts
from terraform.render import ProvisionedNode, parse_nodes
from terraform.runner import ApplyResult, retry_while_locked
from terraform.spec import WorkspaceSpec
from terraform.workdir import forget_secrets, prepare

_POLL_S = 0.1
# A rank that was told to start reports it within two heartbeats and a little more.
_START_S = 2 * AgentConfig.heartbeat_seconds + 5.0


class ProvisionError(Exception):
    """A gang could not be provisioned.

    ``fault`` decides what is tried next. The message is for a person and holds no secret.
    """

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


def provision(
    site: ControllerContext, attempt: Attempt, spec: WorkspaceSpec | None, when_whole: Callable[[], None] | None = None
) -> Attempt:
    """Provision the gang, and return the attempt once all ranks have met.

    ``spec`` None resumes what lies in the attempt's directory. ``when_whole`` is called when all ranks have met; ranks
    that resume from another gang are waiting for its end then. Raises :class:`ProvisionError`: some machines may exist
    then, and the attempt has to be released.
    """
    directory = site.directory(attempt.directory)
    if attempt.phase is Phase.PLANNED:
        attempt = site.store.attempts.update(
            attempt.id, lambda a: replace(a, phase=Phase.PROVISIONING, made_at=site.clock())
        )
    if spec is None:
        site.store.journal.note(attempt.id, "provisioning taken up", site.clock())
    else:
        # Own hosts and local processes have no disk that a cloud bills for.
        own = module_facts(attempt.cloud).local or module_facts(attempt.cloud).hosts_named
        site.store.journal.note(attempt.id, PROVISIONING, site.clock(), **({} if own else {DISK_GIB: spec.disk_gib}))
    inventory = MachineInventory(site, attempt)
    try:
        if spec is not None:
            spec = join_network(site, attempt, spec)
            prepare(directory, spec, plugins=site.plugins)
        preview = retry_while_locked(lambda: site.runner.preview(directory, stop=site.stop))
        site.store.journal.note(attempt.id, "previewed", site.clock(), creates=len(preview.creates))
        if preview.destroys and spec is not None:
            raise ProvisionError(OURS, f"{attempt.id}: making it would destroy {', '.join(preview.destroys[:3])}")
        applied = site.runner.apply(directory, inventory.saw, preview=preview, stop=site.stop)
    except TerraformError as error:
        fault = fault_of_error(error, cloud=attempt.cloud, region=attempt.region)
        if fault is STOPPED and not site.stop.is_set():
            fault = OURS  # Another process stopped Terraform.
        if fault.kind.is_refusal:
            inventory.refused()
        remedy = error.remedy or fault.remedy
        raise ProvisionError(fault, f"{error} ({remedy})" if remedy else str(error)) from error
    nodes = _count_machines(site, attempt, applied)
    site.tell(
        attempt.job, f"{format_count(len(nodes), 'machine is', 'machines are')} there, {attempt.id} waits for all ranks"
    )
    attempt = _wait_for_ranks(site, attempt, when_whole)
    forget_secrets(directory)
    return attempt


def _count_machines(site: ControllerContext, attempt: Attempt, applied: ApplyResult) -> tuple[ProvisionedNode, ...]:
    try:
        nodes = parse_nodes(applied.outputs)
    except ValueError as error:
        raise ProvisionError(UNKNOWN_FAULT, str(error)) from error
    if [node.rank for node in nodes] != list(range(attempt.machines)):
        raise ProvisionError(SHORT, f"{len(nodes)} of {format_count(attempt.machines, 'machine')} came")
    record_found_machines(site, attempt)
    now = site.clock()
    for node, record in zip(nodes, site.store.attempts.nodes(attempt.id), strict=True):
        site.store.attempts.set_node(
            attempt.id,
            node.rank,
            machine_id=node.id,
            address=node.address,
            private_address=node.private_address,
            zone=node.zone or record.zone,
            made_at=record.made_at or now,
        )
    _release_unknown_machines(site, attempt, {node.id for node in nodes})
    site.store.journal.note(attempt.id, "made", now, machines=len(nodes))
    return nodes


def _release_unknown_machines(site: ControllerContext, attempt: Attempt, node_ids: set[str]) -> None:
    """Release machines that Terraform does not know: they were requested as an earlier process was killed."""
    try:
        fleet = site.fleet(attempt.cloud)
        if fleet is None:
            return
        machines = own_machines(site, attempt, fleet.found([attempt.region]))
        unknown = [machine for machine in machines if machine.machine_id not in node_ids]
        if unknown:
            site.store.journal.note(attempt.id, "releasing doubles", site.clock(), ids=[f.machine_id for f in unknown])
            for error in fleet.release(unknown):
                if error is not None:
                    raise error
    except ProviderError as error:
        site.store.journal.note(attempt.id, "not looked for by tag", site.clock(), error=str(error))


def _wait_for_ranks(site: ControllerContext, attempt: Attempt, when_whole: Callable[[], None] | None) -> Attempt:
    limit_s = site.deploy.timeouts.rendezvous.total_seconds()
    measures = attempt.machines > 1 and checks_machines(attempt.cloud, site.deploy)
    ends = time.monotonic() + limit_s
    while True:
        current = site.store.attempts.get(attempt.id)
        if current is None:
            raise ProvisionError(OURS, f"{attempt.id} is gone from the state database")
        if current.met_at is not None:
            _tell_problems(site, current)
            if when_whole is not None:
                when_whole()
            return _wait_for_start(site, current)
        if current.phase is not Phase.PROVISIONING:
            raise ProvisionError(STOPPED, f"{attempt.id} was released by another process")
        if current.result:
            nodes = site.store.attempts.nodes(attempt.id)
            fault = _fault_of_start(nodes, current.result)
            remedy = f" ({fault.remedy})" if fault.remedy else ""
            where = f" in {_pool_name(current, nodes)}" if current.result == protocol.UNFIT else ""
            raise ProvisionError(fault, f"{_failure_text(nodes, current.result)}{where}{remedy}")
        if site.stop.is_set():
            raise ProvisionError(STOPPED, "stopped")
        if time.monotonic() > ends:
            missing = [str(node.rank) for node in site.store.attempts.nodes(attempt.id) if not node.agent]
            if measures and not missing:
                # All have called: what they do now is measure.
                measures, ends = False, ends + protocol.MEASURE_SECONDS
                continue
            raise ProvisionError(UNHEALTHY, f"rank {', '.join(missing) or '?'} did not call within {limit_s:g} s")
        time.sleep(_POLL_S)


def _wait_for_start(site: ControllerContext, attempt: Attempt) -> Attempt:
    # Leaving now would leave ranks waiting for the word that all have met.
    ends = time.monotonic() + _START_S
    while time.monotonic() < ends and not site.stop.is_set():
        if all(
            node.agent not in ("", protocol.STARTING, protocol.WAITING)
            for node in site.store.attempts.nodes(attempt.id)
        ):
            break
        time.sleep(_POLL_S)
    site.store.journal.note(attempt.id, "ready", site.clock())
    return site.store.attempts.update(
        attempt.id, lambda a: replace(a, phase=Phase.READY) if a.phase is Phase.PROVISIONING else None
    )


def _tell_problems(site: ControllerContext, attempt: Attempt) -> None:
    """Say what the checks of the machines found that does not keep them from starting."""
    where = _pool_name(attempt, site.store.attempts.nodes(attempt.id))
    for entry in site.store.journal.entries(attempt.id, what=(protocol.PREFLIGHT,)):
        checks = entry.details.get("checks")
        for check in checks if isinstance(checks, list) else []:
            if check["problem"]:
                site.tell(
                    attempt.job, f"{attempt.id}: rank {entry.details['rank']}: {check['name']}: {check['problem']}"
                )
    for entry in site.store.journal.entries(attempt.id, what=(protocol.MEASURED,)):
        told = entry.details
        site.tell(attempt.job, f"{attempt.id}: all-reduce in {where}: {told['found']}")


def _pool_name(attempt: Attempt, nodes: tuple[NodeRecord, ...]) -> str:
    first = nodes[0]
    return f"{attempt.cloud}/{first.zone or attempt.region} {first.instance_type} {first.market.value}"


def _fault_of_start(nodes: tuple[NodeRecord, ...], result: str) -> Fault:
    """Return the fault of ranks that did not start: of the code or image, as its last lines say, or of a machine."""
    if result != protocol.NO_CODE:
        return UNHEALTHY
    # Missing code is missing everywhere, unless its lines say that a network or a registry was away.
    return stated_fault(node.ended_message for node in nodes if node.ended_reason == result) or JOB_FAULT


def _failure_text(nodes: tuple[NodeRecord, ...], result: str) -> str:
    for node in nodes:
        if node.ended_reason and node.ended_reason != protocol.FINISHED:
            text = node.ended_message
            # What is wrong with a machine stands first; the output of what failed on it may follow.
            line = text.partition("\n")[0] if node.ended_reason == protocol.UNFIT else find_telling_line(text)
            return f"rank {node.rank}: {node.ended_reason} {line}".rstrip()
    return result
