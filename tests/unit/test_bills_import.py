"""Bills into the store: what counts once, what replaces, what is refused, what is told of gaps."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pricing.problems import InvalidInputError
from router.showback.bill_import import BillImport, import_bills
from router.showback.bill_store import BillPartWriter, BillStore
from router.showback.bills import BillGap, Delivery, manifest_json, read_delivery
from router.showback.focus.charge_files import write_csv, write_parquet
from router.showback.focus.columns import COSTS, NEWEST, Charge, written_columns
from tests.support.charge_files import Change, Row, cell, changed, nine, renamed, without
from tests.support.golden_charges import golden_charges

NOW = datetime(2026, 11, 22, tzinfo=UTC)

at_both_edges = pytest.mark.parametrize("edge", ["Start", "End"])
with_unreadable_times = pytest.mark.parametrize("moment", ["4/1/25", "2023-02-01T30:00:00Z", "soon"])


@pytest.fixture
def store(tmp_path: Path) -> BillStore:
    return BillStore(tmp_path / "home" / "bills")


def take(store: BillStore, *paths: Path) -> BillImport:
    return import_bills(paths, store, NOW)


def sums(store: BillStore) -> dict[str, tuple[Decimal, int]]:
    """Billed, and rows, by currency, as a reader of the files sees it."""
    paths = [str(path) for path in store.current()]
    if not paths:
        return {}
    query = "SELECT BillingCurrency, SUM(BilledCost), COUNT(*) FROM read_parquet(?, union_by_name=true) GROUP BY 1"
    with duckdb.connect() as connection:
        return {code: (billed, rows) for code, billed, rows in connection.execute(query, [paths]).fetchall()}


def written(path: Path, charges: Sequence[Charge], version: str = "1.2") -> Path:
    write_csv(path, charges, version)
    return path


def gaps(done: BillImport) -> dict[tuple[str, str], int]:
    return {(gap.rule, gap.column): gap.count for gap in done.delivery.gaps if gap.rule != "absent-column"}


def test_a_delivery_becomes_a_bill_for_each_issuer_account_and_period(store: BillStore, tmp_path: Path) -> None:
    done = take(store, written(tmp_path / "november.csv", golden_charges()))
    assert done.new
    assert [(bill.issuer, bill.account, bill.rows) for bill in done.delivery.bills] == [
        ("AWS", "111122223333", 35),
        ("Google Cloud", "01A2B3-C4D5E6-F7A8B9", 17),
        ("Nebius", "contract-77", 8),
    ]
    aws, google, nebius = done.delivery.bills
    assert aws.sums == {"USD": dict(zip(COSTS, ("646.3", "646.3", "826.3", "826.3"), strict=True))}
    assert google.sums["USD"]["BilledCost"] == "516.5"
    assert nebius.sums["EUR"]["BilledCost"] == "215.985"
    assert (aws.start, aws.end, aws.label) == ("2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z", "")
    assert sums(store) == {"USD": (Decimal("1162.8"), 52), "EUR": (Decimal("215.985"), 8)}
    assert gaps(done) == {}


def test_data_reach_to_the_end_of_the_last_use(store: BillStore, tmp_path: Path) -> None:
    (bill,) = take(store, written(tmp_path / "f.csv", nine()[:8])).delivery.bills
    assert bill.data_through == "2026-11-03T08:00:00Z"


@pytest.mark.parametrize("again", ["the same file", "another name", "in gzip, then the same", "one of its parts"])
def test_what_was_imported_changes_nothing(again: str, store: BillStore, tmp_path: Path) -> None:
    first, second = written(tmp_path / "1.csv", nine()[:4]), written(tmp_path / "2.csv", nine()[4:])
    done = take(store, first, second)
    before = {path: path.stat().st_mtime_ns for path in store.folder.rglob("*") if path.is_file()}
    paths = [first, second]
    if again == "another name":
        paths = [Path(shutil.copy(first, tmp_path / "other.csv")), second]
    if again == "one of its parts":
        paths = [second]
    if again == "in gzip, then the same":
        paths = [second, first]
    assert take(store, *paths) == BillImport(done.delivery, new=False)
    assert {path: path.stat().st_mtime_ns for path in store.folder.rglob("*") if path.is_file()} == before


def test_a_restated_bill_takes_the_place_of_the_older_one_alone(store: BillStore, tmp_path: Path) -> None:
    take(store, written(tmp_path / "november.csv", golden_charges()))
    aws = [each for each in golden_charges() if each.invoice_issuer_name == "AWS"]
    restated = [replace(aws[0], billed_cost=aws[0].billed_cost + 1), *aws[1:]]
    done = take(store, written(tmp_path / "later.csv", restated))
    assert done.new
    assert sums(store) == {"USD": (Decimal("1163.8"), 52), "EUR": (Decimal("215.985"), 8)}
    by_id = {each.bill.id: each for each in store.bills()}
    new = by_id[done.delivery.bills[0].id]
    assert new.replaced_by is None
    assert new.replaces is not None
    assert by_id[new.replaces].replaced_by == new.bill.id
    assert store.path(by_id[new.replaces]).is_file()
    # The older delivery once more: its AWS bill does not stand, so it stands again; the others stood all the time.
    again = take(store, tmp_path / "november.csv")
    assert (again.new, again.delivery.bills, again.delivery.again) == (True, (), (new.replaces,))
    assert len(again.delivery.same) == 2
    assert sums(store)["USD"] == (Decimal("1162.8"), 52)
    assert not take(store, tmp_path / "november.csv").new
    assert len(store.bills()) == 4


def test_another_account_or_month_stands_beside(store: BillStore, tmp_path: Path) -> None:
    charge = nine()[0]
    take(store, written(tmp_path / "a.csv", [charge]))
    take(store, written(tmp_path / "b.csv", [replace(charge, billing_account_id="2", resource_id="i-2")]))
    october = charge.billing_period_start.replace(month=10)
    take(
        store,
        written(
            tmp_path / "c.csv",
            [replace(charge, billing_period_start=october, billing_period_end=charge.billing_period_start)],
        ),
    )
    assert sums(store) == {"USD": (Decimal(15), 3)}
    assert len(BillStore(store.folder).current()) == 3


@pytest.mark.parametrize("named", [True, False], ids=["with resources", "without any"])
def test_a_bill_under_another_account_would_count_twice(named: bool, store: BillStore, tmp_path: Path) -> None:
    charges = [each if named else replace(each, resource_id=None, resource_name=None) for each in nine()]
    take(store, written(tmp_path / "a.csv", charges))
    renamed_account = [replace(each, billing_account_id="2") for each in charges]
    with pytest.raises(InvalidInputError, match=r"has 9 charges, 144\.00 USD billed, on bill-"):
        take(store, written(tmp_path / "b.csv", renamed_account))
    both = written(tmp_path / "both.csv", [*charges, *renamed_account])
    with pytest.raises(InvalidInputError, match="has 9 charges"):
        import_bills([both], BillStore(tmp_path / "other"), NOW)
    next_month = charges[0].billing_period_end.replace(month=12, day=31)
    later = [
        replace(
            each, billing_account_id="3", billing_period_start=each.billing_period_end, billing_period_end=next_month
        )
        for each in charges
    ]
    take(store, written(tmp_path / "c.csv", later))  # another period, as corrections have: nobody's business


def test_two_accounts_may_pay_one_fee(store: BillStore, tmp_path: Path) -> None:
    for account in ("1", "2"):
        own = [
            replace(each, billing_account_id=account, resource_id=f"{account}-{each.resource_id}") for each in nine()
        ]
        fee = replace(own[0], resource_id=None, resource_name=None, charge_description="support")
        take(store, written(tmp_path / f"{account}.csv", [*own, fee]))
    assert sums(store)["USD"][1] == 20


def test_bills_of_nobody_are_told_apart_by_their_file(store: BillStore, tmp_path: Path) -> None:
    nobody = without("BillingAccountId")
    for name, count in (("a.csv", 9), ("b.csv", 8), ("a.csv", 7)):
        charges = [replace(each, resource_id=f"{name} {each.resource_id}") for each in nine()[:count]]
        take(store, changed(tmp_path / name, nobody, charges, "1.2"))
    standing = [each.bill for each in store.bills() if each.replaced_by is None]
    assert [(bill.label, bill.account, bill.rows) for bill in standing] == [("b.csv", None, 8), ("a.csv", None, 7)]


def test_currencies_are_kept_apart(store: BillStore, tmp_path: Path) -> None:
    charge = nine()[0]
    done = take(store, written(tmp_path / "f.csv", [charge, replace(charge, billing_currency="EUR")]))
    assert {code: of["BilledCost"] for code, of in done.delivery.bills[0].sums.items()} == {"USD": "5", "EUR": "5"}


def test_what_no_row_says_is_not_zero(store: BillStore, tmp_path: Path) -> None:
    done = take(store, changed(tmp_path / "f.csv", without("ListCost"), version="1.2"))
    assert done.delivery.bills[0].sums["USD"]["ListCost"] is None
    assert gaps(done) == {("missing-column", "ListCost"): 1}


@pytest.mark.parametrize(
    ("change", "gap"),
    [
        (cell("BilledCost", "NULL"), ("null-word", "BilledCost")),
        (cell("RegionId", "Unassigned"), ("missing-word", "RegionId")),
        (cell("SubAccountId", "-2"), ("missing-word", "SubAccountId")),
        (cell("ChargeFrequency", "Usage-based"), ("word", "ChargeFrequency")),
        (cell("ListCost", "5.1"), ("list-cost", "ListCost")),
        (cell("ChargePeriodStart", "2026-11-03 05:00:00"), ("time", "ChargePeriodStart")),
        (cell("x_GpuHours", "two"), ("unreadable", "x_GpuHours")),
        (cell("ChargePeriodEnd", "2023-02-01T30:00:00Z"), ("unreadable", "ChargePeriodEnd")),
        (renamed("x_JobId", "Id"), ("unknown-column", "Id")),
    ],
)
def test_a_gap_is_told_and_the_rest_goes_on(
    change: Change, gap: tuple[str, str], store: BillStore, tmp_path: Path
) -> None:
    done = take(store, changed(tmp_path / "f.csv", change, version="1.2"))
    assert gaps(done)[gap] == 1
    assert sum(bill.rows for bill in done.delivery.bills) == 9


def test_columns_that_a_file_need_not_have_are_told_apart(store: BillStore, tmp_path: Path) -> None:
    done = take(store, changed(tmp_path / "f.csv", without("AvailabilityZone"), version="1.2"))
    assert [gap.column for gap in done.delivery.gaps if gap.rule == "absent-column"] == ["AvailabilityZone"]


def test_what_is_kept_is_what_was_said(store: BillStore, tmp_path: Path) -> None:
    def change(rows: list[dict[str, str]]) -> None:
        rows[0].update(
            {"ChargePeriodStart": "2026-11-03 00:00:00", "ChargeFrequency": "Usage-based", "RegionId": "NULL"}
        )
        for row in rows:
            row["Id"], row["tags"], row["x_ExportTime"] = "7", "lower", "noon"

    take(store, changed(tmp_path / "f.csv", change, version="1.2"))
    (path,) = store.current()
    table = pq.read_table(path)
    assert table.schema.names == [*(column.name for column in written_columns(NEWEST)), "Id", "x_tags", "x_ExportTime"]
    first = table.slice(0, 1).to_pylist()[0]
    assert first["ChargePeriodStart"] == datetime(2026, 11, 3, tzinfo=UTC)
    assert (first["ChargeFrequency"], first["RegionId"], first["ServiceProviderName"]) == ("Usage-based", None, "AWS")
    assert (first["Id"], first["x_tags"], first["x_ExportTime"]) == ("7", "lower", "noon")
    assert first["BillingAccountId"] == "111122223333"


@pytest.mark.parametrize("form", ["csv", "csv.gz", "parquet"])
def test_every_form_gives_the_same_rows(form: str, store: BillStore, tmp_path: Path) -> None:
    path = tmp_path / f"f.{form}"
    if form == "parquet":
        write_parquet(path, golden_charges(), "1.2")
    else:
        written(path, golden_charges())
    if form == "csv.gz":
        path.write_bytes(gzip.compress(path.read_bytes()))
    done = take(store, path)
    assert done.delivery.sources[0].form == form
    assert sums(store)["USD"] == (Decimal("1162.8"), 52)


def test_small_amounts_of_doubles_keep_their_digits(store: BillStore, tmp_path: Path) -> None:
    done = take(store, changed(tmp_path / "f.csv", cell("BilledCost", "1.2345678901234567e-06"), version="1.2"))
    assert done.delivery.bills[0].sums["USD"]["BilledCost"] == "139.0000012345678901234567"
    assert gaps(done) == {("number", "BilledCost"): 1}


def test_binary_fractions_are_told(store: BillStore, tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    write_parquet(path, nine(), "1.2")
    table = pq.read_table(path)
    at = table.schema.get_field_index("BilledCost")
    pq.write_table(table.set_column(at, "BilledCost", table["BilledCost"].cast(pa.float64())), path)
    assert gaps(take(store, path)) == {("binary-fraction", "BilledCost"): 1}


@pytest.mark.parametrize("amount", ["five", "1,5", "1e400", "0x10", "Infinity", "9" * 20])
def test_a_cost_that_cannot_be_read_is_not_left_out_of_the_sum(amount: str, store: BillStore, tmp_path: Path) -> None:
    path = changed(tmp_path / "f.csv", cell("EffectiveCost", amount), version="1.2")
    with pytest.raises(InvalidInputError, match=r"f\.csv:6: EffectiveCost: .*cannot be read"):
        take(store, path)
    assert store.bills() == ()
    assert [path for path in store.folder.rglob("*") if path.is_file()] == [store.folder / ".lock"]


@at_both_edges
@with_unreadable_times
def test_a_row_of_which_no_period_can_be_read_is_refused_before_any_report_fails(
    edge: str, moment: str, store: BillStore, tmp_path: Path
) -> None:
    """The specification's own sample of virtual currencies writes 4/1/25."""

    def write(rows: list[Row]) -> None:
        rows[4] |= {f"BillingPeriod{edge}": moment, f"ChargePeriod{edge}": moment}

    path = changed(tmp_path / "f.csv", write, version="1.2")
    with pytest.raises(InvalidInputError, match=rf"f\.csv:6: \w+Period{edge}: .*cannot be read") as refused:
        take(store, path)
    assert {problem.remedy for problem in refused.value.problems} == {"write times as 2026-11-21T18:00:00Z"}
    assert store.bills() == ()


@at_both_edges
@with_unreadable_times
def test_a_billing_period_that_cannot_be_read_is_refused_although_charge_periods_can(
    edge: str, moment: str, store: BillStore, tmp_path: Path
) -> None:
    """It says which bill the row is of: without it a later delivery would stand beside the bill and count twice."""

    def write(rows: list[Row]) -> None:
        for row in rows[4:]:
            row[f"BillingPeriod{edge}"] = moment

    path = changed(tmp_path / "f.csv", write, version="1.2")
    with pytest.raises(InvalidInputError) as refused:
        take(store, path)
    assert [str(problem) for problem in refused.value.problems] == [
        f"{path}:{line}: BillingPeriod{edge}: {moment!r} cannot be read (write times as 2026-11-21T18:00:00Z)"
        for line in range(6, 11)
    ]
    assert store.bills() == ()


@at_both_edges
def test_a_row_without_any_period_is_refused(edge: str, store: BillStore, tmp_path: Path) -> None:
    def clear(rows: list[Row]) -> None:
        rows[4] |= {f"BillingPeriod{edge}": "NULL", f"ChargePeriod{edge}": ""}

    path = changed(tmp_path / "f.csv", clear, version="1.2")
    with pytest.raises(InvalidInputError, match=r"f\.csv:6: ChargePeriodStart: has neither a charge period nor"):
        take(store, path)
    assert store.bills() == ()


def test_a_file_that_is_given_twice_would_count_twice(store: BillStore, tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", nine())
    with pytest.raises(InvalidInputError, match="is given twice"):
        take(store, path, Path(shutil.copy(path, tmp_path / "b.csv")))


def test_one_bad_file_keeps_all_out(store: BillStore, tmp_path: Path) -> None:
    good, bad = written(tmp_path / "a.csv", nine()), tmp_path / "b.csv"
    bad.write_text("Date,Amount\n2026-11-01,5\n")
    with pytest.raises(InvalidInputError, match=r"b\.csv:1: has no FOCUS Cost and Usage columns"):
        take(store, good, bad)
    assert store.bills() == ()


def test_more_bills_than_one_delivery_may_hold(store: BillStore, tmp_path: Path) -> None:
    charge = nine()[0]
    path = written(tmp_path / "f.csv", [replace(charge, billing_account_id=str(i)) for i in range(301)])
    with pytest.raises(InvalidInputError, match="holds more than 300 bills"):
        take(store, path)


def test_names_in_a_bill_are_no_paths(store: BillStore, tmp_path: Path) -> None:
    charge = replace(nine()[0], billing_account_id="../../../etc", invoice_issuer_name="/tmp/x")
    take(store, written(tmp_path / "f.csv", [charge]))
    assert [path.parent for path in store.current()] == [store.folder / "parquet"]
    assert {path.name for path in tmp_path.iterdir()} == {"f.csv", "home"}


@pytest.mark.slow
def test_batches_are_many_and_the_sums_exact(store: BillStore, tmp_path: Path) -> None:
    charge = nine()[0]
    amounts = [Decimal(i) / 10**9 for i in range(1, 17_001)]
    path = written(tmp_path / "f.csv", [replace(charge, billed_cost=amount) for amount in amounts])
    done = take(store, path)
    assert done.delivery.bills[0].sums["USD"]["BilledCost"] == "0.1445085"
    assert sums(store) == {"USD": (sum(amounts), 17_000)}


def test_a_file_that_changes_while_it_is_read(
    store: BillStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "f.csv", nine())
    finish = BillPartWriter.finish

    def late(parts: BillPartWriter) -> None:
        finish(parts)
        written(path, nine()[:3])

    monkeypatch.setattr(BillPartWriter, "finish", late)
    with pytest.raises(InvalidInputError, match="changed while it was read"):
        take(store, path)
    assert store.bills() == ()


def test_a_manifest_is_read_as_it_was_written(store: BillStore, tmp_path: Path) -> None:
    done = take(store, changed(tmp_path / "f.csv", cell("RegionId", "NULL"), version="1.2"))
    assert read_delivery(manifest_json(done.delivery)) == done.delivery
    assert isinstance(done.delivery.gaps[0], BillGap)
    assert isinstance(store.deliveries()[0], Delivery)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 2}', '{"format": 1, "sources": 3}', "\x00"])
def test_a_damaged_manifest_is_no_missing_bill(content: str, store: BillStore, tmp_path: Path) -> None:
    take(store, written(tmp_path / "f.csv", nine()))
    next((store.folder / "deliveries").iterdir()).write_text(content)
    for ask in (store.bills, store.current, lambda: take(store, tmp_path / "f.csv")):
        with pytest.raises(InvalidInputError, match="is no manifest of bills"):
            ask()


def test_rows_that_are_gone_or_others_are_noticed(store: BillStore, tmp_path: Path) -> None:
    take(store, written(tmp_path / "f.csv", nine()))
    (standing,), (path,) = store.bills(), store.current()
    assert store.whole(standing)
    path.write_bytes(path.read_bytes() + b" ")
    assert not store.whole(standing)
    path.unlink()
    assert not store.whole(standing)
    with pytest.raises(InvalidInputError, match="is gone: a bill would be missing"):
        store.current()


def test_a_bill_is_found_by_the_first_digits(store: BillStore, tmp_path: Path) -> None:
    (bill,) = take(store, written(tmp_path / "f.csv", nine())).delivery.bills
    for name in (bill.id, bill.id.removeprefix("bill-"), bill.id[:9]):
        assert store.find(name).bill == bill
    for name in ("bill-", "abc", "zzzz", ""):
        with pytest.raises(InvalidInputError):
            store.find(name)
