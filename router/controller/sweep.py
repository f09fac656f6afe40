"""Find orphans in state, journal and clouds: what exists and should not, and what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pricing.units import format_count
from providers.errors import ProviderError
from providers.fleet import CloudResource
from router.controller.context import ControllerContext
from router.controller.history.lifecycle import NotReleasedError
from router.controller.provision.provision_order import is_abandoned, is_half_done, release_half_done
from router.controller.release.shared_network import delete_unused, list_networks, networks_in_use
from router.controller.workspace.run_folders import run_directories, state_id_of
from router.controller.workspace.workspaces import is_network_name
from router.state.errors import StateError, UnreadableError
from router.state.records import Attempt
from terraform.errors import TerraformError
from terraform.orphans import list_orphans, stop_orphans
from terraform.workdir import lists_resources


@dataclass(frozen=True, slots=True)
class Orphan:
    """A resource that no living attempt accounts for.

    ``resource``: a resource in a cloud. ``interrupted``: an attempt that is half done. ``directory``: a run directory
    with processes of an attempt that is over. ``terraform``: a Terraform state lists resources there. ``ours`` False:
    it belongs to another state database and is left alone.
    """

    what: str
    where: str
    attempt: str
    ours: bool
    resource: CloudResource | None = None
    interrupted: Attempt | None = None
    directory: str | None = None
    terraform: bool = False


@dataclass(frozen=True, slots=True)
class OrphanReport:
    """The result of a search for orphans.

    ``gaps`` are places that could not be queried, with the reason; ``lost`` are machines that the state takes to exist
    and no cloud knows (attempt, rank).
    """

    orphans: tuple[Orphan, ...]
    gaps: tuple[str, ...]
    lost: tuple[tuple[str, int], ...]


def find_orphans(
    site: ControllerContext,
    clouds: Iterable[str],
    regions: Mapping[str, Sequence[str]],
    *,
    others_work: bool = False,
    adopted: str = "",
) -> OrphanReport:
    """Search everywhere for orphans, and return them; changes nothing.

    ``clouds`` are queried, each in these ``regions`` (none: all it has). ``others_work``: another command provisions or
    releases machines, so half-done attempts are its business. ``adopted``: the id of a lost state, whose machines and
    run directories count as ours.
    """
    skipped: list[UnreadableError] = []
    attempts: dict[str, Attempt | None] = {attempt.id: attempt for attempt in site.store.attempts.find(skipped=skipped)}
    # Unreadable attempts may still be alive: their resources are no orphans.
    attempts |= {error.key[0]: None for error in skipped}
    known = [attempt for attempt in attempts.values() if attempt is not None]
    networks, in_use = list_networks(site), networks_in_use(site)
    # What belongs to a network is its workspace's business, in use or not.
    attempts |= dict.fromkeys((*networks, *in_use))
    orphans = [
        Orphan(f"attempt in {a.phase}", f"{a.cloud}/{a.region}", a.id, ours=True, interrupted=a)
        for a in known
        if not others_work and is_abandoned(site, a)
    ]
    gaps = [_unreadable(error) for error in skipped]
    seen: set[tuple[str, str]] = set()
    asked: set[str] = set()
    for cloud in clouds:
        try:
            fleet = site.fleet(cloud)
            if fleet is None:
                continue
            findings = fleet.found(list(regions.get(cloud, ())))
        except ProviderError as error:
            gaps.append(f"{cloud}: {error}")
            continue
        asked.add(cloud)
        gaps += [f"{cloud}: {gap.subject}: {gap.error}" for gap in findings.gaps]
        for found in findings.resources:
            seen.add((found.attempt, found.machine_id))
            if not found.going and not _may_have_machines(attempts, found.attempt):
                orphans.append(_orphan(site, found, adopted))
    if not others_work:
        orphans += [
            Orphan("network without a gang", str(site.directory(name)), name, ours=True, directory=name, terraform=True)
            for name in networks
            if name not in in_use
        ]
    if adopted:
        orphans += _adopted_directories(site, attempts, adopted)
    orphans += _orphaned_processes(site, attempts)
    lost = []
    for attempt in known:
        if not attempt.phase.is_over and not is_half_done(attempt) and attempt.cloud in asked:
            try:
                nodes = site.store.attempts.nodes(attempt.id)
            except UnreadableError as error:
                gaps.append(_unreadable(error))
                continue
            lost += [
                (attempt.id, node.rank)
                for node in nodes
                if node.machine_id is not None and node.gone_at is None and (attempt.id, node.machine_id) not in seen
            ]
    return OrphanReport(tuple(orphans), tuple(gaps), tuple(lost) if not gaps else ())


def _unreadable(error: UnreadableError) -> str:
    return f"{error} (`stepfare destroy {error.key[0]}` settles it by what else is known; or {error.remedy})"


def release_orphans(site: ControllerContext, orphans: Iterable[Orphan]) -> tuple[tuple[Orphan, str], ...]:
    """Release our orphans, half-done attempts first, and return each with its error, "" when it is gone."""
    results: list[tuple[Orphan, str]] = []
    own = [orphan for orphan in orphans if orphan.ours]
    for orphan in own:
        if orphan.interrupted is not None:
            try:
                release_half_done(site, orphan.interrupted)
                results.append((orphan, ""))
            except (NotReleasedError, StateError, OSError) as error:
                results.append((orphan, str(error)))
    # Networks last: what lies in one holds it.
    by_terraform = sorted(own, key=lambda orphan: is_network_name(orphan.directory or ""))
    results += [(orphan, _destroy(site, orphan)) for orphan in by_terraform if orphan.terraform]
    for cloud in sorted({o.resource.cloud for o in own if o.resource is not None}):
        results += _release_in_cloud(
            site, cloud, [o for o in own if o.resource is not None and o.resource.cloud == cloud]
        )
    for orphan in own:
        if orphan.directory is not None and not orphan.terraform:
            directory = site.directory(orphan.directory)
            stop_orphans(directory)
            left = len(list_orphans(directory))
            results.append((orphan, f"{format_count(left, 'process does', 'processes do')} not end" if left else ""))
    return tuple(results)


def _release_in_cloud(site: ControllerContext, cloud: str, orphans: Sequence[Orphan]) -> list[tuple[Orphan, str]]:
    fleet = site.fleet(cloud)
    found = [orphan.resource for orphan in orphans if orphan.resource is not None]
    if fleet is None:
        return []
    try:
        errors = fleet.release(found)
    except ProviderError as error:
        return [(orphan, str(error)) for orphan in orphans]
    return [(orphan, "" if error is None else str(error)) for orphan, error in zip(orphans, errors, strict=True)]


def _may_have_machines(attempts: Mapping[str, Attempt | None], name: str) -> bool:
    """Return whether machines of that attempt may exist. Those of a half-done attempt are released with it."""
    if name not in attempts:
        return False
    attempt = attempts[name]
    return attempt is None or not attempt.phase.is_over


def _destroy(site: ControllerContext, orphan: Orphan) -> str:
    name = orphan.directory or ""
    try:
        if is_network_name(name):
            delete_unused(site, name)
        else:
            site.runner.destroy(site.directory(name))
    except TerraformError as error:
        return str(error)
    return ""


def _adopted_directories(site: ControllerContext, attempts: Mapping[str, Attempt | None], state: str) -> list[Orphan]:
    """Return run directories of a lost state whose Terraform state lists resources: no tag leads to all of them."""
    return [
        Orphan("what Terraform made", str(path), path.name, ours=True, directory=path.name, terraform=True)
        for path in run_directories(site.runs)
        if path.name not in attempts and state_id_of(path) == state and lists_resources(path)
    ]


def _orphan(site: ControllerContext, resource: CloudResource, adopted: str) -> Orphan:
    place = "/".join(filter(None, (resource.cloud, resource.zone or resource.region)))
    return Orphan(
        f"{resource.what} {resource.machine_id}",
        place,
        resource.attempt,
        ours=bool(resource.state_id) and resource.state_id in (site.store.id, adopted),
        resource=resource,
    )


def _orphaned_processes(site: ControllerContext, attempts: Mapping[str, Attempt | None]) -> list[Orphan]:
    if not site.runs.is_dir():
        return []
    return [
        Orphan(
            format_count(len(left), "process", "processes"), str(folder), folder.name, ours=True, directory=folder.name
        )
        for folder in sorted(site.runs.iterdir())
        if folder.is_dir() and not _may_have_machines(attempts, folder.name) and (left := list_orphans(folder))
    ]
