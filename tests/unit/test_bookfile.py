"""Books on disk: what is written is read again, and what is broken is refused whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from pricing.book_file import SCHEMA_VERSION, embedded_book, read_book, write_book
from pricing.money import UsdPerHour
from pricing.places import Market
from pricing.pool_experience import ExperienceKind, PoolExperience
from pricing.problems import InvalidInputError
from pricing.risk import RiskSignal
from tests.support.books import AN_OFFER, a_book, a_tariff, spot

TARIFF = a_tariff((0, 100, "0"), (100, None, "0.09"))
SEEN_AT = datetime(2026, 11, 20, 6, 30, tzinfo=UTC)
SIGNALS = (
    RiskSignal("aws", "<5%", "falling", 0.04, 0.013, 0.13, 11.0, "the advisor", "2026-11-21"),
    RiskSignal("aws", ">20%", "falling", 1.0, 0.36, 2.8, 11.0, "the advisor", "2026-11-21"),
)
RECORDS = tuple(
    PoolExperience("aws", "us-east-1", zone, "p5.48xlarge", Market.SPOT, 1, 41.5, 9.25, 2.5, 7, SEEN_AT, SEEN_AT, kind)
    for zone, kind in ((None, ExperienceKind.GANGS), ("us-east-1a", ExperienceKind.AVAILABILITY))
)
FULL = replace(
    a_book(
        [
            AN_OFFER,
            spot("30.5", zone="us-east-1a", machines_cap=3, interruptions_per_hour=0.1, weak="undated", as_of=None),
            spot("30", interruption_band=">20%", band_as_of=date(2025, 6, 28), preempted_share=0.25, not_before=True),
        ],
        [TARIFF],
    ),
    signals=SIGNALS,
    records=RECORDS,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with the full book, alone in its folder."""
    path = tmp_path / "book.parquet"
    write_book(FULL, path)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(InvalidInputError) as caught:
        read_book(path)
    assert all(p.where.startswith(str(path)) for p in caught.value.problems)
    return str(caught.value)


def test_a_written_book_is_read_again(path: Path) -> None:
    again = read_book(path)
    assert again == FULL
    assert again.digest == FULL.digest
    assert (again.signals, again.records) == (SIGNALS, RECORDS)
    assert [p.name for p in path.parent.iterdir()] == ["book.parquet"]


def test_a_book_that_is_read_again_has_the_same_risks(path: Path) -> None:
    again = read_book(path)
    risks = {}
    for offer in FULL.offers:
        machine = FULL.machine(offer.cloud, offer.instance_type)
        assert machine is not None
        risks[offer.key] = FULL.risk.gang(offer, machine, 2)
        assert again.risk.gang(offer, machine, 2) == risks[offer.key]
    levels = {one.level for risk in risks.values() for one in risk.evidence}
    assert levels == {"hardware", "stated", "own gangs", "own availability", "band", "share", "prior"}


@pytest.mark.parametrize(
    "changes",
    [
        {"signals": SIGNALS[:1]},
        {"records": RECORDS[:1]},
        {"records": (replace(RECORDS[0], exposure=9.5), RECORDS[1])},
        {"offers": tuple(replace(offer, band_as_of=None) for offer in FULL.offers)},
        {"offers": tuple(replace(offer, preempted_share=None) for offer in FULL.offers)},
    ],
)
def test_evidence_of_interruptions_is_of_the_digest(changes: dict[str, Any]) -> None:
    assert replace(FULL, **changes).digest != FULL.digest
    assert replace(FULL, records=RECORDS[::-1], signals=SIGNALS[::-1]).digest == FULL.digest


def test_the_embedded_book_survives_a_file(tmp_path: Path) -> None:
    path = tmp_path / "book.parquet"
    write_book(embedded_book(), path)
    assert read_book(path) == embedded_book()


def test_the_file_is_a_table_for_pandas(path: Path) -> None:
    frame = pd.read_parquet(path)
    assert len(frame) == 3
    assert frame["usd_nanos_per_hour"].sum() == 55_040_000_000 + 30_500_000_000 + 30_000_000_000
    assert frame.attrs["schema_version"] == SCHEMA_VERSION
    assert frame.attrs["digest"] == FULL.digest


def test_an_empty_book_can_be_kept(tmp_path: Path) -> None:
    write_book(a_book([]), tmp_path / "none.parquet")
    assert read_book(tmp_path / "none.parquet") == a_book([])


@pytest.mark.parametrize("keep", [0, 3, 100, 0.5, 0.99])
def test_a_truncated_file_is_refused(path: Path, keep: float) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: int(keep) if keep >= 1 else int(len(whole) * keep)])
    assert "cannot be read as Parquet" in refusal(path)


def _attrs(**changes: object) -> Callable[[pd.DataFrame], None]:
    return lambda frame: frame.attrs.update(changes)


def _drop_attr(name: str) -> Callable[[pd.DataFrame], None]:
    return lambda frame: frame.attrs.pop(name)


def _column(name: str, value: Any) -> Callable[[pd.DataFrame], None]:
    return lambda frame: frame.__setitem__(name, value)


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (_attrs(schema_version=SCHEMA_VERSION + 1), "written by a later version"),
        (_attrs(schema_version=1), f"schema version 1, this program reads {SCHEMA_VERSION}"),
        (_attrs(schema_version="one"), "schema version 'one'"),
        (lambda frame: frame.attrs.clear(), "no price book"),
        (_drop_attr("tariffs"), "tariffs: table is missing"),
        (_drop_attr("signals"), "signals: table is missing"),
        (_attrs(records=[{"cloud": 3}]), "records.0.cloud"),
        (_attrs(regions=[{"id": 3}]), "regions.0.id"),
        (_attrs(as_of="yesterday"), "no price book has"),
        (_attrs(digest="0"), "does not match its digest"),
        (lambda frame: frame.pop("market"), "market: column is missing"),
        (_column("usd_nanos_per_hour", 1.5), "usd_nanos_per_hour: column holds double, not int64"),
        (_column("source", None), "source: column"),
        (_column("preempted_share", "a third"), "preempted_share: column holds"),
        (_column("preempted_share", 1.5), "no share between 0 and 1"),
        (_column("market", "barter"), "barter"),
        (_column("usd_nanos_per_hour", -1), "not above 0"),
        (_column("region", "us-east-9"), "did you mean us-east-1?"),
        (_column("usd_nanos_per_hour", 1), "does not match its digest"),
    ],
)
def test_a_file_that_is_no_book_is_refused(path: Path, spoil: Callable[[pd.DataFrame], object], what: str) -> None:
    frame = pd.read_parquet(path, dtype_backend="pyarrow")
    spoil(frame)
    frame.to_parquet(path, index=False)
    assert what in refusal(path)


def test_another_parquet_file_is_no_book(tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    pd.DataFrame({"a": [1]}).to_parquet(path)
    assert "no price book" in refusal(path)


def test_a_failed_write_leaves_the_old_file(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(InvalidInputError, match="not above 0"):
        write_book(FULL.with_offers([replace(AN_OFFER, usd_per_hour=UsdPerHour(0))]), path)
    with pytest.raises(InvalidInputError, match="too large"):
        write_book(FULL.with_offers([replace(AN_OFFER, usd_per_hour=UsdPerHour(1 << 63))]), path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["book.parquet"]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="cannot be written"):
        write_book(FULL, tmp_path / "nowhere" / "book.parquet")
    with pytest.raises(InvalidInputError, match=r"\.parquet"):
        write_book(FULL, tmp_path / "book.csv")


def test_files_that_are_not_there_or_of_another_kind(tmp_path: Path) -> None:
    for name in ("none.csv", "none.parquet", "book.xlsx"):
        assert "no such file" in refusal(tmp_path / name)
    (tmp_path / "book.xlsx").write_bytes(b"PK")
    assert "is a .parquet or a .csv" in refusal(tmp_path / "book.xlsx")
    (tmp_path / "book.csv").mkdir()
    assert "is not a file" in refusal(tmp_path / "book.csv")


def test_the_small_tables_are_plain_json(path: Path) -> None:
    tables = pd.read_parquet(path).attrs
    assert json.loads(json.dumps(tables["tariffs"]))[0]["tiers"][1]["price"] == {"nanos": 90_000_000}
