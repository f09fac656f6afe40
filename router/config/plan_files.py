"""Read plans, and fits of recorded spot availability, and store quotes on disk.

Quotes are a file each in one folder, never changed, and beside it the acceptance when it was accepted.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from pricing.atomic_file import make_private_folder, write_atomic
from pricing.problems import InvalidInputError
from router.files.missing_file import missing_file
from router.planning.document.plan import Plan
from router.planning.document.plan_json import plan_from_json
from router.quotes.quote import Quote
from router.quotes.quote_json import quote_content, quote_from_json, quote_to_json
from router.spot.availability.fit import AvailabilityFit, fit_from_json


def read_plan(path: Path) -> Plan:
    """Return the plan in a file. InvalidInputError when it cannot be read, is no plan, or was edited."""
    return plan_from_json(read_text(path), str(path))


def read_text(path: Path) -> str:
    """Return the text of a file. InvalidInputError when it cannot be read, or is no text."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise missing_file(path) from None
    except OSError as error:
        raise InvalidInputError.single(f"cannot be read: {error.strerror}", where=str(path)) from None
    except UnicodeDecodeError:
        raise InvalidInputError.single("is not text", where=str(path)) from None


def read_fit(file: Path) -> AvailabilityFit | None:
    """Return the fit in the file, or None where none was stored. InvalidInputError for a file that is none of ours."""
    if not file.exists():
        return None
    try:
        return fit_from_json(read_text(file))
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidInputError.single(
            f"is no fit of spot availability: {error}", where=str(file), remedy="learn it again: stepfare quotes fit"
        ) from None


_ACCEPTED = ".accepted.json"


@dataclass(frozen=True, slots=True)
class QuoteAcceptance:
    """The acceptance of a quote as a plan.

    ``at`` (UTC, ISO) is when, ``who`` by whom; ``plan`` is the plan's digest, ``job_digest`` that of the job in it, and
    ``ceiling_usd`` the ceiling of the job's cost in dollars. ``note`` says why the plan expects another cost than the
    quote said of a plan, "" where it does not.
    """

    quote_id: str
    at: str
    who: str
    plan: str
    job_digest: str
    ceiling_usd: str
    note: str = ""

    @property
    def content(self) -> dict[str, str]:
        """Return the acceptance as plain data, without an empty note."""
        return {name: text for name, text in asdict(self).items() if name != "note" or text}

    @property
    def moment(self) -> datetime:
        return datetime.fromisoformat(self.at)


@dataclass(frozen=True, slots=True)
class StoredQuote:
    """A quote with its id, and its acceptance where it was accepted.

    ``document`` is the job as it was written, None for a quote that lies in files alone.
    """

    name: str
    quote: Quote
    acceptance: QuoteAcceptance | None
    document: str | None = None
    asked_by: str = ""


def store_quotes(folder: Path, quotes: list[Quote]) -> tuple[str, ...]:
    """Store the quotes, and return their ids. OSError where the folder cannot be written."""
    ids = []
    for quote in quotes:
        name: str = quote_content(quote)["quote_id"]
        _put(folder / f"{name}.json", quote_to_json(quote))
        ids.append(name)
    return tuple(ids)


def quote_paths(folder: Path) -> tuple[Path, ...]:
    return tuple(p for p in sorted(folder.glob("quote-*.json")) if not p.name.endswith(_ACCEPTED))


def read_quote(path: Path) -> Quote:
    """Return the quote in a file. InvalidInputError when it cannot be read, is none, or was edited."""
    return quote_from_json(read_text(path), str(path))


def store_acceptance(folder: Path, acceptance: QuoteAcceptance) -> None:
    """Store that a quote was accepted; a later acceptance replaces an earlier one."""
    _put(folder / f"{acceptance.quote_id}{_ACCEPTED}", json.dumps(acceptance.content, indent=2, sort_keys=True) + "\n")


def read_acceptance(folder: Path, name: str) -> QuoteAcceptance | None:
    """Return the acceptance of the quote of that id; None where it was not accepted.

    InvalidInputError for a damaged file.
    """
    path = folder / f"{name}{_ACCEPTED}"
    try:
        return QuoteAcceptance(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise InvalidInputError.single(f"is no acceptance of a quote: {error}", where=str(path)) from None


def _put(path: Path, text: str) -> None:
    make_private_folder(path.parent)
    write_atomic(path, text)
