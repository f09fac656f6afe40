"""Commands ``stepfare bills restore`` and ``remove``: choose by hand which version of a bill counts."""

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
from router.cli.options import parse_now
from router.cli.site_options import CLOUDS_HELP, DEPLOY_HELP, acting_user, open_state_store

if TYPE_CHECKING:
    from router.showback.bills import BillDecisionKind, BillStanding
    from router.state.store import StateStore

Identity = Annotated[str, typer.Argument(metavar="ID", help="ID as `bills list --all` shows it; four digits or more.")]
DeployFile = Annotated[Path | None, typer.Option(metavar="FILE", help=DEPLOY_HELP)]
CloudsFile = Annotated[Path | None, typer.Option(metavar="FILE", help=CLOUDS_HELP)]
Now = Annotated[str | None, typer.Option(metavar="TIME", help="Time of the decision (ISO, with zone).")]


def restore(
    identity: Identity,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Reason, for the audit log.")] = "",
    deploy: DeployFile = None,
    clouds: CloudsFile = None,
    now: Now = None,
) -> ExitCode:
    """Restore an earlier version of a bill, which then replaces the current one.

    Nothing is deleted, and the audit log records who restored it.

    \b
    stepfare bills list --all
    stepfare bills restore 2aed --reason "the copy of 3 December was cut off"

    Exit codes: 0; 2 no such bill, or it is in force already.
    """
    from router.showback.bills import BillDecisionKind

    first, *others = _decide(BillDecisionKind.RESTORE, identity, reason, deploy, clouds, now)
    _say(first, "stands again")
    for each in others:
        if each.replaced_by == first.bill.id:
            _say(each, "stands no more")
    return ExitCode.OK


def remove(
    identity: Identity,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Reason, for the audit log.")],
    deploy: DeployFile = None,
    clouds: CloudsFile = None,
    now: Now = None,
) -> ExitCode:
    """Remove a bill that should not count.

    Its rows stay stored and no earlier version replaces it. `bills restore`, or importing it again, brings it back. The
    audit log records who removed it and why.

    \b
    stepfare bills remove 2aed --reason "another company's account"

    Exit codes: 0; 2 no such bill, or it is not in force.
    """
    from router.showback.bills import BillDecisionKind

    if not reason.strip():
        raise InvalidInputError.single("is empty", field="--reason", remedy="say why: it stands in the audit log")
    first, *_ = _decide(BillDecisionKind.REMOVE, identity, reason, deploy, clouds, now)
    _say(first, "stands no more")
    console.note(f"`stepfare bills restore {first.bill.id}`, or an earlier version's id, brings one back")
    return ExitCode.OK


def _decide(
    what: BillDecisionKind, identity: str, reason: str, deploy: Path | None, clouds: Path | None, now: str | None
) -> tuple[BillStanding, ...]:
    from pricing.money import ZERO
    from router.prices.data_folders import bills_folder
    from router.showback.bill_store import BillStore

    moment, bills = parse_now(now), BillStore(bills_folder())
    with open_state_store(deploy, clouds) as (_, store):
        standings = bills.decide(what, identity, reason, acting_user(), moment)
        bill = standings[0].bill
        store.audit.add(
            acting_user(),
            f"bills {what}",
            bill.sha256,
            ZERO,
            moment,
            bill=bill.id,
            reason=reason,
            rows=bill.rows,
            sums=bill.sums,
        )
        report_corrections(store)
    return standings


def correct_closed_months(deploy: Path | None, clouds: Path | None) -> None:
    """Book corrections of closed months after bills changed.

    Without a state no month is closed, and nothing is done. Errors of the state are only reported.
    """
    from router.app.settings import SettingsFiles, read_settings
    from router.cli.console import CommandError

    if not read_settings(SettingsFiles(deploy, clouds), dict(os.environ)).has_state:  # noqa: TID251
        return
    try:
        with open_state_store(deploy, clouds) as (_, store):
            report_corrections(store)
    except CommandError as error:
        what = "whether closed months are corrected is not known; the next `showback` books it"
        console.note(f"{what}: {error}", "warning")


def report_corrections(store: StateStore) -> None:
    """Book corrections for closed months whose bills changed, and report them."""
    from pricing.money import ZERO
    from router.app.bill_views import seals
    from router.prices.data_folders import bills_folder, extract_folder

    if not seals(store):
        return
    from router.app.corrections import book_corrections

    booked = book_corrections(store, extract_folder(), bills_folder(), acting_user())
    if booked is None:
        return
    at = datetime.fromisoformat(booked.at)
    store.audit.add(
        acting_user(),
        "bills correction",
        booked.sha256,
        ZERO,
        at,
        correction=booked.id,
        corrects=list(booked.corrects),
        period=booked.period,
        amounts=booked.amounts,
        reason=booked.reason,
    )
    if not booked.rows:
        console.note("closed months come to the same: nothing is to be corrected")
    for currency, sums in booked.amounts.items():
        amount = Decimal(sums["effective"])
        console.note(
            f"{' and '.join(booked.corrects)} {'is' if len(booked.corrects) == 1 else 'are'} closed and not changed: a "
            f"correction of {amount:+,.2f} {currency}, dated {at:%Y-%m-%d}, stands in {booked.period}"
        )


def _say(standing: BillStanding, what: str) -> None:
    from router.render.bills_text import describe_bill, format_sums

    bill = standing.bill
    console.note(f"{bill.id} {what} ({describe_bill(bill)}): {format_sums(bill)}")
