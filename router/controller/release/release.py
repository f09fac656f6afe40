"""Release a gang: delete all that an attempt created, verify that it is gone, and enter it into the ledger.

May be called again after any failure or crash: each step continues from what the one before left.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from pricing.units import format_count
from providers.errors import ProviderError
from providers.fleet import ResourceKind
from router.agent import protocol
from router.agent.config import AgentConfig
from router.controller.context import ControllerContext
from router.controller.history.attempt_history import deadline_of
from router.controller.history.lifecycle import NotReleasedError, confirmed_step, last_step
from router.controller.history.metering import (
    PROVISIONING,
    TRANSFERS,
    disk_entries,
    disk_gib,
    metered_entries,
    training_record_of,
    transfer_entries,
)
from router.controller.release.copy_meter import note_interrupted_copy
from router.controller.release.damaged_rows import RELEASED, mend_gang
from router.controller.release.inventory import MachineInventory, own_machines, record_found_machines
from router.controller.release.shared_network import release_network
from router.controller.workspace.bootstrap import SECRET_FILES
from router.controller.workspace.workspaces import GRACE_SECONDS, build_release_workspace
from router.coordinator.saves import SAVED
from router.ledger.entry import CostItem, LedgerEntryKind
from router.state.errors import StateError, UnreadableError
from router.state.records import Attempt, NodeRecord, Phase
from terraform.errors import RunDirectoryError, StateLostError, TerraformError
from terraform.module_metadata import BootMethod, module_facts
from terraform.orphans import list_orphans, stop_orphans
from terraform.runner import retry_while_locked
from terraform.spec import Host
from terraform.workdir import find_damaged_files, forget_secrets, forget_state, repair

_TRIES = 3
# Clouds bill no shorter time.
_LEAST_METERED = timedelta(seconds=1)
_PAUSE_S = 2.0
# Two heartbeats, and the time that a coordinator takes to store them.
_SILENT_S = 2 * AgentConfig.heartbeat_seconds + 5.0


def release(site: ControllerContext, attempt: Attempt, reason: str, message: str) -> Attempt:
    """Release every machine of the attempt, and return the attempt, which is over then.

    ``reason`` ``finished`` ends it as finished, any other as failed. NotReleasedError: the attempt stays in RELEASING.
    """
    if attempt.phase.is_over:
        return attempt
    attempt = mend_gang(site, attempt.id)
    if attempt.phase.is_over:
        return attempt
    if attempt.phase is not Phase.RELEASING:

        def releasing(a: Attempt) -> Attempt | None:
            if a.phase is Phase.RELEASING or a.phase.is_over:
                return None
            return replace(a, phase=Phase.RELEASING, reason=reason, message=message)

        attempt = site.store.attempts.update(attempt.id, releasing)
        site.store.journal.note(attempt.id, "releasing", site.clock(), reason=reason)
    if attempt.made_at is not None:
        _wait_for_saves(site, attempt)
        _delete_resources(site, attempt)
    attempt = _close(site, attempt)
    release_network(site, attempt)
    return attempt


def _wait_for_saves(site: ControllerContext, attempt: Attempt) -> None:
    """Give the training its grace period: in RELEASING the coordinator orders every rank to stop.

    Machines that run a script are stopped that way by their module; others would just be switched off. Ranks that do
    not call are not waited for.
    """
    if attempt.met_at is None or module_facts(attempt.cloud).boot is BootMethod.SCRIPT:
        return
    ends = time.monotonic() + AgentConfig.heartbeat_seconds + GRACE_SECONDS
    heard: dict[int, tuple[datetime | None, float]] = {}
    while time.monotonic() < ends:
        now = time.monotonic()
        waiting = False
        for node in site.store.attempts.nodes(attempt.id):
            heard_before, since = heard.get(node.rank, (None, now))
            if node.rank not in heard or heard_before != node.heard_at:
                heard[node.rank], since = (node.heard_at, now), now
            waiting |= not node.ended_reason and now - since < _SILENT_S
        if not waiting:
            return
        time.sleep(_PAUSE_S / 4)


def _delete_resources(site: ControllerContext, attempt: Attempt) -> None:
    directory = site.directory(attempt.directory)
    by_terraform = _is_readable(site, attempt)
    if not by_terraform:
        _release_by_tag(site, attempt, required=True)
    for left in reversed(range(_TRIES) if by_terraform else ()):
        try:
            _destroy_with_terraform(site, attempt)
            break
        except StateLostError:
            # Resources missing from the lost state are found by tag; then the next try starts from nothing.
            _release_by_tag(site, attempt, required=True)
            stop_orphans(directory)
            forget_state(directory)
            break
        except TerraformError as error:
            if not left:
                raise NotReleasedError(f"{attempt.id}: {error}") from error
            time.sleep(_PAUSE_S)
    # Machines that were requested when Terraform was killed are in no state.
    _release_by_tag(site, attempt, required=False)
    stop_orphans(directory)
    if left_over := list_orphans(directory):
        raise NotReleasedError(f"{attempt.id}: {format_count(len(left_over), 'process does', 'processes do')} not end")
    with suppress(RunDirectoryError):
        forget_secrets(directory)
    for name in SECRET_FILES:
        for file in directory.glob(f"nodes/*/{name}"):
            file.unlink(missing_ok=True)


def _is_readable(site: ControllerContext, attempt: Attempt) -> bool:
    """Return whether Terraform can read the run directory, after repairing damaged files from the state.

    False: only the tag leads to the machines. NotReleasedError where there is no tag either.
    """
    directory = site.directory(attempt.directory)
    if not (bad := find_damaged_files(directory)):
        return True
    site.store.journal.note(attempt.id, "run directory damaged", site.clock(), files=list(bad))
    site.tell(attempt.job, f"{', '.join(bad)} of {attempt.id} cannot be read: written again from the state")
    nodes = site.store.attempts.nodes(attempt.id)
    try:
        spec = build_release_workspace(attempt, nodes, site.deploy, site.store.id, hosts=_hosts(site, attempt, nodes))
        repair(directory, spec, plugins=site.plugins)
        return True
    except (ValueError, TerraformError) as error:
        if module_facts(attempt.cloud).hosts_named:
            raise NotReleasedError(f"{attempt.id}: {error}") from error
        site.store.journal.note(attempt.id, "released by tag", site.clock(), why=str(error))
        return False


def _hosts(site: ControllerContext, attempt: Attempt, nodes: Sequence[NodeRecord]) -> Mapping[int, Host]:
    groups = [group for (region, _), group in site.pool.items() if region == attempt.region]
    known = {host.address: host for group in groups for host in group}
    own = module_facts(attempt.cloud).hosts_named
    return {node.rank: known[node.address] for node in nodes if node.address in known} if own else {}


def _destroy_with_terraform(site: ControllerContext, attempt: Attempt) -> None:
    directory = site.directory(attempt.directory)
    if not directory.exists():
        return  # Nothing was prepared, or a user removed the directory: tags decide.

    def destroy() -> None:
        record_found_machines(site, attempt)
        site.runner.destroy(directory, MachineInventory(site, attempt).saw)

    try:
        retry_while_locked(destroy)
    except RunDirectoryError:
        # Without a state nothing was prepared, so nothing was created.
        if any(directory.glob("*.tfstate")):
            raise


def _release_by_tag(site: ControllerContext, attempt: Attempt, *, required: bool) -> None:
    """Release the attempt's machines by their tag.

    ``required``: nothing else can say what exists, so that a cloud which cannot be queried is an error, and resources
    beside machines are released as well.
    """
    try:
        fleet = site.fleet(attempt.cloud)
        if fleet is None:
            return
        findings = fleet.found([attempt.region])
        if findings.gaps:
            raise findings.gaps[0].error
        # Clouds may list networks and the like for hours after Terraform released them.
        found = own_machines(site, attempt, findings, *([ResourceKind.OTHER] if required else []))
        ours = [resource for resource in found if not resource.going]
        errors = fleet.release(ours) if ours else []
    except ProviderError as error:
        if required:
            raise NotReleasedError(f"{attempt.id}: {error}") from error
        site.store.journal.note(attempt.id, "not looked for by tag", site.clock(), error=str(error))
        return
    for resource, trouble in zip(ours, errors, strict=True):
        if trouble is not None:
            raise NotReleasedError(f"{attempt.id}: {resource.what} {resource.machine_id}: {trouble}")


def _gone_at(attempt: Attempt, node: NodeRecord, made_at: datetime, now: datetime) -> datetime:
    """Return now, or where the clock was set back, when the machine was last heard of: it has cost something."""
    known = [moment for moment in (now, node.heard_at, attempt.met_at, attempt.result_at) if moment is not None]
    return max(known) if max(known) > made_at else made_at + _LEAST_METERED


def _meter(site: ControllerContext, attempt: Attempt, nodes: Sequence[NodeRecord], now: datetime) -> None:
    """Enter the attempt into the ledger, but for machines there already: new reports would split their time anew."""
    note_interrupted_copy(site, attempt)
    unreadable: list[UnreadableError] = []
    journal = site.store.journal.entries(attempt.id, what=(SAVED, PROVISIONING, *TRANSFERS), skipped=unreadable)
    trouble: list[StateError] = [*unreadable]
    deadline = deadline_of(site.store, attempt, trouble)
    course = training_record_of(attempt, nodes, [note.details for note in journal if note.what == SAVED], deadline)
    for error in trouble:
        site.tell(attempt.job, f"{error}; {attempt.id} is metered by what else is known of it ({error.remedy})")
    metered_ranks = {
        entry.rank
        for entry in site.store.ledger.entries(attempt=attempt.id, kind=LedgerEntryKind.METERED)
        if entry.what is CostItem.MACHINE
    }
    new = [node for node in nodes if node.rank not in metered_ranks]
    site.store.ledger.add(
        (
            *metered_entries(attempt, new, now, course),
            *disk_entries(attempt, new, disk_gib(journal), now),
            *transfer_entries(attempt, journal, now),
        )
    )


def _close(site: ControllerContext, attempt: Attempt) -> Attempt:
    now = site.clock()
    for node in site.store.attempts.nodes(attempt.id):
        if node.made_at is not None and node.gone_at is None:
            site.store.attempts.set_node(attempt.id, node.rank, gone_at=_gone_at(attempt, node, node.made_at, now))
    nodes = site.store.attempts.nodes(attempt.id)
    last, saved_step = last_step(attempt, nodes), confirmed_step(attempt, nodes)
    if attempt.result == protocol.FINISHED:
        saved_step = last  # A finished training leaves more behind than a checkpoint.

    def counted(current: Attempt) -> Attempt | None:
        return None if current.kept_step is not None else replace(current, last_step=last, kept_step=saved_step)

    attempt = site.store.attempts.update(attempt.id, counted)
    _meter(site, attempt, nodes, now)
    site.store.journal.note(attempt.id, RELEASED, now, reason=attempt.reason)
    phase = Phase.FINISHED if attempt.reason == "finished" else Phase.FAILED

    def closed(current: Attempt) -> Attempt | None:
        if current.phase.is_over:
            return None
        return replace(current, phase=phase, gone_at=now)

    return site.store.attempts.update(attempt.id, closed)
