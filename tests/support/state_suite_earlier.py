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
from router.state.versions import VERSIONS
from tests.support.state_earlier import made_by, write_backup_of
from tests.support.state_suite import NewUrl, StateSuite
from tests.support.state_values import HOUR, NOW, attempt, entry, node

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

    def test_its_plans_are_of_the_night_or_of_quotes(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        with made_by(monkeypatch, "0013"), StateStore.open(url, now=NOW) as store:
            _insert_made_plans(store)
        with StateStore.open(url, now=NOW + HOUR) as store:
            found = [(row.digest, row.name, row.as_of) for row in store.made_plans.newest()]
            assert found == [("p0", "night", NOW), ("p1", "quote", NOW)]

    @pytest.mark.parametrize("version", VERSIONS[VERSIONS.index("0009") :])
    def test_its_backup_is_restored_as_its_state_is_upgraded(
        self, url: str, new_url: NewUrl, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
    ) -> None:
        old = tmp_path / "old.gz"
        with made_by(monkeypatch, version), StateStore.open(url, now=NOW) as store:
            store.plans.put_plan("p" * 64, "{}", NOW)
            store.plans.put_jobs({"d1": '{"name": "ö☃"}'}, NOW)
            store.audit.add("anna", "apply", "p" * 64, Usd.parse("3.5"), NOW, gangs=1)
            store.journal.note("a1", "ready", NOW, ranks=2)
            if version >= "0011":
                store.attempts.add(attempt("a1"), (node("a1", 0), node("a1", 1)))
                store.ledger.add([entry("k1"), entry("k2", steps=7)])
            if version == "0013":
                _insert_made_plans(store)
            write_backup_of(store, old, version)
        restored, upgraded = tmp_path / "restored.gz", tmp_path / "upgraded.gz"
        with StateStore.open(new_url(), now=NOW + HOUR) as other:
            other.whole.restore(old)
            assert other.plans.plan("p" * 64) == "{}"
            assert [(row.digest, row.name) for row in other.made_plans.newest()] == (
                [("p0", "night"), ("p1", "quote")] if version == "0013" else []
            )
            assert len(other.attempts.nodes("a1")) == (2 if version >= "0011" else 0)
            other.whole.write(restored, ())
        with StateStore.open(url, now=NOW + HOUR) as store:
            store.whole.write(upgraded, ())
        assert restored.read_bytes() == upgraded.read_bytes()

    def test_a_backup_with_rows_that_its_version_never_had_is_refused(self, store: StateStore, tmp_path: Path) -> None:
        lines: list[list[Any]] = [["version", "0013"], ["row", "made_plans", {"digest": "p0", "name": "night"}]]
        write_file(tmp_path / "odd.gz", LedgerFileTitle(LedgerFileKind.STATE, "s1"), lines)
        with pytest.raises(StateError, match="has rows of made_plans that its version does not know"):
            store.whole.restore(tmp_path / "odd.gz")
        assert store.plans.plan("p" * 64) is None


def _insert_made_plans(store: StateStore) -> None:
    """One of the night, and one of a quote."""
    values = ", ".join(f"('p{n}', '{{}}', :at, :at, 'ana', :summary, '{q}')" for n, q in enumerate(("", "q-1")))
    statement = text(f"INSERT INTO made_plans (digest, text, as_of, made_at, made_by, summary, quote) VALUES {values}")
    with store._database.write() as connection:
        sqlite = connection.dialect.name == "sqlite"
        at = NOW.isoformat(timespec="microseconds").replace("+00:00", "Z") if sqlite else NOW
        connection.execute(statement, {"at": at, "summary": '{"gap": 0.1, "teams": []}'})


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
