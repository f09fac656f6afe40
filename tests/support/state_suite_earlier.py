"""What every database has to do with what earlier versions wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text

from pricing.money import Usd, UsdPerHour
from router.ledger.entry import LedgerEntry, LedgerEntryKind
from router.state.errors import StateError
from router.state.ledger_file import LedgerFileKind, LedgerFileTitle, write_file
from router.state.ledger_rows import BEGINNING, NAMES, chain_rows, entry_values
from router.state.store import StateStore
from tests.support.state_earlier import made_by
from tests.support.state_suite import NewUrl, StateSuite
from tests.support.state_values import HOUR, NOW, entry

DAY = timedelta(days=1)


class EarlierSuite(StateSuite):
    """Ledgers of earlier versions, and their files."""

    def test_its_rows_are_chained_and_say_what_they_said(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        old = [
            entry("k1", zone="a", quantity=Fraction(1, 3), steps=7, lost_steps=2),
            entry(
                "k2",
                kind=LedgerEntryKind.PLANNED,
                attempt="",
                rank=None,
                machines=4,
                usd=Usd(1 << 60),
                price_as_of="2026-11-21",
            ),
            *(entry(f"more {number}", team="ö☃", start=NOW - 40 * DAY, end=NOW) for number in range(1200)),
        ]
        with made_by(monkeypatch, "0004"), StateStore.open(url, now=NOW) as store:
            made = store.id
            with store._database.write() as connection:
                _insert_as_it_was(connection, old)
        with StateStore.open(url, now=NOW + HOUR) as store:
            assert store.id == made
            assert store.ledger.entries() == tuple(old)
            assert {one.use for one in store.ledger.entries()} == {None}
            checked = store.ledger.verify()
            assert (checked.entries, checked.problems) == (1202, ())
            assert store.ledger.add([entry("k1", zone="a", quantity=Fraction(1, 3), steps=7, lost_steps=2)]) == 1202
            assert store.ledger.add([entry("k3")]) == 1203
            assert store.ledger.verify().problems == ()

    def test_what_it_had_no_columns_for_is_in_no_hash(
        self, url: str, new_url: NewUrl, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """Before entries said which machine they are about, and what priced it."""
        old = [
            entry("k1", steps=7),
            entry("k2", kind=LedgerEntryKind.FEE, who="anna", reason="support", attempt="", rank=None),
        ]
        rows = [row[:-4] + row[-2:] for row in chain_rows([entry_values(one) for one in old], 0, BEGINNING)]
        with made_by(monkeypatch, "0005"), StateStore.open(url, now=NOW) as store:
            with store._database.write() as connection:
                _insert_as_of_five(connection, rows)
            made = store.id
        with StateStore.open(url, now=NOW) as store:
            assert (store.ledger.entries(), store.ledger.verify().problems) == (tuple(old), ())
            assert [row[-1] for row in next(store.ledger.batches())] == [row[-1] for row in rows]
            # Recorded again with what is known now, it is the same happening.
            again = replace(old[0], resource="i-7", on_demand_usd_per_hour=UsdPerHour.parse("98.32"))
            assert store.ledger.add([again]) == 2
            store.ledger.add([replace(again, key="k3")])
            assert store.ledger.entries()[2].resource == "i-7"
            assert store.ledger.verify().problems == ()
        write_file(tmp_path / "old.gz", LedgerFileTitle(LedgerFileKind.BACKUP, made), [["entry", *row] for row in rows])
        write_file(
            tmp_path / "odd.gz",
            LedgerFileTitle(LedgerFileKind.BACKUP, made),
            [["entry", *row[:-3], *row[-2:]] for row in rows],
        )
        with StateStore.open(new_url(), now=NOW) as other:
            with pytest.raises(StateError, match="a row of 40 values"):
                other.backups.restore(tmp_path / "odd.gz")
            other.backups.restore(tmp_path / "old.gz")
            assert other.ledger.entries() == tuple(old)
            assert other.ledger.verify().problems == ()


def _insert_as_of_five(connection: Connection, rows: Sequence[Sequence[Any]]) -> None:
    form = "{0}" if connection.dialect.name == "sqlite" else "CAST({0} AS timestamptz)"
    names = ["seq", *NAMES[:-2], "previous", "hash"]
    marks = [form.format(f":{name}") if name.endswith("_at") else f":{name}" for name in names]
    statement = text(f"INSERT INTO ledger ({', '.join(names)}) VALUES ({', '.join(marks)})")
    connection.execute(statement, [dict(zip(names, row, strict=True)) for row in rows])


def _insert_as_it_was(connection: Connection, entries_: list[LedgerEntry]) -> None:
    form = "{0}" if connection.dialect.name == "sqlite" else "CAST({0} AS timestamptz)"
    names = [name for name in NAMES if name not in _LATER and name != "quantity"]
    marks = [form.format(f":{name}") if name.endswith("_at") else f":{name}" for name in names]
    statement = text(
        f"INSERT INTO ledger (seq, hours, {', '.join(names)}) VALUES (:seq, :quantity, {', '.join(marks)})"
    )
    rows = [{"seq": seq, **dict(zip(NAMES, entry_values(one), strict=True))} for seq, one in enumerate(entries_, 1)]
    connection.execute(statement, rows)


_LATER = {
    "what", "use", "period", "corrects", "unit", "unpriced", "who", "reason", "reference", "resource",
    "on_demand_usd_per_hour_nanos",
}  # fmt: skip
