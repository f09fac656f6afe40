"""Bills as clouds write them: tags in several shapes, columns under other names, and forms that are not FOCUS."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pricing.problems import InvalidInputError
from router.showback.bill_import import import_bills
from router.showback.bill_store import BillStore
from router.showback.facts_from_focus import read_focus
from router.showback.focus.charge_files import write_csv, write_parquet
from router.showback.focus.texts import join_key_values
from tests.support.charge_files import Row, changed, nine

NOW = datetime(2026, 11, 22, tzinfo=UTC)
PAIR = pa.struct([("key", pa.string()), ("value", pa.string()), ("inherited", pa.bool_()), ("namespace", pa.string())])
Shape = Callable[[dict[str, str]], object]


def pairs(tags: dict[str, str]) -> list[dict[str, object]]:
    return [{"key": key, "value": value, "inherited": False, "namespace": None} for key, value in tags.items()]


def bigquery(tags: dict[str, str]) -> dict[str, object]:
    return {"list": [{"element": each} for each in pairs(tags)]}


def parquet(path: Path, column: str, kind: pa.DataType, shape: Shape) -> Path:
    """Nine charges, one column of which has the type and shape."""
    write_parquet(path, nine(), "1.2")
    table = pq.read_table(path)
    values = [None if text is None else shape(json.loads(text)) for text in table[column].to_pylist()]
    at = table.schema.get_field_index(column)
    pq.write_table(table.set_column(at, column, pa.array(values, kind)), path)
    return path


SHAPES: dict[str, tuple[pa.DataType, Shape]] = {
    "map": (pa.map_(pa.string(), pa.string()), lambda tags: list(tags.items())),
    "structs": (pa.list_(PAIR), pairs),
    "structs of BigQuery": (pa.struct([("list", pa.list_(pa.struct([("element", PAIR)])))]), bigquery),
    "JSON of an object": (pa.string(), json.dumps),
    "JSON of pairs": (pa.string(), lambda tags: json.dumps(pairs(tags))),
    "JSON within JSON": (pa.string(), lambda tags: json.dumps(json.dumps(tags))),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_tags_are_read_in_every_shape(shape: str, tmp_path: Path) -> None:
    plain = tmp_path / "plain.csv"
    write_csv(plain, nine(), "1.2")
    expected = read_focus(plain).select(["team", "project", "cost_center", "job"])
    assert expected["team"].null_count == 0
    path = parquet(tmp_path / "bill.parquet", "Tags", *SHAPES[shape])
    assert read_focus(path).select(expected.column_names) == expected


def test_other_nested_columns_are_read_and_the_difference_is_told(tmp_path: Path) -> None:
    path = parquet(
        tmp_path / "bill.parquet", "SkuPriceDetails", pa.list_(PAIR), lambda _: pairs({"x_GpuModel": "H100"})
    )
    store = BillStore(tmp_path / "home")
    done = import_bills([path], store, NOW)
    assert [gap.column for gap in done.delivery.gaps if gap.rule == "key-values"] == ["SkuPriceDetails"]
    details = pq.read_table(store.current()[0])["SkuPriceDetails"].drop_null().unique().to_pylist()
    assert details == ['{"x_GpuModel":"H100"}']


def test_lists_of_bigquery_within_an_object_are_plain_lists() -> None:
    nested = '{"Elements":{"list":[{"element":{"AllocatedRatio":0.5}}]}}'
    assert join_key_values(nested) == '{"Elements":[{"AllocatedRatio":0.5}]}'
    assert join_key_values('{"list":"of machines"}') is None
    assert join_key_values('{"Elements":[{"key":"a"}]}') is None


def test_a_key_that_is_listed_twice_is_not_guessed(tmp_path: Path) -> None:
    path = changed(tmp_path / "bill.csv", lambda rows: rows[0].update(Tags=json.dumps([*pairs({"team": "a"}) * 2])))
    done = import_bills([path], BillStore(tmp_path / "home"), NOW)
    assert [gap.count for gap in done.delivery.gaps if gap.rule == "json"] == [1]


def headed(path: Path, name: Callable[[str], str]) -> Path:
    """Nine charges, with each column under another name."""
    write_csv(path, nine(), "1.2")
    with path.open(encoding="utf-8", newline="") as stream:
        head, *rows = csv.reader(stream)
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([[name(each) for each in head], *rows])
    return path


def snake(name: str) -> str:
    return "".join(f"_{each.lower()}" if each.isupper() else each for each in name).lstrip("_")


@pytest.mark.parametrize(
    "name",
    [str.lower, str.upper, snake, lambda name: snake(name).replace("_", " ").title()],
    ids=["lower", "UPPER", "snake", "Title"],
)
def test_columns_are_read_in_any_spelling_which_is_named(name: Callable[[str], str], tmp_path: Path) -> None:
    done = import_bills([headed(tmp_path / "bill.csv", name)], BillStore(tmp_path / "home"), NOW)
    assert done.delivery.bills[0].sums["USD"]["BilledCost"] == "144"
    told = {gap.column: gap.value for gap in done.delivery.gaps if gap.rule == "column-name"}
    assert told["BilledCost"] == repr(name("BilledCost"))
    assert not [gap for gap in done.delivery.gaps if gap.rule in ("missing-column", "unknown-column")]


def test_one_column_under_two_names_is_not_chosen_from(tmp_path: Path) -> None:
    def change(rows: list[Row]) -> None:
        for row in rows:
            row["billed_cost"] = row["Billed Cost"] = row.pop("BilledCost")

    path = changed(tmp_path / "bill.csv", change, version="1.2")
    with pytest.raises(
        InvalidInputError, match="names the column BilledCost twice, as 'billed_cost' and 'Billed Cost'"
    ):
        import_bills([path], BillStore(tmp_path / "home"), NOW)


def test_preview_names_of_oci_are_mapped(tmp_path: Path) -> None:
    names = {
        "ProviderName": "Provider",
        "PublisherName": "Publisher",
        "InvoiceIssuerName": "InvoiceIssuer",
        "RegionId": "Region",
        "ConsumedQuantity": "UsageQuantity",
        "ConsumedUnit": "UsageUnit",
        "x_JobId": "oci_ReferenceNumber",
    }
    path = headed(tmp_path / "bill.csv", lambda name: names.get(name, name))
    store = BillStore(tmp_path / "home")
    done = import_bills([path], store, NOW)
    assert done.delivery.bills[0].issuer == nine()[0].invoice_issuer_name
    row = pq.read_table(store.current()[0]).to_pylist()[0]
    charge = nine()[0]
    assert (row["RegionId"], row["ServiceProviderName"]) == (charge.region_id, charge.service_provider_name)
    assert (row["ConsumedUnit"], row["ConsumedQuantity"]) == (charge.consumed_unit, charge.consumed_quantity)


@pytest.mark.parametrize(
    ("header", "told", "order"),
    [
        ("bill_payer_account_name,line_item_usage_start_date,line_item_unblended_cost", "Report 2.0", "Data Exports"),
        ("identity/LineItemId,lineItem/UsageStartDate,lineItem/UnblendedCost", "legacy", "Data Exports"),
        ("identity_line_item_id,line_item_usage_start_date,line_item_unblended_cost", "legacy", "Data Exports"),
        ("InvoiceSectionName,Date,MeterId,ChargeType,CostInBillingCurrency", "actual or amortized", "details (FOCUS)"),
        ("invoiceId,date,meterId,chargeType,costInBillingCurrency,pricingModel", "actual or amortized", "(FOCUS)"),
        ("AccountOwnerId,Date,Meter Id,ResourceRate,ExtendedCost", "Enterprise Agreement", "(FOCUS)"),
        ("billing_account_id,service.id,usage_start_time,usage_end_time,cost,export_time", "Google", "BigQuery view"),
        ("lineItem/referenceNo,lineItem/tenantId,lineItem/intervalUsageStart,cost/myCost", "OCI", "FOCUS Reports"),
    ],
)
def test_a_native_bill_is_told_which_export_to_order(header: str, told: str, order: str, tmp_path: Path) -> None:
    path = tmp_path / "bill.csv"
    path.write_text(f"{header}\n{','.join('1' for _ in header.split(','))}\n")
    with pytest.raises(InvalidInputError) as refused:
        import_bills([path], BillStore(tmp_path / "home"), NOW)
    (problem,) = refused.value.problems
    assert (told in problem.what, order in problem.remedy) == (True, True)
