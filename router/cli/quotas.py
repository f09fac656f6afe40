"""Command ``stepfare quotas``: list quotas and reserved capacity, also as a limits file for ``plan``."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Literal

import typer

from pricing.book import PriceBook
from pricing.units import format_count
from providers.errors import CredentialsError, PermissionDeniedError, ProviderError
from providers.protocol import AccountAllowances, CapacityReservation, Quota, QuotaUnit
from router.cli import console
from router.cli.console import ExitCode
from router.cli.offer_options import CloudOption, CloudsFileOption
from router.cli.options import parse_duration_option, parse_now
from router.cli.output_options import OUTPUT, OutOption
from router.render.record_table import RecordTable, TableColumn
from router.render.tables import Screen, wrap_text

_SCHEMA_HINT = "# yaml-language-server: $schema=docs/schema/limits.json\n"


QuotasFormat = Literal["table", "json", "limits"]


def quotas(
    cloud: CloudOption = None,
    clouds: CloudsFileOption = None,
    time_limit: Annotated[str, typer.Option(metavar="DURATION", help="Time limit.")] = "2m",
    now: Annotated[str | None, typer.Option(metavar="TIME", help="Date of the reading (ISO, with zone).")] = None,
    output: Annotated[QuotasFormat, OUTPUT] = "table",
    out: OutOption = None,
) -> ExitCode:
    """List the quotas of your accounts and the capacity they have reserved.

    What is read is stored with its time: `stepfare plan --quotas latest` takes it beside the limits file. `-o limits`
    writes it as a limits file to edit.

    \b
    stepfare quotas --cloud aws
    stepfare quotas && stepfare plan jobs/ --quotas latest
    stepfare quotas -o limits --out limits.yaml
    """
    from router.cli.cloud_options import select_clouds
    from router.prices.allowance_store import AllowanceStore
    from router.prices.bookstore import BookStore
    from router.prices.cloud_queries import query_allowances
    from router.prices.data_folders import allowances_folder, books_folder
    from router.prices.refresh import load_all_tables, load_base_book

    moment = parse_now(now).replace(microsecond=0)
    loaded, asked = select_clouds(cloud or [], clouds)
    limit = parse_duration_option("--time-limit", time_limit)
    assert limit is not None
    store = BookStore(books_folder())
    words = load_all_tables(store)
    with console.progress(f"asking {format_count(len(asked), 'cloud')}"):
        answers = query_allowances(tuple(asked), loaded, words, moment, limit.total_seconds())
    allowances_by_cloud = {name: one for name, one in answers.items() if isinstance(one, AccountAllowances)}
    errors = [(name, "", one) for name, one in answers.items() if isinstance(one, ProviderError)]
    errors += [(name, gap.subject, gap.error) for name, one in allowances_by_cloud.items() for gap in one.gaps]
    if allowances_by_cloud:
        AllowanceStore(allowances_folder()).add(moment, allowances_by_cloud)
    book = load_base_book(store)[0]
    console.write(_render(allowances_by_cloud, output, book, console.screen(file=out), moment), out)
    for name, subject, error in errors:
        if asked[name] or not (isinstance(error, CredentialsError) and error.none_found):
            console.note(wrap_text(f"{name}: {subject + ': ' if subject else ''}{error}"), "warning")
    missing = [error for name, _, error in errors if asked[name]]
    if any(isinstance(error, CredentialsError | PermissionDeniedError) for error in missing):
        return ExitCode.CREDENTIALS
    return ExitCode.PARTIAL if missing else ExitCode.OK


def _render(
    allowances: dict[str, AccountAllowances], output: QuotasFormat, book: PriceBook, screen: Screen, moment: datetime
) -> str:
    if output == "json":
        clouds = {
            name: {
                "read_at": moment.isoformat(),
                "quotas": [asdict(q) for q in one.quotas],
                "held": [asdict(h) for h in one.held],
            }
            for name, one in allowances.items()
        }
        document = {"schema_version": console.SCHEMA_VERSION, "clouds": clouds}
        return json.dumps(document, indent=2, default=str) + "\n"
    if output == "limits":
        import yaml

        from router.prices.read_limits import build_limits_file

        return _SCHEMA_HINT + yaml.safe_dump(
            build_limits_file(allowances, book), sort_keys=False, allow_unicode=True, width=120
        )
    rows = [quota for one in allowances.values() for quota in one.quotas]
    rows += [_as_quota(held) for one in allowances.values() for held in one.held]
    return (_QUOTAS.text(rows, screen) if rows else "no quota is known; `stepfare doctor` says what is missing") + "\n"


def _as_quota(held: CapacityReservation) -> Quota:
    """Return a reservation as a quota of its machines."""
    name, used = f"held: {held.name}, {held.instance_type}", held.machines - held.free
    return Quota(held.cloud, name, held.region, (), None, None, held.machines, used, QuotaUnit.MACHINES)


_QUOTAS: RecordTable[Quota] = RecordTable(
    (
        TableColumn("", lambda quota: quota.cloud, "CLOUD"),
        TableColumn("", lambda quota: quota.region or "everywhere", "REGION"),
        TableColumn("", lambda quota: quota.name, "QUOTA", width=40),
        TableColumn("", lambda quota: quota.amount, "AMOUNT", right=True),
        TableColumn("", lambda quota: quota.used, "USED", right=True, unknown="?"),
        TableColumn("", lambda quota: quota.unit.value, "UNIT"),
    )
)
