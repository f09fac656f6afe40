"""Read price catalogues that a user gives as a file: SkyPilot's ``vms.csv``, gpuhunt's CSV, and offers in our own form.

The form is known by the header. A malformed file is refused whole, with every place. Other content of a catalogue
(machines without accelerators, accelerators that no book knows) is left out and counted.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from datetime import date
from pathlib import Path

from pricing.book import PriceBook
from pricing.book_file import read_book
from pricing.offer_csv import COLUMNS
from pricing.places import Market
from pricing.problems import InvalidInputError, Problem
from providers.neoclouds.clouds import GPUHUNT, SKYPILOT, find_cloud_name, load_catalogue_entries
from providers.neoclouds.parse import catalogue, skypilot
from providers.neoclouds.parse.catalogue import NamingRule
from providers.neoclouds.parse.catalogue_rows import CatalogueContent, NotACatalogueError
from providers.neoclouds.parse.fetch_result import CatalogueTerms, build_fetch_result
from providers.protocol import DroppedRow, FetchResult
from providers.registry import CLOUDS
from router.files.missing_file import missing_file
from router.jobs.fields import suggest

OTHER_CLOUD = "of a cloud that was not asked for"
_BOTH = frozenset({Market.ON_DEMAND, Market.SPOT})
_MOST_PROBLEMS = 50
_FORMS = "SkyPilot's vms.csv, gpuhunt's catalogue or offers in our own columns"


def read_catalogue(
    path: Path, book: PriceBook, today: date, *, cloud: str | None = None, as_of: date | None = None
) -> Mapping[str, FetchResult]:
    """Return the file's offers, by cloud; ``book`` knows the words (machines, accelerators, regions).

    The owner of the prices is ``cloud`` (a key of the registry), else the one that a column names, else the file's or
    its folder's name (``lambdalabs.csv``, ``aws/vms.csv``). ``as_of`` dates all prices; without it a public catalogue
    is undated, thus weak, while our own form dates each row. A public catalogue covers every region it names, our own
    form covers nothing: it may hold a few rows only. InvalidInputError carries everything that is wrong.
    """
    if as_of is not None and as_of > today:
        raise InvalidInputError.single(f"{as_of} lies in the future", field="as-of", remedy=f"today is {today}")
    if cloud is not None:
        _check_cloud(cloud, "--cloud")
    text = _read_text(path)
    header = {name.strip() for name in next(csv.reader([text.partition("\n")[0]]), [])}
    if "InstanceType" in header:
        return _read_vms(path, text, book, cloud or _cloud_of_path(path), today, as_of)
    if "instance_name" in header:
        return _read_gpuhunt(path, text, book, cloud, today, as_of)
    if len(header & set(COLUMNS)) >= len(COLUMNS) // 2:
        return _read_own(path, book, cloud, as_of)
    raise InvalidInputError.single(
        "is no catalogue that is known here", where=f"{path}:1", remedy=f"known are {_FORMS}"
    )


def _check_cloud(cloud: str, where: str) -> None:
    if cloud not in CLOUDS:
        raise InvalidInputError.single(f"unknown cloud {cloud!r}", where=where, remedy=suggest(cloud, CLOUDS))


def _cloud_of_path(path: Path) -> str:
    for name in (path.stem, path.absolute().parent.name):
        if find_cloud_name(name) in CLOUDS:
            return find_cloud_name(name)
    raise InvalidInputError.single(
        "does not say of which cloud it is",
        where=str(path),
        remedy="give --cloud, or name its folder after the cloud, e.g. aws/vms.csv",
    )


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise missing_file(path) from None
    except UnicodeDecodeError:
        raise InvalidInputError.single("is not UTF-8 text", where=str(path)) from None
    except OSError as error:
        raise InvalidInputError.single(f"cannot be read: {error.strerror}", where=str(path)) from None


def _read_vms(
    path: Path, text: str, book: PriceBook, cloud: str, today: date, as_of: date | None
) -> Mapping[str, FetchResult]:
    machines = frozenset(m.instance_type for m in book.machines if m.cloud == cloud)
    try:
        reading = skypilot.read_vms(io.StringIO(text, newline=""), machines)
    except NotACatalogueError as error:
        raise _table_error(path, error) from None
    return _fetch_results(path, {cloud: reading}, book, SKYPILOT, today, as_of)


def _read_gpuhunt(
    path: Path, text: str, book: PriceBook, cloud: str | None, today: date, as_of: date | None
) -> Mapping[str, FetchResult]:
    def naming_of(provider: str) -> NamingRule:
        entry = load_catalogue_entries().get(find_cloud_name(provider) if provider else cloud or _cloud_of_path(path))
        return entry.naming if entry else NamingRule()

    try:
        readings_by_provider = catalogue.read_catalogue(io.StringIO(text, newline=""), naming_of)
    except NotACatalogueError as error:
        raise _table_error(path, error) from None
    readings: dict[str, CatalogueContent] = {}
    left_out: list[DroppedRow] = []
    for provider, reading in readings_by_provider.items():
        name = find_cloud_name(provider) if provider else cloud or _cloud_of_path(path)
        if name not in CLOUDS or cloud not in {None, name}:
            left_out += [DroppedRow(f"{x.instance_type} of {provider}", OTHER_CLOUD) for x in reading.listings]
        else:
            readings[name] = reading
    for reading in list(readings.values())[:1]:
        reading.left_out += left_out
    return _fetch_results(path, readings, book, GPUHUNT, today, as_of)


def _fetch_results(
    path: Path, readings: Mapping[str, CatalogueContent], book: PriceBook, form: str, today: date, as_of: date | None
) -> Mapping[str, FetchResult]:
    problems = [
        Problem(
            f"{path}:{faulty.line}", faulty.column, f"{faulty.cell!r} {faulty.what}" if faulty.column else faulty.what
        )
        for reading in readings.values()
        for faulty in reading.bad
    ]
    if problems:
        more = len(problems) - _MOST_PROBLEMS
        if more > 0:
            problems[_MOST_PROBLEMS:] = [Problem(str(path), "", f"and {more} more of the kind")]
        raise InvalidInputError(problems)
    results = {}
    for cloud, reading in readings.items():
        entry = load_catalogue_entries().get(cloud)
        terms = CatalogueTerms(
            cloud=cloud,
            source=f"{form} catalogue {path.name}",
            as_of=as_of,
            today=today,
            list_all=entry is not None and form in entry.list_all_in,
            markets=entry.markets if entry is not None and form == GPUHUNT else _BOTH,
        )
        results[cloud] = build_fetch_result(reading, book, terms)
    if not any(result.offers for result in results.values()):
        why = "; ".join(sorted({d.why for h in results.values() for d in h.dropped})[:3])
        remedy = f"{why}; take gpuhunt's catalogue of that cloud" if skypilot.HALF in why else why
        raise InvalidInputError.single("holds no offer of a machine with accelerators", where=str(path), remedy=remedy)
    return results


def _table_error(path: Path, error: NotACatalogueError) -> InvalidInputError:
    return InvalidInputError.single(error.what, where=f"{path}:{error.line}", field=error.column)


def _read_own(path: Path, book: PriceBook, cloud: str | None, as_of: date | None) -> Mapping[str, FetchResult]:
    if as_of is not None:
        raise InvalidInputError.single(
            "is for public catalogues", field="as-of", remedy="this form has a column as_of; write the date there"
        )
    offers_file = read_book(path)
    clouds = sorted({offer.cloud for offer in offers_file.offers} & ({cloud} if cloud else CLOUDS.keys()))
    if not clouds:
        raise InvalidInputError.single(f"holds no offer of {cloud}", where=str(path))
    return {
        name: FetchResult(
            offers=tuple(offer for offer in offers_file.offers if offer.cloud == name),
            machines=tuple(
                m for m in offers_file.machines if m.cloud == name and book.machine(name, m.instance_type) is None
            ),
            rows_read=sum(offer.cloud == name for offer in offers_file.offers),
        )
        for name in clouds
    }
