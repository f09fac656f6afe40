"""Commands ``stepfare ledger list``, ``add``, ``verify``, ``check`` and ``export``: whether all entries are intact."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pricing.money import Usd
from pricing.units import format_count
from router.cli import console
from router.cli.bills import report_corrections
from router.cli.console import CommandError, ExitCode
from router.cli.options import (
    DEFAULT_ROWS,
    AsOfOption,
    ListOutput,
    TableOutput,
    count_rows,
    option_error,
    parse_as_of,
    parse_month,
    parse_now,
    translate_closed_books,
)
from router.cli.site_options import DEFAULT_FILES, SettingsOptions, acting_user, open_state_store
from router.ledger.entry import LedgerEntry, LedgerEntryKind
from router.prices.data_folders import bills_folder, extract_folder
from router.render.record_table import RecordTable, TableColumn, attribute_columns, json_document
from router.render.tables import format_usd
from router.showback.report.values import replace_unprintable

if TYPE_CHECKING:
    from router.app.close_month import SealCheck
    from router.showback.focus.rules import FocusFinding
    from router.showback.focus.survey import FocusCheck
    from router.state.store import StateStore

    StoredEntry = tuple[LedgerEntry, dict[str, object]]
    from router.showback.accounts import Showback
    from router.showback.focus_from_ledger import UnpricedEntries


def add(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="YAML with `entries`, or CSV; see docs/ledger.md.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the file; write nothing.")] = False,
    settings_files: SettingsOptions = DEFAULT_FILES,
    now: Annotated[str | None, typer.Option(metavar="TIME", help="Time of the addition (ISO, with zone).")] = None,
) -> None:
    """Add entries by hand: support or reservation fees, credits, taxes, adjustments, corrections.

    Adding the same file again adds nothing. Each entry, and the audit log, records who added it and why.

    \b
    stepfare ledger add november.yaml
    stepfare ledger add fees.csv --dry-run
    """
    from router.config.added_file import read_added_entries

    moment = parse_now(now)
    entries = read_added_entries(file, acting_user(), moment)
    total = Usd.total(entry.usd for entry in entries)
    if dry_run:
        console.note(
            f"dry run: {format_count(len(entries), 'entry', 'entries')}, {format_usd(total)}; nothing was written"
        )
        return
    with open_state_store(settings_files) as (_, store), translate_closed_books():
        before = store.ledger.head()
        head = store.ledger.add(entries)
        new = head - before
        if new:
            store.audit.add(acting_user(), "ledger add", "", total, moment, file=file.name, entries=new, head=head)
    console.note(f"{new} of {len(entries)} entries are new; the ledger has {head}")


def list_entries(
    month: Annotated[
        str | None, typer.Option(metavar="2026-11", help="Only entries in the books of this month.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="Only this kind: planned, metered, fee, credit, tax or adjustment.")
    ] = None,
    team: Annotated[str | None, typer.Option(help="Only entries of this team.")] = None,
    job: Annotated[str | None, typer.Option(help="Only entries of this job.")] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=0, help=f"Entries to show, the latest ones; 0: all. Default: {DEFAULT_ROWS}, all for json and csv."
        ),
    ] = None,
    settings_files: SettingsOptions = DEFAULT_FILES,
    output: ListOutput = "table",
) -> None:
    """List the entries of the ledger: planned, metered and added by hand.

    Planned entries are whole lines of plans. `showback` counts them as far as the job's costs are known.

    \b
    stepfare ledger list --month 2026-11 --team research
    stepfare ledger list --kind metered -o csv
    """
    from router.state.ledger_rows import NAMES, entry_values

    period = None if month is None else parse_month("--month", month)
    if kind is not None and kind not in list(LedgerEntryKind):
        raise option_error("--kind", f"{kind!r} is none of {', '.join(LedgerEntryKind)}")
    wanted = None if kind is None else LedgerEntryKind(kind)
    with open_state_store(settings_files, makes=False) as (_, store):
        entries = store.ledger.entries(period=period, kind=wanted, team=team, job=job)
    count = count_rows(limit, machine_readable=output != "table")
    shown = entries[-count:] if count else entries
    rows: list[StoredEntry] = [(entry, dict(zip(NAMES, entry_values(entry), strict=True))) for entry in shown]
    console.print_table(output, "entries", _entry_table(NAMES), rows, "no entries")
    if len(shown) < len(entries):
        console.note(f"the last {len(shown)} of {len(entries)} entries; --limit 0 shows all")


def _entry_table(stored: Sequence[str]) -> RecordTable[StoredEntry]:
    """Return the table of entries; its fields are the ``stored`` ones of the database, with prices in dollars."""

    def field(name: str) -> TableColumn[StoredEntry]:
        if name == "unpriced":
            return TableColumn(name, lambda row: row[0].unpriced, csv=str)
        return TableColumn(name, lambda row: row[1][name])

    return RecordTable(
        (
            TableColumn("", lambda row: row[0].start, "START", "{:%Y-%m-%d %H:%M}".format),
            TableColumn("", lambda row: row[0].kind.value, "KIND"),
            TableColumn("", lambda row: row[0].use or row[0].what, "USE"),
            TableColumn("", lambda row: row[0].team, "TEAM"),
            TableColumn("", lambda row: row[0].job, "JOB"),
            TableColumn("", lambda row: row[0].cloud, "CLOUD"),
            TableColumn("", lambda row: row[0].hours or None, "HOURS", lambda hours: f"{float(hours):.2f}", right=True),
            TableColumn("", lambda row: "not known" if row[0].unpriced else format_usd(row[0].usd), "USD", right=True),
            *(field(name) for name in stored if not name.endswith("_nanos")),
            TableColumn("usd", lambda row: row[0].usd),
            TableColumn("usd_per_hour", lambda row: row[0].usd_per_hour),
        )
    )


_DECEMBER = 12


def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="CSV, CSV in gzip, or Parquet; FOCUS 1.0 to 1.4.")],
    closed_through: Annotated[
        str | None,
        typer.Option(
            metavar="MONTH", help="Last closed month, such as 2026-10: corrections of later months are errors."
        ),
    ] = None,
    max_findings: Annotated[
        int, typer.Option("--most", min=1, metavar="N", help="Findings to show per rule and column.")
    ] = 20,
    output: TableOutput = "table",
) -> ExitCode:
    """Validate a FOCUS Cost and Usage file against the rules of FOCUS and of the ledger.

    The file may be an export of this ledger or of a cloud.

    \b
    stepfare ledger check export.parquet
    stepfare ledger check bill.csv.gz --closed-through 2026-10 -o json

    Exit codes: 1 a rule is broken; 2 the file cannot be read.
    """
    from router.showback.focus.survey import check_file

    closed_until = None if closed_through is None else _after(closed_through)
    with console.progress("reading"):
        checked = check_file(file, closed_until, keep=max_findings)
    console.out(_as_json(checked) if output == "json" else _as_text(checked, str(file)))
    return ExitCode.FAILURE if checked.total else ExitCode.OK


def _after(month: str) -> datetime:
    try:
        start = datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC)
    except ValueError:
        raise option_error("--closed-through", f"{month!r} is not a month", "write 2026-10") from None
    if start.month == _DECEMBER:
        return start.replace(year=start.year + 1, month=1)
    return start.replace(month=start.month + 1)


def _as_text(checked: FocusCheck, path: str) -> str:
    lines = []
    for each in checked.findings:
        row = f" (row {each.row:,})" if each.line is not None else ""
        lines.append(f"{each.place(path)}{row}: {replace_unprintable(each.column)} {each.what}")
        lines.append(f"    {each.rule}: {each.why}")
    hidden = checked.total - len(checked.findings)
    if hidden:
        lines.append(f"... and {hidden:,} more of the same kinds; --most shows more of each")
    result = format_count(checked.total, "finding") if checked.total else "every rule is kept"
    lines.append(f"{path}: FOCUS {checked.version}, {format_count(checked.rows, 'row')}: {result}")
    return "\n".join(lines)


def _as_json(checked: FocusCheck) -> str:
    counts = [{"rule": rule, "column": column, "count": count} for (rule, column), count in checked.counts.items()]
    document = {
        "file": checked.name,
        "focus_version": checked.version,
        "rows": checked.rows,
        "total": checked.total,
        "counts": counts,
        "findings": _FINDINGS.records(checked.findings),
    }
    return json_document(document)


_FINDINGS: RecordTable[FocusFinding] = RecordTable(
    attribute_columns("rule", "row", "line", "column", "value", "what", "why")
)


def verify(
    archive: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Verify this archive of the ledger, entry by entry.")
    ] = None,
    settings_files: SettingsOptions = DEFAULT_FILES,
) -> None:
    """Verify the hash chain of the ledger, and the bills, budgets and report that each closed month was sealed with.

    Closed months are compared with the audit log and with the closings that later entries name, so that a closing that
    was deleted is found. The exit code is 1 if anything was changed. Entries missing at the end show only in the
    printed hash: compare it with one that was noted elsewhere. The second hash is that of the last seal.

    \b
    stepfare ledger verify
    stepfare ledger verify --archive books-2024.gz
    """
    from router.files.missing_file import check_file

    if archive is not None:
        check_file(archive)
    with open_state_store(settings_files, makes=False) as (_, store):
        if archive is not None:
            copy = store.archives.check(archive)
            entries = format_count(copy.entries, "entry", "entries")
            console.note(f"{archive}: {entries} of months before {copy.before}, as they were archived")
            return
        checked = store.ledger.verify()
        if checked.problems:
            raise CommandError("\n".join(checked.problems), remedy="compare with a backup: `stepfare ledger restore`")
        seals = _check_seals(store)
        check_closings(store)
    archived = f", {checked.archived} of them archived" if checked.archived else ""
    entries = format_count(checked.entries + checked.archived, "entry", "entries")
    console.note(f"{entries}{archived}, each as it was written; the last one's hash:")
    for each in seals:
        for note in each.notes:
            console.note(note, "warning")
        contents = each.closing.sealed
        if not each.notes:
            bills, budgets = (
                format_count(len(contents["bills"]), "bill"),
                format_count(len(contents["spent"]), "budget"),
            )
            console.note(f"{each.closing.period}: {bills}, {budgets} and the report are those that it was closed with")
    console.out(checked.hash)
    if seals:
        console.out(seals[-1].closing.seal_hash)


def check_closings(store: StateStore) -> None:
    """Raise CommandError where a closing that the audit log knows is gone or changed; note one it does not know."""
    from router.state.periods import CLOSE_ACTION, compare_closings

    found = compare_closings(store.periods.closings(), store.audit.entries(CLOSE_ACTION))
    if found.problems:
        raise CommandError("\n".join(found.problems), remedy="compare with a backup: `stepfare ledger restore`")
    for note in found.notes:
        console.note(note, "warning")


def _check_seals(store: StateStore) -> tuple[SealCheck, ...]:
    from router.app.close_month import check_seals

    if not any(closing.seal for closing in store.periods.closings()):
        return ()
    with console.progress("looking at seals"):
        checks = check_seals(store, extract_folder(), bills_folder())
    problems = [problem for each in checks for problem in each.problems]
    if problems:
        remedy = "bring the folders of the bills and the state back from a backup"
        raise CommandError("\n".join(problems), remedy=remedy)
    return checks


_ENDINGS = (".csv", ".parquet")
FocusVersion = Literal["1.4", "1.2"]


def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write, ending in .csv or .parquet.")],
    month: Annotated[
        str | None, typer.Option(metavar="2026-11", help="Only charges in the books of this month.")
    ] = None,
    focus_version: Annotated[FocusVersion, typer.Option(help="FOCUS version.")] = "1.4",
    accounts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with the billed accounts; see `schema showback`.")
    ] = None,
    now: AsOfOption = None,
    settings_files: SettingsOptions = DEFAULT_FILES,
) -> None:
    """Export the charges of a month as a FOCUS file for finance tools.

    The file holds the rows of current bills, metered costs that are on no bill, and entries added by hand, as
    `showback` counts them; x_RecordState tells them apart. Planned costs are no charges. Entries without a known price
    are left out and listed. The file is written atomically, replaces one of the same name, and is identical for
    identical books.

    \b
    stepfare ledger export november.parquet --month 2026-11
    stepfare ledger export november.csv --accounts showback.yaml
    stepfare ledger export all.csv --focus-version 1.2
    """
    moment = parse_now(now)
    period = None if month is None else parse_month("--month", month)
    if file.suffix.lower() not in _ENDINGS:
        what = f"{file.name!r} ends neither in {' nor in '.join(_ENDINGS)}"
        raise option_error("FILE", what, "the ending says which form is written")
    account_names = _read_accounts(accounts)
    with open_state_store(settings_files, makes=False) as (_, store), console.progress("writing"):
        from router.app.export import BooksExportRequest, export_books

        report_corrections(store, period)
        wanted = BooksExportRequest(
            path=file, version=focus_version, accounts=account_names, month=period, as_of=parse_as_of(now)
        )
        try:
            exported = export_books(store, wanted, extract_folder(), bills_folder())
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise CommandError(f"{file}: cannot be written: {why}", remedy="make room, or name another file") from None
        archives = store.archives.all()
    noun = "charge" if exported.charges == 1 else "charges"
    console.note(f"{file}: {exported.charges:,} {noun}, FOCUS {focus_version}")
    if archives and (period is None or period < archives[-1].before):
        names = ", ".join(one.file for one in archives)
        console.note(f"left out, for they are archived ({names}): months before {archives[-1].before}", "warning")
    for line in unpriced_lines(exported.unpriced):
        console.note(line, "warning")
    if accounts is None and exported.charges:
        console.note("accounts are written as __unknown__: name them with --accounts (`schema showback`)", "warning")
    if period is not None and moment < period.ends:
        console.note(f"{period} is not over: what runs now is not in it yet")


def unpriced_lines(unpriced: UnpricedEntries) -> list[str]:
    """Return a line for each kind of entry that the file leaves out for want of a price."""
    return [
        f"left out, for nobody knows its price: {what.value}, "
        f"{count:,} {'entry' if count == 1 else 'entries'}, "
        f"{float(unpriced.quantities[what, unit]):,.2f} {unit}".rstrip()
        for (what, unit), count in sorted(unpriced.entries.items())
    ]


def _read_accounts(accounts: Path | None) -> Showback:
    from router.config.document_file import read_single_document
    from router.showback.accounts import Showback

    return Showback() if accounts is None else read_single_document(accounts, Showback)
