"""``stepfare bills restore`` and ``remove``: which version of a bill counts, as a person decides it."""

from __future__ import annotations

import os
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pricing.problems import InvalidInputError
from router.cli import console
from router.cli.console import ExitCode
from router.cli.options import moment_of_planning
from router.cli.site_options import CLOUDS_HELP, DEPLOY_HELP, opened_store, who

if TYPE_CHECKING:
    from router.showback.bills import Deed, Standing
    from router.state.store import Store

Identity = Annotated[str, typer.Argument(metavar="ID", help="As `bills list --all` shows it; four digits or more.")]
DeployFile = Annotated[Path | None, typer.Option(metavar="FILE", help=DEPLOY_HELP)]
CloudsFile = Annotated[Path | None, typer.Option(metavar="FILE", help=CLOUDS_HELP)]
Now = Annotated[str | None, typer.Option(metavar="TIME", help="Date the decision (ISO, with zone).")]


def restore(
    identity: Identity,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for the audit log.")] = "",
    deploy: DeployFile = None,
    clouds: CloudsFile = None,
    now: Now = None,
) -> ExitCode:
    """Bring an earlier version of a bill back: it counts again, in the place of the one that stands. Nothing is
    deleted, and who did it stands in the audit log.

    \b
    stepfare bills list --all
    stepfare bills restore 2aed --reason "the copy of 3 December was cut off"

    Exit codes: 0; 2 no such bill, or it stands already.
    """
    from router.showback.bills import Deed

    first, *others = _decide(Deed.RESTORE, identity, reason, deploy, clouds, now)
    _say(first, "stands again")
    for each in others:
        if each.replaced_by == first.bill.id:
            _say(each, "stands no more")
    return ExitCode.OK


def remove(
    identity: Identity,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for the audit log.")],
    deploy: DeployFile = None,
    clouds: CloudsFile = None,
    now: Now = None,
) -> ExitCode:
    """Take a bill away that should not count. Its rows are kept, no earlier version takes its place, and
    `bills restore` or importing it again brings it back. Who did it and why stands in the audit log.

    \b
    stepfare bills remove 2aed --reason "another company's account"

    Exit codes: 0; 2 no such bill, or it does not stand.
    """
    from router.showback.bills import Deed

    if not reason.strip():
        raise InvalidInputError.single("is empty", field="--reason", remedy="say why: it stands in the audit log")
    first, *_ = _decide(Deed.REMOVE, identity, reason, deploy, clouds, now)
    _say(first, "stands no more")
    console.note(f"`stepfare bills restore {first.bill.id}`, or an earlier version's id, brings one back")
    return ExitCode.OK


def _decide(
    what: Deed, identity: str, reason: str, deploy: Path | None, clouds: Path | None, now: str | None
) -> tuple[Standing, ...]:
    from pricing.money import ZERO
    from router.prices.home import bills_folder
    from router.showback.bill_store import BillStore

    moment, bills = moment_of_planning(now), BillStore(bills_folder())
    with opened_store(deploy, clouds) as (_, store):
        found = bills.decide(what, identity, reason, who(), moment)
        bill = found[0].bill
        store.audit(
            who(),
            f"bills {what}",
            bill.sha256,
            ZERO,
            moment,
            bill=bill.id,
            reason=reason,
            rows=bill.rows,
            sums=bill.sums,
        )
        say_corrections(store)
    return found


def correct_closed(deploy: Path | None, clouds: Path | None) -> None:
    """After bills changed: books what that changes in closed months. Without a state no month is closed."""
    from router.app.settings import Files, read_files
    from router.cli.console import CommandError

    if not read_files(Files(deploy, clouds), dict(os.environ)).has_state:  # noqa: TID251
        return
    try:
        with opened_store(deploy, clouds) as (_, store):
            say_corrections(store)
    except CommandError as error:
        told = "whether closed months are corrected is not known; the next `showback` books it"
        console.note(f"{told}: {error}", "warning")


def say_corrections(store: Store) -> None:
    """Books what bills that changed change in closed months, and says so."""
    from pricing.money import ZERO
    from router.app.bill_views import seals
    from router.prices.home import bills_folder, extract_folder

    if not seals(store):
        return
    from router.app.corrections import book_corrections

    done = book_corrections(store, extract_folder(), bills_folder(), who())
    if done is None:
        return
    at = datetime.fromisoformat(done.at)
    store.audit(
        who(),
        "bills correction",
        done.sha256,
        ZERO,
        at,
        correction=done.id,
        corrects=list(done.corrects),
        period=done.period,
        amounts=done.amounts,
        reason=done.reason,
    )
    if not done.rows:
        console.note("closed months come to the same: nothing is to be corrected")
    for currency, sums in done.amounts.items():
        amount = Decimal(sums["effective"])
        console.note(
            f"{' and '.join(done.corrects)} {'is' if len(done.corrects) == 1 else 'are'} closed and not changed: a "
            f"correction of {amount:+,.2f} {currency}, dated {at:%Y-%m-%d}, stands in {done.period}"
        )


def _say(standing: Standing, what: str) -> None:
    from router.render.bills_text import sums_of, whose

    bill = standing.bill
    console.note(f"{bill.id} {what} ({whose(bill)}): {sums_of(bill)}")
