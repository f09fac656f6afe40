"""What a report needs: the ledger's extract, bills beside it, and what the state and stored quotes know."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pricing.problems import InvalidInputError
from router.files.duck import connect, parquet, rows_of
from router.ledger.month import Month
from router.showback.billstore import BillStore, file_sha256
from router.showback.extract import Extract
from router.showback.extractparts import Manifest
from router.showback.report.asked import Asked, Beside, Variance
from router.showback.report.cubes import months_of, of_extract, of_facts
from router.showback.report.making import make_report
from router.showback.report.values import Report

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from router.showback.report.asked import Budgeted, Due, Quoted
    from router.state.store import Store

_DIGITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a caller adds to a report of the ledger; ``reads`` hears the numbers of entries that are read."""

    reads: Callable[[int], None] = lambda _: None
    dues: Callable[[Store, Month], dict[str, Due]] | None = None
    quotes: Callable[[Store], tuple[Quoted, ...]] | None = None
    budgets: Callable[[Store], tuple[Budgeted, ...]] | None = None


def report_of_files(paths: Sequence[Path], asked: Asked) -> Report:
    """Of FOCUS files alone. InvalidInputError: one that is none, or the same contents twice."""
    import pyarrow as pa

    from router.showback.focusfacts import read_focus

    digests = [_sealed(path) for path in paths]
    twice = next((path for path, digest in zip(paths, digests, strict=True) if digests.count(digest) > 1), None)
    if twice is not None:
        raise InvalidInputError.single("is given twice: its rows would count twice", where=str(twice))
    facts = pa.concat_tables([read_focus(path) for path in paths])
    names = ", ".join(path.name for path in paths)
    beside = Beside(
        origin=f"FOCUS: {names}",
        input_hash=_hash(sorted(digests)),
        bills_through=_through(facts),
        warnings=tuple(_elsewhere(facts, asked)),
    )
    with connect() as connection:
        connection.register("facts", facts)
        return make_report(of_facts(connection, "facts", months_of(asked.month)), asked, beside)


def report_of_ledger(store: Store, asked: Asked, extracts: Path, bills: Path, told: Told) -> Report:
    """Of the ledger, its extract brought up to date under ``extracts``; where bills were imported under ``bills``, of
    them and of what they do not have. StateError, InvalidInputError, OSError."""
    extract = Extract(extracts, store.id)
    if not any(each.replaced_by is None for each in BillStore(bills).bills()):
        with extract.current(store.ledger, told.reads) as manifest, connect() as connection:
            cubes = of_extract(connection, extract.folder, manifest, months_of(asked.month))
            return make_report(cubes, asked, _beside(store, asked, manifest, told))
    from router.wiring.reconciling import matched  # takes a while to import

    with extract.current(store.ledger, told.reads) as manifest:
        pass  # `matched` has the folder for itself, and reads what came meanwhile
    months = months_of(asked.month)
    with matched(store, extracts, bills, asked.month, since=months[-1]) as (connection, standing, head, _):
        connection.execute(
            "CREATE TEMP VIEW counted AS FROM actual UNION ALL BY NAME FROM facts WHERE source = 'planned'"
        )
        beside = replace(
            _beside(store, asked, manifest, told),
            origin=f"ledger of {head:,} entries, {len(standing)} bills",
            input_hash=_hash([manifest.state, str(head), store.ledger.hash_at(head) or "", *standing]),
            bills_through=_reach(connection, asked),
            variance=variance_of(connection, asked),
        )
        return make_report(of_facts(connection, "counted", months), asked, beside)


def _beside(store: Store, asked: Asked, manifest: Manifest, told: Told) -> Beside:
    return Beside(
        origin=f"ledger of {manifest.head:,} entries",
        input_hash=_hash([manifest.state, str(manifest.head), manifest.hash]),
        closed=any(closing.period >= asked.month for closing in store.periods.closings()),
        dues={} if told.dues is None else told.dues(store, asked.month),
        quotes=None if told.quotes is None else told.quotes(store),
        budgets=None if told.budgets is None else told.budgets(store),
        warnings=tuple(_missing(store, manifest, asked)),
    )


def add_archive(store: Store, extracts: Path, path: Path) -> None:
    """Reads the entries that an archive holds into the extract, where they are missing. StateError for a file that is
    not what was archived from this ledger."""
    from router.state.ledger_file import read_lines

    store.archives.check(path)
    extract = Extract(extracts, store.id)
    extract.add_archived(store.ledger, (tuple(line[1:]) for line in read_lines(path)))


@contextmanager
def ledger_facts(store: Store, extracts: Path) -> Iterator[tuple[duckdb.DuckDBPyConnection, str]]:
    """A connection, and a relation in it with all facts of the ledger, planned ones too."""
    extract = Extract(extracts, store.id)
    with extract.current(store.ledger) as manifest, connect() as connection:
        yield connection, _relation(connection, extract.folder, manifest, {part.month for part in manifest.parts})


def _reach(connection: duckdb.DuckDBPyConnection, asked: Asked) -> datetime | None:
    """Until when bills of the month have usage; a row for weeks says nothing of that, where there are others."""
    found = connection.sql(
        f'SELECT coalesce(max("end") FILTER ("end" - start <= INTERVAL 1 DAY), max("end")) AS through FROM facts '
        f"WHERE source = 'billed' AND category = 'Usage' AND corrects IS NULL AND month = '{asked.month}'"
    )
    through: datetime | None = rows_of(found)[0]["through"]
    return through


def variance_of(connection: duckdb.DuckDBPyConnection, asked: Asked) -> tuple[Variance, ...]:
    """Job by job, of facts and actual facts in the connection (:mod:`router.showback.reconcile.matching`)."""
    from router.showback.reconcile.grains import Basis, grains
    from router.showback.reconcile.variance import Bucket, variances

    found = grains(
        connection, Basis(asked.basis.value), month=str(asked.month), since=asked.month.begins,
        until=max(min(asked.now, asked.month.ends), asked.month.begins),
    )  # fmt: skip
    return tuple(
        Variance(
            job=each.group[0] or "__unallocated__",
            currency=each.currency,
            planned=each.planned,
            metered=each.metered,
            invoiced=each.invoiced,
            **{bucket.value: each.buckets.get(bucket) for bucket in Bucket},
        )
        for each in variances(found, ("job",))
    )


def _relation(connection: duckdb.DuckDBPyConnection, folder: Path, manifest: Manifest, months: set[str]) -> str:
    from router.showback.facts import COLUMNS

    parts = manifest.of_months(months)
    if parts:
        return parquet([part.path(folder, "facts") for part in parts])
    connection.register("no_ledger", COLUMNS.empty_table())
    return "no_ledger"


def _missing(store: Store, manifest: Manifest, asked: Asked) -> Iterator[str]:
    """Entries that were archived before they were read."""
    if not manifest.gaps:
        return
    near = {str(asked.month), str(asked.before)}
    for archive in store.archives.all():
        months = sorted({month for month, *_ in archive.totals} & near)
        if months:
            count = sum(entries for month, _, entries, _ in archive.totals if month in months)
            yield (
                f"{count:,} entries of {', '.join(months)} were archived to {archive.file} and are not in this report: "
                f"name the file with --archive"
            )


def _elsewhere(facts: pa.Table, asked: Asked) -> Iterator[str]:
    """Rows in the books of other months."""
    import pyarrow.compute as pc

    months = pc.unique(facts["month"]).to_pylist()
    if str(asked.month) not in months:
        yield f"the files have nothing in the books of {asked.month}: {', '.join(sorted(months)) or 'no rows at all'}"


def _through(table: pa.Table) -> datetime | None:
    import pyarrow.compute as pc

    used = table.filter(pc.and_(pc.equal(table["category"], "Usage"), pc.is_null(table["corrects"])))
    found: datetime | None = pc.max(used["end"]).as_py()
    return None if found is None else found.astimezone(UTC)


def _sealed(path: Path) -> str:
    try:
        if not path.is_file():
            raise InvalidInputError.single("is no file", where=str(path))
        return file_sha256(path)
    except OSError as error:
        raise InvalidInputError.single(f"cannot be read: {error.strerror or error}", where=str(path)) from None


def _hash(parts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:_DIGITS]
