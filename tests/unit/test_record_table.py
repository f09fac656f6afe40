"""A table is described once: text, wide text, CSV and JSON records are of the same columns."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from pricing.money import Usd
from router.render.record_table import RecordTable, TableColumn
from router.render.tables import Screen, format_usd


@dataclass(frozen=True)
class Gang:
    """A row of the table below."""

    job: str
    place: str
    usd: Usd | None
    at: datetime
    warned: tuple[int, ...] = ()
    hard: bool = False


TABLE: RecordTable[Gang] = RecordTable(
    (
        TableColumn("job", lambda gang: gang.job, "JOB", width=8),
        TableColumn("", lambda gang: gang.place, "PLACE", least=10),
        TableColumn("usd", lambda gang: gang.usd, "COST", format_usd, right=True, unknown="?"),
        TableColumn("at", lambda gang: gang.at, "AT", "{:%H:%M}".format, wide=True),
        TableColumn("", lambda gang: "yes" if gang.hard else "no", "HARD", wide=False),
        TableColumn("warned", lambda gang: gang.warned),
        TableColumn("hard", lambda gang: gang.hard),
    )
)
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
ROWS = (
    Gang("a-long-name", "aws/us-east-1", Usd.parse("12.345"), NOON, (50, 80), hard=True),
    Gang("b", "gcp/europe-west4", None, NOON),
)


def test_the_narrow_table_clips_and_keeps_to_the_screen() -> None:
    assert TABLE.text(ROWS).splitlines() == [
        "JOB      PLACE              COST HARD",
        "a-lo…ame aws/us-east-1    $12.34 yes",
        "b        gcp/europe-west4      ? no",
    ]
    narrow = TABLE.text(ROWS, Screen(34)).splitlines()
    assert narrow[2] == "b        gcp/e…est4      ? no"
    assert len(TABLE.text(ROWS, Screen(10)).splitlines()[2].split()[1]) == 10


def test_the_wide_table_has_columns_of_its_own_and_clips_nothing() -> None:
    assert TABLE.text(ROWS, Screen(20), wide=True).splitlines() == [
        "JOB         PLACE              COST AT",
        "a-long-name aws/us-east-1    $12.34 12:00",
        "b           gcp/europe-west4      ? 12:00",
    ]


def test_records_are_exact_and_csv_has_their_fields() -> None:
    assert TABLE.fields == ("job", "usd", "at", "warned", "hard")
    assert TABLE.records(ROWS)[0] == {
        "job": "a-long-name",
        "usd": "12.345",
        "at": "2026-11-21T12:00:00+00:00",
        "warned": [50, 80],
        "hard": True,
    }
    assert TABLE.csv(ROWS, unknown="none").splitlines() == [
        "job,usd,at,warned,hard",
        'a-long-name,12.345,2026-11-21T12:00:00+00:00,"50,80",true',
        "b,none,2026-11-21T12:00:00+00:00,,false",
    ]
    assert TABLE.csv(()) == "job,usd,at,warned,hard\n"
