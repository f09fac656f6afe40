"""Whether everybody tells the same story: processes, Terraform's state, the state database, its journal, the ledger."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

from router.ledger.entry import CostItem, LedgerEntry, LedgerEntryKind
from router.state.audit import verify_chain
from router.state.records import Attempt, NodeRecord, Phase
from router.state.store import StateStore
from terraform.orphans import list_orphans
from tests.support.deployed import Site
from tests.support.seen_machines import Marked, SeenMachines, settled

# What holds tokens and the values of jobs' environments; and a word of every node's script.
_SECRET = ("secrets.auto.tfvars.json", "token", "env.json", "script")
_IN_SCRIPTS = b"STEPFARE_NODE_FOLDER"
_STANDING = (Phase.READY, Phase.RUNNING)


def disagreements(site: Site, seen_machines: SeenMachines | None = None, *, mute: bool = False) -> list[str]:
    """Everything that does not fit together; empty when machines = Terraform's state = database = journal, the ledger
    has one metered entry for each machine that is gone, no attempt stands between two states, and the audit log is
    whole. With ``seen_machines`` also what was seen meanwhile: nothing double, nothing that ran unmetered, nothing
    metered that was never begun (unless ``mute``: for a while nothing could be written down)."""
    with site.store() as store:
        return list(_disagreements(site, store, seen_machines, mute))


def _disagreements(site: Site, store: StateStore, seen_machines: SeenMachines | None, mute: bool) -> Iterator[str]:
    attempts = store.attempts.find()
    machines = settled(store.id)
    known = {attempt.id for attempt in attempts}
    yield from (f"a machine of unknown {one.attempt} rank {one.rank}" for one in machines if one.attempt not in known)
    alive = Counter(attempt.job for attempt in attempts if not attempt.phase.is_over)
    yield from (f"{count} attempts of {job} are alive" for job, count in alive.items() if count > 1)
    for attempt in attempts:
        mine = [one for one in machines if one.attempt == attempt.id]
        yield from (f"{attempt.id} ({attempt.phase}): {what}" for what in _attempt(site, store, attempt, mine))
    if (broken := verify_chain(store.audit.entries())) is not None:
        yield f"the audit log breaks at {broken}"
    yield from (f"the ledger: {problem}" for problem in store.ledger.verify().problems)
    if seen_machines is not None:
        yield from sorted(seen_machines.doubles.get(store.id, ()))
        yield from _unmetered(site, store, attempts, seen_machines, mute)


def _attempt(site: Site, store: StateStore, attempt: Attempt, machines: list[Marked]) -> Iterator[str]:
    nodes = store.attempts.nodes(attempt.id)
    directory = site.home / "runs" / attempt.directory
    listed = _listed(directory)
    whats = [entry.what for entry in store.journal.entries(attempt.id)]
    metered = _times(store.ledger.entries(kind=LedgerEntryKind.METERED, attempt=attempt.id))
    if attempt.phase in _STANDING:
        ids = [one.node_id for one in machines]
        yield from _unless(ids == [node.machine_id for node in nodes], f"machines are {ids}")
        yield from _unless(listed == [node.rank for node in nodes], f"Terraform's state has {listed}")
        yield from _unless(all(n.made_at and not n.gone_at for n in nodes), "its nodes are not all made and there")
        yield from _unless("ready" in whats and "released" not in whats, f"the journal says {whats}")
        yield from _unless(not metered, f"metered already: {metered}")
    elif attempt.phase.is_over:
        yield from _unless(not machines, f"{len(machines)} machines are there")
        yield from _unless(not listed, f"Terraform's state has {listed}")
        yield from _unless(not (directory.is_dir() and list_orphans(directory)), "its directory has processes")
        told = [what for what in whats if what != "given up"]
        yield from _unless(told[-1:] == ["released"], f"the journal ends with {told[-1:]}")
        secret = [path.name for name in _SECRET for path in directory.rglob(name)]
        secret += [path.name for path in directory.glob("*.tfplan") if _has_scripts(path)]
        yield from _unless(not secret, f"secrets are left: {secret}")
        existed = {
            node.rank: node.gone_at - node.made_at
            for node in nodes
            if node.made_at is not None and node.gone_at is not None and node.gone_at > node.made_at
        }
        yield from _unless(all(_is_gone(node) for node in nodes), "a node that was made is not gone")
        yield from _unless(metered == existed, f"metered {metered}, were there {existed}")
    else:
        yield "between two states"


def _times(entries: Iterable[LedgerEntry]) -> dict[int | None, timedelta]:
    """By rank, the time that stands in the ledger; AssertionError where two stretches of a machine overlap, or leave a
    gap, or a use is not said."""
    times: dict[int | None, timedelta] = {}
    ends: dict[int | None, datetime] = {}
    for entry in sorted(entries, key=lambda e: (e.rank or 0, e.start)):
        if entry.what is CostItem.MACHINE:
            assert ends.get(entry.rank, entry.start) == entry.start, f"{entry.key} does not follow the one before"
            ends[entry.rank] = entry.end
            times[entry.rank] = times.get(entry.rank, timedelta(0)) + (entry.end - entry.start)
    return times


def _unmetered(
    site: Site, store: StateStore, attempts: tuple[Attempt, ...], seen_machines: SeenMachines, mute: bool
) -> Iterator[str]:
    over = {attempt.id for attempt in attempts if attempt.phase.is_over}
    entries = store.ledger.entries(kind=LedgerEntryKind.METERED)
    metered = {(entry.attempt, entry.rank) for entry in entries if entry.what is CostItem.MACHINE}
    for attempt, rank in sorted(seen_machines.seen[store.id]):
        if attempt in over and (attempt, rank) not in metered:
            yield f"{attempt} rank {rank} ran and is not metered"
    # A busy machine may end a gang between two looks; the sandbox keeps the log of each machine that it started.
    runs = {attempt.id: site.home / "runs" / attempt.directory for attempt in attempts}
    logged = {
        (name, rank)
        for name, rank in metered
        if name in runs and (runs[name] / "nodes" / f"{name}-{rank}" / "log").exists()
    }
    never = Counter(attempt for attempt, _ in metered - seen_machines.begun[store.id] - logged)
    # One that was about to be started just when all was ended: nobody may have looked in between.
    yield from (f"{n} machines of {a} are metered and never were" for a, n in never.items() if n > 1 and not mute)


def _has_scripts(preview: Path) -> bool:
    """Whether a preview holds user data. One that was made after all was forgotten does not."""
    with zipfile.ZipFile(preview) as parts:
        return any(_IN_SCRIPTS in parts.read(name) for name in parts.namelist())


def _is_gone(node: NodeRecord) -> bool:
    return node.made_at is None or node.gone_at is not None


def _listed(directory: Path) -> list[int]:
    """Ranks whose process Terraform's state lists."""
    try:
        text = (directory / "terraform.tfstate").read_text()
    except FileNotFoundError:
        return []
    # Emptied by a fault when nothing needed it any more.
    state = json.loads(text or '{"resources": []}')
    return sorted(
        int(instance["index_key"])
        for resource in state["resources"]
        if resource["name"] == "process"
        for instance in resource["instances"]
    )


def _unless(fine: bool, what: str) -> Iterator[str]:
    if not fine:
        yield what
