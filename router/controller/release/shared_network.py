"""The network that the gangs of a region share: made by the first, changed by no other, deleted after the last.

It is a workspace of its own, named after state, cloud and region, with a Terraform state where those of attempts are.
A lease of the state database lets one gang at a time make, extend or delete it, on whatever machine: a gang counts from
before it asks for the network until it is over, so nobody deletes one that a gang is about to use.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from router.controller.context import ControllerContext, wait_for_lease
from router.controller.workspace.run_folders import run_directories, state_id_of
from router.controller.workspace.workspaces import build_network, is_network_name, network_name
from router.state.errors import LeaseHeldError, StateError, UnreadableError
from router.state.records import Attempt
from terraform.errors import ApplyFailedError, RunDirectoryError, StateLockedError, StoppedError, TerraformError
from terraform.module_metadata import module_facts
from terraform.render import SharedNetwork, parse_network
from terraform.runner import retry_while_locked
from terraform.spec import LOCAL, NetworkSpec, WorkspaceSpec
from terraform.workdir import prepare


def join_network(site: ControllerContext, attempt: Attempt, spec: WorkspaceSpec) -> WorkspaceSpec:
    """Return the workspace of a gang in the network that its region's gangs share, which is made where it is missing.

    A workspace with a network of its own stays as it is. Raises TerraformError.
    """
    if module_facts(spec.cloud).shared_network is None or spec.network.network_id is not None:
        return spec
    private = spec.fabric in module_facts(spec.cloud).nat_fabrics
    zones = tuple(dict.fromkeys(node.zone or "" for node in spec.nodes))
    with _hold(site, network_name(site.store.id, spec.cloud, spec.region)):
        network = _ensure(site, attempt, spec.cloud, zones, private=private)
    subnets = network.private_subnet_ids if private else network.subnet_ids
    return replace(spec, network=NetworkSpec(network.network_id, subnets, public=not private))


def release_network(site: ControllerContext, attempt: Attempt) -> None:
    """Delete the network of the region when the attempt, which is over, was the last gang in it.

    A network that cannot be deleted is reported, and left to the next gang or `stepfare sweep`.
    """
    cloud, region = attempt.cloud, attempt.region
    settings = site.deploy.cloud(cloud, region)
    if attempt.made_at is None or module_facts(cloud).shared_network is None or settings.network is not None:
        return
    name = network_name(site.store.id, cloud, region)
    try:
        if not site.directory(name).is_dir():
            if site.deploy.backend.kind == LOCAL:
                return
            # It may have been made from another machine. Its state says what there is.
            prepare(site.directory(name), _workspace(site, cloud, region, (), "none"), plugins=site.plugins)
        delete_unused(site, name)
    except (TerraformError, StateError) as error:
        site.store.journal.note(attempt.id, "network not deleted", site.clock(), network=name, error=str(error))
        site.tell(attempt.job, f"the network {name} is left: {error} (`stepfare sweep` deletes it)")


def delete_unused(site: ControllerContext, name: str) -> None:
    """Delete a network with its directory, unless a gang uses it. Raises TerraformError."""
    directory = site.directory(name)
    with _hold(site, name):
        if name not in networks_in_use(site):
            retry_while_locked(lambda: site.runner.destroy(directory))
            shutil.rmtree(directory, ignore_errors=True)


def networks_in_use(site: ControllerContext) -> frozenset[str]:
    """Return the names of the networks of regions with gangs that are not over.

    All that this machine knows, where the state has an attempt that cannot be read.
    """
    skipped: list[UnreadableError] = []
    alive = site.store.attempts.find(alive=True, skipped=skipped)
    if skipped:
        return frozenset(list_networks(site))
    return frozenset(network_name(site.store.id, a.cloud, a.region) for a in alive if a.made_at is not None)


def list_networks(site: ControllerContext) -> tuple[str, ...]:
    """Return the names of the state's networks that have a directory on this machine."""
    ours = ("", site.store.id)
    return tuple(
        path.name for path in run_directories(site.runs) if is_network_name(path.name) and state_id_of(path) in ours
    )


def _workspace(site: ControllerContext, cloud: str, region: str, zones: tuple[str, ...], fabric: str) -> WorkspaceSpec:
    try:
        return build_network(cloud, region, zones, fabric, site.deploy, site.store.id)
    except ValueError as error:
        raise RunDirectoryError(f"the network of {cloud}/{region} cannot be made: {error}") from error


def _ensure(
    site: ControllerContext, attempt: Attempt, cloud: str, zones: tuple[str, ...], *, private: bool
) -> SharedNetwork:
    """Make the region's network, or what it lacks of these zones, and return it; nothing that it has is taken away."""
    name = network_name(site.store.id, cloud, attempt.region)
    directory = site.directory(name)

    def write(zones: tuple[str, ...], fabric: str) -> None:
        prepare(directory, _workspace(site, cloud, attempt.region, zones, fabric), plugins=site.plugins)

    fabrics = ("none", *module_facts(cloud).nat_fabrics)
    write(zones, fabrics[private])
    # The state says what there is already, whichever machine it was made from.
    before = _parse(name, site.runner.outputs(directory))
    if before is not None:
        write(tuple(dict.fromkeys((*before.zones, *zones))), fabrics[private or bool(before.private_subnet_ids)])
    preview = retry_while_locked(lambda: site.runner.preview(directory, stop=site.stop))
    if before is not None and preview.destroys:
        preview.file.unlink(missing_ok=True)
        raise ApplyFailedError(f"{name} has gangs, and making it would destroy {', '.join(preview.destroys[:3])}")
    site.store.journal.note(attempt.id, "network", site.clock(), network=name, creates=len(preview.creates))
    network = _parse(name, site.runner.apply(directory, preview=preview, stop=site.stop).outputs)
    if network is None:
        raise ApplyFailedError(f"{name} was made, and Terraform says nothing of it")
    return network


def _parse(name: str, outputs: Mapping[str, Any]) -> SharedNetwork | None:
    try:
        return parse_network(outputs)
    except ValueError as error:
        raise ApplyFailedError(f"{name}: {error}") from error


@contextmanager
def _hold(site: ControllerContext, name: str) -> Iterator[None]:
    """Hold a network, waiting for whoever has it. Raises StoppedError, StateLockedError."""
    with ExitStack() as stack:
        try:
            wait_for_lease(site, stack, name, site.deploy.timeouts.apply.total_seconds(), pause_s=1.0)
        except LeaseHeldError as error:
            if site.stop.is_set():
                raise StoppedError(f"stopped while another gang made or deleted {name}") from error
            raise StateLockedError(str(error)) from error
        yield
