"""Command ``stepfare doctor``: check access, identity and permissions in each cloud."""

from __future__ import annotations

import textwrap
from typing import Annotated, Any

import typer

from pricing.places import SIMULATED_CLOUDS
from pricing.units import format_count
from providers.errors import CredentialsError, PermissionDeniedError, ProviderError
from providers.protocol import CallCheck, Diagnosis
from providers.registry import CLOUDS
from router.cli import console
from router.cli.console import ExitCode
from router.cli.offer_options import CloudOption, CloudsFileOption
from router.cli.options import parse_duration_option, parse_now
from router.cli.output_options import TableOutput
from router.render.tables import WIDTH, format_timestamp, wrap_text

# Clouds refuse tokens and signatures beyond five minutes; warn at half of that.
_CLOCK_WARNING_S = 150.0
_INDENT = 12


def doctor(
    cloud: CloudOption = None,
    clouds: CloudsFileOption = None,
    time_limit: Annotated[str, typer.Option(metavar="DURATION", help="Time limit.")] = "30s",
    output: TableOutput = "table",
) -> ExitCode:
    """Check identity and permissions in each cloud, without changing anything or showing secrets.

    Exit codes: 7 a cloud named here or in the clouds file lacks an identity or a permission; 5 one cannot be reached,
    or where none is named, none at all.

    \b
    stepfare doctor
    stepfare doctor --cloud aws -o json
    """
    from router.cli.cloud_options import select_clouds
    from router.prices.bookstore import BookStore
    from router.prices.cloud_queries import diagnose_clouds
    from router.prices.data_folders import books_folder, clouds_file, history_folder
    from router.prices.refresh import load_all_tables, load_base_book

    loaded, asked = select_clouds(cloud or [], clouds)
    limit = parse_duration_option("--time-limit", time_limit)
    assert limit is not None
    store = BookStore(books_folder())
    book, _, warnings = load_base_book(store)
    sandbox, _, more = load_base_book(store.sandbox, simulated=True)
    warnings += more
    now = parse_now(None)
    with console.progress(f"asking {format_count(len(asked), 'cloud')}"):
        found = diagnose_clouds(tuple(asked), loaded, load_all_tables(store), now, limit.total_seconds())
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
    return console.as_document({"clouds": clouds})


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
