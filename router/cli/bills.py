"""Commands ``stepfare bills import``, ``list``, ``show``, ``restore`` and ``remove``: the imported bills."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pricing.money import ZERO
from pricing.problems import InvalidInputError
from pricing.units import format_count
from router.cli import console
from router.cli.console import CommandError
from router.cli.options import TableOutput, option_error, parse_now
from router.cli.site_options import DEFAULT_FILES, SettingsOptions, acting_user, open_state_store, read_own_settings
from router.prices.data_folders import bills_folder, check_home, extract_folder
from router.render.bills_text import as_record, describe_bill, fall_lines, format_sums, gap_lines, table
from router.render.record_table import json_document
from router.showback.bills import (
    BillDecisionKind,
    BillDecrease,
    BillStanding,
    DeliveryKind,
    ImportedBill,
    find_decreases,
)
from router.showback.report.values import replace_unprintable

if TYPE_CHECKING:
    from router.ledger.month import Month
    from router.showback.bill_import import BillImport
    from router.showback.bill_store import BillStore
    from router.state.store import StateStore


def open_bill_store() -> BillStore:
    """Return the store of imported bills."""
    from router.showback.bill_store import BillStore

    return BillStore(bills_folder())


def list_bills(
    everything: Annotated[bool, typer.Option("--all", help="Include bills that were replaced or removed.")] = False,
    output: TableOutput = "table",
) -> None:
    """List the imported bills that are in force, the oldest import first, one line per currency.

    \b
    stepfare bills list
    stepfare bills list --all -o json
    """
    check_home()
    store = open_bill_store()
    standings = [each for each in store.bills() if everything or each.stands]
    if not everything:
        _note_removed(store)
    if output == "json":
        records = [as_record(each) for each in standings]
        text = {"folder": str(store.folder), "bills": records}
        console.out(json_document(text))
    elif standings:
        console.out(table(standings, console.screen()))
    else:
        console.note("no bill is stored: `stepfare bills import FILE` takes one in")


def _note_removed(store: BillStore) -> None:
    for each in store.bills():
        if each.removed is not None:
            console.note(
                f"removed at {each.removed.at}, and no other stands: {each.bill.id} ({describe_bill(each.bill)})"
            )


def show(
    identity: Annotated[str, typer.Argument(metavar="ID", help="ID as `bills list` shows it; four digits or more.")],
    output: TableOutput = "table",
) -> None:
    """Show one bill: its exact sums, its files, what those lack, and whether its rows are unchanged.

    \b
    stepfare bills show 2aedf2e8d27c
    stepfare bills show 2aed -o json

    The exit code is 1 if the stored rows were changed.
    """
    store = open_bill_store()
    standing = store.find(identity)
    bill, delivery, whole = standing.bill, standing.delivery, store.whole(standing)
    if output == "json":
        record = {
            **as_record(standing),
            "whole": whole,
            "parquet": str(store.path(standing)),
            "files": [asdict(each) for each in delivery.sources],
            "gaps": [asdict(each) for each in delivery.gaps],
        }
        console.out(json_document(record))
    else:
        console.out(
            f"{bill.id}  {replace_unprintable(bill.issuer or 'issuer unknown')}, "
            f"{replace_unprintable(bill.account or 'account unknown')}"
        )
        console.out(f"billing period  {bill.start or 'unknown'} to {bill.end or 'unknown'}")
        console.out(f"rows            {bill.rows:,}, usage through {bill.data_through or 'unknown'}")
        for currency, sums in bill.sums.items():
            amounts = ", ".join(f"{name} {amount or 'unknown'}" for name, amount in sums.items())
            console.out(f"{replace_unprintable(currency) or 'no currency'}  {amounts}")
        for source in delivery.sources:
            rows = format_count(source.rows, "row")
            console.out(f"from {replace_unprintable(source.name)}: FOCUS {source.version}, {source.form}, {rows}")
        console.out(f"imported at {delivery.imported_at}; rows in {store.path(standing)}")
        for word, other in (("replaces", standing.replaces), ("replaced by", standing.replaced_by)):
            if other is not None:
                console.out(f"{word} {other}")
        if standing.removed is not None:
            removal = standing.removed
            console.out(
                f"removed by {replace_unprintable(removal.who)} at {removal.at}: {replace_unprintable(removal.reason)}"
            )
        for line in gap_lines(delivery.gaps):
            console.out(line)
    if not whole:
        raise console.CommandError(
            f"{store.path(standing)}: its rows are gone, or not those that were stored",
            remedy="bring the folder back from a backup",
        )


Identity = Annotated[str, typer.Argument(metavar="ID", help="ID as `bills list --all` shows it; four digits or more.")]
Now = Annotated[str | None, typer.Option(metavar="TIME", help="Time of the decision (ISO, with zone).")]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Reason, for the audit log.")]


def restore(
    identity: Identity,
    reason: Reason = "",
    settings_files: SettingsOptions = DEFAULT_FILES,
    now: Now = None,
) -> None:
    """Restore an earlier version of a bill, which then replaces the current one.

    Nothing is deleted, and the audit log records who restored it.

    \b
    stepfare bills list --all
    stepfare bills restore 2aed --reason "the copy of 3 December was cut off"

    Exit codes: 0; 2 no such bill, or it is in force already.
    """
    first, *others = _decide(BillDecisionKind.RESTORE, identity, reason, settings_files, now)
    _say(first, "stands again")
    for each in others:
        if each.replaced_by == first.bill.id:
            _say(each, "stands no more")


def remove(
    identity: Identity,
    reason: Reason,
    settings_files: SettingsOptions = DEFAULT_FILES,
    now: Now = None,
) -> None:
    """Remove a bill that should not count.

    Its rows stay stored and no earlier version replaces it. `bills restore`, or importing it again, brings it back. The
    audit log records who removed it and why.

    \b
    stepfare bills remove 2aed --reason "another company's account"

    Exit codes: 0; 2 no such bill, or it is not in force.
    """
    if not reason.strip():
        raise option_error("--reason", "is empty", "say why: it stands in the audit log")
    first, *_ = _decide(BillDecisionKind.REMOVE, identity, reason, settings_files, now)
    _say(first, "stands no more")
    console.note(f"`stepfare bills restore {first.bill.id}`, or an earlier version's id, brings one back")


def duplicates(
    issuer: Annotated[str | None, typer.Argument(metavar="[ISSUER]", help="Issuer as `bills list` shows it.")] = None,
    allow: Annotated[
        bool | None, typer.Option("--permit/--refuse", help="Accept charges that occur twice, or refuse them again.")
    ] = None,
    reason: Reason = "",
    output: TableOutput = "table",
    settings_files: SettingsOptions = DEFAULT_FILES,
    now: Now = None,
) -> None:
    """List charges that two bills in force share, or keep a rule for an issuer whose duplicates are meant.

    A charge is shared if resource, time, meter and amount are the same. An import with rows that occur twice, or with
    charges of another bill, is refused unless the issuers of both are allowed.

    \b
    stepfare bills duplicates
    stepfare bills duplicates Oracle --permit --reason "equal lines of one hour"
    stepfare bills duplicates Oracle --refuse --reason "no longer so"
    """
    from router.showback.duplicates import describe_shared, find_shared_charges

    bills, moment = open_bill_store(), parse_now(now)
    if (issuer is None) is not (allow is None):
        what = "is missing" if allow is None else "needs an ISSUER"
        raise option_error("--permit", what, "give ISSUER and --permit, ISSUER and --refuse, or none")
    if issuer is not None and allow is not None:
        if not reason.strip():
            raise option_error("--reason", "is empty", "say why: it stands in the audit log")
        with open_state_store(settings_files) as (_, store):
            rule = bills.set_rule(issuer, reason, acting_user(), moment, allowed=allow)
            what = f"bills duplicates {'allow' if allow else 'refuse'}"
            store.audit.add(acting_user(), what, "", ZERO, moment, issuer=issuer, reason=reason)
        console.note(f"charges that occur twice are {'accepted' if rule.allowed else 'refused'} for {issuer!r}")
        return
    shared = find_shared_charges({}, {bills.path(each): each.bill for each in bills.standing()})
    if output == "json":
        record = {
            "shared": [
                {
                    "bills": [each.earlier.id, each.later.id],
                    "rows": each.rows,
                    "billed": {currency: str(amount) for currency, amount in each.billed.items()},
                }
                for each in shared
            ],
            "rules": [asdict(each) for each in bills.rules()],
        }
        console.out(json_document(record))
        return
    for each in shared:
        console.out(f"{each.later.id} has {describe_shared(each)}")
    for rule in bills.rules():
        console.out(f"{rule.issuer!r}: {'accepted' if rule.allowed else 'refused'} since {rule.at}: {rule.reason}")
    if not shared:
        console.note("no two bills in force share a charge")


def _decide(
    what: BillDecisionKind, identity: str, reason: str, settings_files: SettingsOptions, now: str | None
) -> tuple[BillStanding, ...]:

    moment, bills = parse_now(now), open_bill_store()
    with open_state_store(settings_files) as (_, store):
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


def correct_closed_months(settings_files: SettingsOptions) -> None:
    """Book corrections of closed months after bills changed.

    Without a state no month is closed, and nothing is done. Errors of the state are only reported.
    """
    if not read_own_settings(settings_files).has_state:
        return
    try:
        with open_state_store(settings_files) as (_, store):
            report_corrections(store)
    except CommandError as error:
        what = "whether closed months are corrected is not known; the next `showback` books it"
        console.note(f"{what}: {error}", "warning")


def report_corrections(store: StateStore, month: Month | None = None) -> None:
    """Book corrections for closed months whose bills changed, and report them.

    InvalidInputError where a bill cannot be read; it is only reported for a sealed ``month``, which does not need it.
    """
    from router.app.bill_views import is_sealed, seals

    if not seals(store):
        return
    from router.app.close_month import book_and_log_corrections

    try:
        booked = book_and_log_corrections(store, extract_folder(), bills_folder(), acting_user())
    except InvalidInputError as error:
        if month is None or not is_sealed(store, month):
            raise
        console.note(f"whether closed months are corrected is not known: {error}", "warning")
        return
    if booked is None:
        return
    at = datetime.fromisoformat(booked.at)
    if not booked.rows:
        console.note("closed months come to the same: nothing is to be corrected")
    for currency, sums in booked.amounts.items():
        amount = Decimal(sums["effective"])
        console.note(
            f"{' and '.join(booked.corrects)} {'is' if len(booked.corrects) == 1 else 'are'} closed and not changed: a "
            f"correction of {amount:+,.2f} {currency}, dated {at:%Y-%m-%d}, stands in {booked.period}"
        )


def _say(standing: BillStanding, what: str) -> None:
    bill = standing.bill
    console.note(f"{bill.id} {what} ({describe_bill(bill)}): {format_sums(bill)}")


def import_files(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="CSV, gzip, Parquet, zip; a folder of them, or a cloud's manifest."),
    ],
    kind: Annotated[
        DeliveryKind | None,
        typer.Option("--as", help="A further part of the bill in force, or a version that replaces it."),
    ] = None,
    output: TableOutput = "table",
    now: Annotated[str | None, typer.Option(metavar="TIME", help="Time of the import (ISO, with zone).")] = None,
    settings_files: SettingsOptions = DEFAULT_FILES,
) -> None:
    """Import bills: FOCUS 1.0 to 1.4 Cost and Usage, as AWS, Google Cloud, Azure and others export it.

    The files of one command are one delivery: give all parts of a bill at once, their folder, or the manifest that the
    cloud wrote. A bill replaces the one with the same issuer, account and billing period; importing the same bill again
    changes nothing. Without a manifest, a delivery with less than half of the lines in force asks what it is (--as).
    Rows or sums that fall are reported with both figures; duplicate rows, and charges of another bill, are refused.
    Columns that a file lacks or writes differently from FOCUS are listed and never invented. Changes to a closed month
    are booked as a correction in an open one. See docs/bills.md.

    \b
    stepfare bills import aws-2026-11.csv.gz
    stepfare bills import exports/focus/BILLING_PERIOD=2026-11/Manifest.json
    stepfare bills import azure/part-0.parquet azure/part-1.parquet -o json
    """
    from router.showback.bill_import import UnclearDeliveryError, import_bills

    store, moment = open_bill_store(), parse_now(now)

    def take(kind: DeliveryKind | None) -> BillImport:
        with console.progress("reading"):
            return import_bills(files, store, moment, kind=kind)

    try:
        imported = take(kind)
    except UnclearDeliveryError as error:
        imported = take(_ask_kind(error))
    all_bills = store.bills()
    standings = [each for each in all_bills if each.bill.id in imported.delivery.concerned]
    changed = [each for each in standings if imported.new and each.bill.id not in imported.delivery.same]
    falls = list(_find_falls(changed, all_bills))
    if output == "json":
        record = {
            "new": imported.new,
            "bills": [as_record(each) for each in standings],
            "files": [asdict(each) for each in imported.delivery.sources],
            "gaps": [asdict(each) for each in imported.delivery.gaps],
            "stands_again": list(imported.delivery.again),
            "unchanged": list(imported.delivery.same) if imported.new else sorted(imported.delivery.concerned),
            "fell": [
                {"bill": bill.id, "replaces": before.id, **asdict(each)}
                for before, bill, fallen in falls
                for each in fallen
            ],
            "rows_twice": 0 if imported.twice is None else imported.twice.rows,
            "joined": list(imported.joined),
            "unread": [str(path) for path in imported.unread],
        }
        console.out(json_document(record))
    else:
        if standings:
            console.out(table(standings, console.screen()))
        for line in gap_lines(imported.delivery.gaps) if imported.new else ():
            console.out(line)
    _report(imported, standings, changed)
    for before, bill, fallen in falls:
        _warn(before, bill, fallen)
    if imported.new:
        correct_closed_months(settings_files)
    if imported.new and output == "table":
        console.note(f"stored in {store.folder}")


def _ask_kind(error: InvalidInputError) -> DeliveryKind:
    """Ask what the delivery is. Raises the error where nobody can be asked, or for any other answer."""
    if not sys.stdin.isatty():
        raise error
    for problem in error.problems:
        console.note(f"{problem.where} {problem.what}")
    answer = console.ask_text("a further part of the bill, a version that takes its place, or neither?", "neither")
    if answer not in list(DeliveryKind):
        raise error
    return DeliveryKind(answer)


def _find_falls(
    changed: list[BillStanding], all_bills: tuple[BillStanding, ...]
) -> Iterator[tuple[ImportedBill, ImportedBill, tuple[BillDecrease, ...]]]:
    """Yield each bill that replaced one with higher figures: the earlier bill, the new bill, the figures that fell."""
    bills = {each.bill.id: each.bill for each in all_bills}
    for each in changed:
        if each.replaces is not None and (fallen := find_decreases(bills[each.replaces], each.bill)):
            yield bills[each.replaces], each.bill, fallen


def _report(imported: BillImport, standings: list[BillStanding], changed: list[BillStanding]) -> None:
    from router.showback.duplicates import describe_duplicates

    if imported.unread:
        count = format_count(len(imported.unread), "file")
        console.note(f"{count} not read, for no current manifest names them, first {imported.unread[0]}", "warning")
    if not imported.new:
        at = max((each.delivery.imported_at for each in standings), default=imported.delivery.imported_at)
        console.note(f"nothing changed: this was imported at {at}, and stands")
        return
    for each in changed:
        if each.bill.id in imported.delivery.again:
            at = each.delivery.imported_at
            console.note(f"{each.bill.id} stands again, as imported at {at}: {format_sums(each.bill)}")
        if each.replaces is not None:
            verb = "holds the rows of" if each.replaces in imported.joined else "replaces"
            console.note(f"{each.bill.id} {verb} {each.replaces}")
    for identity in imported.delivery.same:
        console.note(f"{identity} stands as it did")
    if imported.twice is not None:
        console.note(f"taken as they are: {describe_duplicates(imported.twice)}", "warning")


def _warn(before: ImportedBill, bill: ImportedBill, falls: tuple[BillDecrease, ...]) -> None:
    for line in fall_lines(before, bill, falls):
        console.note(line, "warning")
    console.note(f"where that is wrong: `stepfare bills restore {before.id}` brings the earlier bill back", "warning")
