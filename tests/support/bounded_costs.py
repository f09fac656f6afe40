"""Checks that hold for every order however it ends: its cost, its ledger, its machines and its secrets."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from pricing.money import Usd
from router.ledger.entry import LedgerEntryKind
from router.state.records import Attempt
from tests.support.busy import on_a_busy_machine
from tests.support.deployed import Site
from tests.support.deployed_checks import disagreements
from tests.support.recovered import attempts
from tests.support.seen_machines import settled

# Stacks, saving, making and releasing take so much of life for each gang, in seconds.
_HANDLING_S = 30.0


def metered(site: Site) -> Usd:
    """The cost of the job in the ledger."""
    with site.store() as store:
        return Usd.total(entry.usd for entry in store.ledger.entries(kind=LedgerEntryKind.METERED))


def ceiling(all_attempts: tuple[Attempt, ...], margin: timedelta, *, speed: int = 1) -> Usd:
    """The agreed cost, and for each attempt what its gang costs in the margin; ``speed``: of the clock of the cloud."""
    margin += timedelta(seconds=speed * on_a_busy_machine(_HANDLING_S))
    return all_attempts[0].at_risk_usd + Usd.total(one.max_usd_per_hour.over(margin) for one in all_attempts)


def excesses(site: Site, margin: timedelta, *secrets: str, speed: int = 1) -> Iterator[str]:
    """Whatever an order cost, left running or gave away that it must not; nothing where all is well."""
    found = attempts(site)
    spent, most = metered(site), ceiling(found, margin, speed=speed)
    if spent > most:
        yield f"it cost {spent}, agreed and margin are {most}"
    if not spent.nanos and any(one.met_at is not None for one in found):
        yield "nothing was metered"
    yield from (f"a machine is left: {one}" for one in settled(site.state))
    yield from disagreements(site)
    verified = site.run("ledger", "verify")
    if verified.code:
        yield f"the ledger: {verified.err}"
    for secret in secrets:
        files = (file for file in site.folder.rglob("*") if file.is_file())
        yield from (f"{file} has a secret" for file in files if secret.encode() in file.read_bytes())
