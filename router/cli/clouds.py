"""Commands that ask clouds: ``stepfare stock``, ``quotas`` and ``doctor``, and the choice of clouds to ask."""

from __future__ import annotations

import json
import textwrap
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from pricing.book import PriceBook
from pricing.places import SIMULATED_CLOUDS, Market
from pricing.units import format_count
from providers.errors import CredentialsError, PermissionDeniedError, ProviderError
from providers.protocol import (
    AccountAllowances,
    CallCheck,
    CapacityReservation,
    Diagnosis,
    GangQuery,
    Quota,
    QuotaUnit,
    StockHint,
)
from providers.registry import CLOUDS
from router.cli import console
from router.cli.console import ExitCode
from router.cli.options import (
    OUTPUT,
    CloudOption,
    CloudsFileOption,
    OutOption,
    TableOutput,
    option_error,
    parse_now,
    parse_option,
)
from router.config.settings_files import load_clouds
from router.jobs.fields import suggest
from router.jobs.quantities import parse_duration
from router.prices import history
from router.prices.allowance_store import AllowanceStore
from router.prices.bookstore import BookStore
from router.prices.cloud_queries import (
    build_stock_points,
    find_sellers,
    query_clouds,
    sort_stock_hints,
)
from router.prices.cloud_settings import LoadedClouds
from router.prices.data_folders import allowances_folder, books_folder, clouds_file, history_folder
from router.prices.read_limits import build_limits_file
from router.prices.refresh import load_all_tables, load_base_book
from router.render.record_table import SCHEMA_VERSION, RecordTable, TableColumn, field_columns, json_document
from router.render.tables import WIDTH, Screen, format_timestamp, wrap_text

TimeLimit = Annotated[str, typer.Option(metavar="DURATION", help="Time limit.")]


def select_clouds(names: list[str], file: Path | None) -> tuple[LoadedClouds, dict[str, bool]]:
    """Return the clouds file, and for each cloud to query whether it must answer.

    Raises InvalidInputError for errors in the file and for unknown cloud names.
    """
    refuse_unknown_clouds(names)
    loaded = load_clouds(file or clouds_file(), named=file is not None)
    return loaded, loaded.asked(tuple(dict.fromkeys(names)))


def refuse_unknown_clouds(names: list[str]) -> None:
    """Raise InvalidInputError for the first name that is no cloud."""
    unknown = [name for name in names if name not in CLOUDS]
    if unknown:
        raise option_error(
            "--cloud", f"{unknown[0]!r} is no cloud that this program knows", suggest(unknown[0], CLOUDS)
        )


def stock(
    machine: Annotated[str, typer.Argument(metavar="MACHINE", help="Machine type, such as p5.48xlarge.")],
    machines: Annotated[int, typer.Option("--machines", "-n", min=1, help="Machines wanted at the same time.")] = 1,
    market: Annotated[Market, typer.Option(help="Market to ask for.")] = Market.SPOT,
    region: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this region; repeatable.")] = None,
    clouds: CloudsFileOption = None,
    time_limit: TimeLimit = "1m",
    now: Annotated[str | None, typer.Option(metavar="TIME", help="Date of the hints (ISO, with zone).")] = None,
    output: TableOutput = "table",
) -> ExitCode:
    """Ask the clouds where a gang is likely to be available.

    Sources are the placement scores of AWS, the Spot advice of Google, and the counts of the static pool and the
    sandbox. Azure and the neoclouds give no hints. The hints are stored in the price history; counts of machines limit
    `plan --quotas latest` for six hours. AWS limits the number of different requests per account and day.

    \b
    stepfare stock p5.48xlarge --machines 4
    stepfare stock a3-highgpu-8g -n 2 --region us-central1 -o json
    """
    moment = parse_now(now).replace(microsecond=0)
    limit = parse_option("--time-limit", time_limit, parse_duration)
    loaded, _ = select_clouds([], clouds)
    words = load_all_tables(BookStore(books_folder()))
    asked = find_sellers(words, machine)
    wanted = GangQuery(machine, machines, market, tuple(region or ()))
    with console.progress(f"asking {', '.join(asked)}"):
        answers = query_clouds(asked, loaded, words, moment, limit.total_seconds(), lambda cloud: cloud.stock([wanted]))
    hints = sort_stock_hints(
        (c, hint) for c, some in answers.items() if not isinstance(some, ProviderError) for hint in some
    )
    errors = [one for one in answers.values() if isinstance(one, ProviderError)]
    history.append(history_folder(), build_stock_points(hints, wanted, moment))
    AllowanceStore(allowances_folder()).add(moment, {}, hints)
    as_json = output == "json"
    console.out(json_document({"hints": _HINTS.records(hints)}) if as_json else _text(hints, wanted))
    for error in errors:
        console.note(wrap_text(f"{error.cloud}: {error}"), "warning")
    return ExitCode.PARTIAL if errors else ExitCode.OK


_HINTS: RecordTable[tuple[str, StockHint]] = RecordTable(
    (
        TableColumn("cloud", lambda row: row[0]),
        TableColumn("", lambda row: f"{row[0]}/{row[1].zone or row[1].region}", "PLACE", width=36),
        TableColumn("", lambda row: row[1].score, "SCORE", "{:.2f}".format, right=True),
        TableColumn("", lambda row: row[1].machines, "MACHINES", right=True),
        TableColumn("", lambda row: row[1].source, "SOURCE"),
        *field_columns(StockHint, lambda row: row[1]),
    )
)


def _text(hints: tuple[tuple[str, StockHint], ...], query: GangQuery) -> str:
    gang = f"{query.machines} x {query.instance_type}, {query.market}"
    if not hints:
        return f"no cloud says anything of its stock of {gang}\n"
    note = f"{gang}; SCORE from 0 to 1 is the cloud's own judgement and compares places of one cloud only"
    return f"{_HINTS.text(hints, console.screen())}\n\n{wrap_text(note)}\n"


_SCHEMA_HINT = "# yaml-language-server: $schema=docs/schema/limits.json\n"
QuotasFormat = Literal["table", "json", "limits"]


def quotas(
    cloud: CloudOption = None,
    clouds: CloudsFileOption = None,
    time_limit: TimeLimit = "2m",
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
    moment = parse_now(now).replace(microsecond=0)
    loaded, asked = select_clouds(cloud or [], clouds)
    limit = parse_option("--time-limit", time_limit, parse_duration)
    store = BookStore(books_folder())
    words = load_all_tables(store)
    with console.progress(f"asking {format_count(len(asked), 'cloud')}"):
        answers = query_clouds(
            tuple(asked),
            loaded,
            words,
            moment,
            limit.total_seconds(),
            lambda provider: provider.allowances(loaded.settings(provider.cloud).regions),
        )
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
        document = {"schema_version": SCHEMA_VERSION, "clouds": clouds}
        return json.dumps(document, indent=2, default=str) + "\n"
    if output == "limits":
        import yaml

        return _SCHEMA_HINT + yaml.safe_dump(
            build_limits_file(allowances, book), sort_keys=False, allow_unicode=True, width=120
        )
    rows = [quota for one in allowances.values() for quota in one.quotas]
    rows += [_as_quota(held) for one in allowances.values() for held in one.held]
    return (_QUOTAS.text(rows, screen) if rows else "no quota is known; `stepfare doctor` says what is missing") + "\n"


def _as_quota(held: CapacityReservation) -> Quota:
    name, used = f"held: {held.name}, {held.instance_type}", held.machines - held.free
    name += ", taken without its name" if held.automatic else ""
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

# Clouds refuse tokens and signatures beyond five minutes; warn at half of that.
_CLOCK_WARNING_S = 150.0
_INDENT = 12


def doctor(
    cloud: CloudOption = None,
    clouds: CloudsFileOption = None,
    time_limit: TimeLimit = "30s",
    output: TableOutput = "table",
) -> ExitCode:
    """Check identity and permissions in each cloud, without changing anything or showing secrets.

    Exit codes: 7 a cloud named here or in the clouds file lacks an identity or a permission; 5 one cannot be reached,
    or where none is named, none at all.

    \b
    stepfare doctor
    stepfare doctor --cloud aws -o json
    """
    loaded, asked = select_clouds(cloud or [], clouds)
    limit = parse_option("--time-limit", time_limit, parse_duration)
    store = BookStore(books_folder())
    book, _, warnings = load_base_book(store)
    sandbox, _, more = load_base_book(store.sandbox, simulated=True)
    warnings += more
    now = parse_now(None)
    with console.progress(f"asking {format_count(len(asked), 'cloud')}"):
        tables = load_all_tables(store)
        found = query_clouds(tuple(asked), loaded, tables, now, limit.total_seconds(), lambda cloud: cloud.diagnose())
    counts = {name: sum(o.cloud == name for b in (book, sandbox) for o in b.offers) for name in asked}
    if output == "json":
        console.out(as_json(found, asked, counts))
    else:
        folders = f"books in {store.folder}\nhistory in {history_folder()}\nclouds file {clouds or clouds_file()}\n"
        offers = format_count(len(book.offers), "offer")
        lines = [f"{format_timestamp(book.as_of)} price book with {offers}, {book.digest[:12]}\n{folders}"]
        lines += [wrap_text(f"warning: {warning}") + "\n" for warning in warnings]
        console.out("\n".join([*lines, *(as_text(name, found[name], counts[name]) for name in asked)]))
    named = {name: found[name] for name, must in asked.items() if must}
    real = [one for name, one in found.items() if name not in SIMULATED_CLOUDS]
    if not named and real and all(_errors(one) for one in real):
        return ExitCode.PARTIAL
    return _exit_code(named)


def _errors(diagnosis: Diagnosis | ProviderError) -> tuple[ProviderError, ...]:
    if isinstance(diagnosis, ProviderError):
        return (diagnosis,)
    errors = (diagnosis.identity_error, *(check.error for check in diagnosis.checks))
    return tuple(error for error in errors if error is not None)


def _exit_code(diagnoses: dict[str, Diagnosis | ProviderError]) -> ExitCode:
    errors = [error for diagnosis in diagnoses.values() for error in _errors(diagnosis)]
    if any(isinstance(error, CredentialsError | PermissionDeniedError) for error in errors):
        return ExitCode.CREDENTIALS
    return ExitCode.PARTIAL if errors else ExitCode.OK


def as_text(cloud: str, diagnosis: Diagnosis | ProviderError, offers: int) -> str:
    """Return one paragraph per cloud: identity, failing calls, clock, latency, offers in the price book."""
    entry = CLOUDS[cloud]
    lines = [f"{cloud} ({entry.title})"]
    if isinstance(diagnosis, ProviderError):
        return "\n".join([*lines, *_field("error", str(diagnosis)), *_remedy(diagnosis)]) + "\n"
    lines += _field("identity", diagnosis.identity or ("none" if diagnosis.identity_error else "none needed"))
    if diagnosis.identity_error is not None:
        lines += [*_field("", str(diagnosis.identity_error)), *_remedy(diagnosis.identity_error)]
    if diagnosis.checks:
        works = sum(check.error is None for check in diagnosis.checks)
        lines += _field("calls", f"{works} of {len(diagnosis.checks)} work")
    for check in diagnosis.checks:
        if check.error is not None:
            lines += [*_failed_call(check, check.error), *_remedy(check.error)]
    if diagnosis.clock_ahead is not None:
        lines += _field("clock", _clock(diagnosis.clock_ahead.total_seconds()))
    if diagnosis.latency is not None:
        lines += _field("latency", f"{diagnosis.latency.total_seconds() * 1000:.0f} ms")
    for number, source in enumerate(diagnosis.sources):
        lines += _field("" if number else "book", source)
    if entry.public and diagnosis.identity is None:
        lines += _field("", "without an account a public catalogue stands in, a day old")
    lines += _field("", f"{format_count(offers, 'offer')} in the book now")
    return "\n".join(lines) + "\n"


def _field(label: str, text: str) -> list[str]:
    """Return a label followed by its text, wrapped in a column of its own."""
    first, *more = textwrap.wrap(text, WIDTH - _INDENT, break_on_hyphens=False) or [""]
    return [f"  {label:{_INDENT - 2}}{first}", *(" " * _INDENT + line for line in more)]


def _failed_call(check: CallCheck, error: ProviderError) -> list[str]:
    refused = isinstance(error, PermissionDeniedError)
    permission = f"{check.permission}, for " if refused and check.permission else ""
    return _field("missing" if refused else "failed", f"{permission}{check.needed_for}: {error}")


def _clock(ahead_s: float) -> str:
    if abs(ahead_s) < 2:
        return "right"
    warning = "; clouds refuse calls beyond 5 minutes: set the clock" if abs(ahead_s) > _CLOCK_WARNING_S else ""
    return f"{abs(ahead_s):.0f} s {'ahead' if ahead_s > 0 else 'behind'}{warning}"


def _remedy(error: ProviderError) -> list[str]:
    return _field("", error.remedy) if error.remedy else []


def as_json(
    diagnoses: dict[str, Diagnosis | ProviderError], must_answer: dict[str, bool], counts: dict[str, int]
) -> str:
    """Return all findings as JSON."""
    clouds = [
        {"cloud": name, "must_answer": must, "offers": counts[name], **_one(diagnoses[name])}
        for name, must in must_answer.items()
    ]
    return json_document({"clouds": clouds})


def _one(diagnosis: Diagnosis | ProviderError) -> dict[str, Any]:
    if isinstance(diagnosis, ProviderError):
        return {"error": _error(diagnosis)}
    ahead, latency = diagnosis.clock_ahead, diagnosis.latency
    return {
        "identity": diagnosis.identity,
        "identity_error": _error(diagnosis.identity_error),
        "checks": [
            {"permission": c.permission, "needed_for": c.needed_for, "error": _error(c.error)} for c in diagnosis.checks
        ],
        "clock_ahead_s": None if ahead is None else ahead.total_seconds(),
        "latency_s": None if latency is None else latency.total_seconds(),
        "sources": list(diagnosis.sources),
    }


def _error(error: ProviderError | None) -> dict[str, str] | None:
    return None if error is None else {"error": str(error), "code": error.code, "remedy": error.remedy}
