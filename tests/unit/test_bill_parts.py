"""Parts and versions of a bill, and the folders, archives and manifests that they come in."""

from __future__ import annotations

import gzip
import json
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pricing.problems import InvalidInputError
from router.showback.bill_import import BillImport, UnclearDeliveryError, import_bills
from router.showback.bill_store import BillStore
from router.showback.bills import DeliveryKind
from router.showback.focus.charge_files import write_csv, write_parquet
from router.showback.focus.columns import Charge
from tests.support.golden_charges import golden_charges
from tests.support.repository import ROOT

NOW = datetime(2026, 11, 22, tzinfo=UTC)
EXAMPLE = ROOT / "examples" / "showback" / "bill-aws.csv"
AWS = tuple(each for each in golden_charges() if each.invoice_issuer_name == "AWS")
FIRST, SECOND = AWS[:15], AWS[15:]


@pytest.fixture
def store(tmp_path: Path) -> BillStore:
    return BillStore(tmp_path / "home" / "bills")


def take(store: BillStore, *paths: Path, kind: DeliveryKind | None = None) -> BillImport:
    return import_bills(paths, store, NOW, kind=kind)


def written(path: Path, charges: Sequence[Charge]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_csv(path, charges, "1.2")
    return path


def stands(store: BillStore) -> tuple[int, Decimal]:
    bills = [each.bill for each in store.standing()]
    amounts = (amount for bill in bills for sums in bill.sums.values() if (amount := sums["BilledCost"]))
    return sum(bill.rows for bill in bills), sum((Decimal(each) for each in amounts), Decimal(0))


WHOLE = (len(AWS), sum((each.billed_cost for each in AWS), Decimal(0)))


@pytest.mark.parametrize("parts", [(FIRST, SECOND), (SECOND, FIRST)], ids=["small first", "large first"])
def test_the_other_rows_of_an_account_do_not_silently_replace_those_that_stand(
    parts: tuple[Sequence[Charge], Sequence[Charge]], store: BillStore, tmp_path: Path
) -> None:
    first, second = written(tmp_path / "1.csv", parts[0]), written(tmp_path / "2.csv", parts[1])
    take(store, first)
    before = stands(store)
    with pytest.raises(UnclearDeliveryError, match=r"--as part.*--as version") as refused:
        take(store, second)
    assert f"with {len(parts[0])} rows, of which the delivery has 0 and {len(parts[1])} others" in str(refused.value)
    assert stands(store) == before
    joined = take(store, second, kind=DeliveryKind.PART)
    assert stands(store) == WHOLE
    assert [each.replaced_by for each in store.bills()] == [joined.delivery.bills[0].id, None]
    assert joined.joined == (store.bills()[0].bill.id,)
    for again in ([first], [second], [first, second]):
        assert not take(store, *again).new


def test_a_version_with_the_lines_that_stand_replaces_them_without_asking(store: BillStore, tmp_path: Path) -> None:
    take(store, written(tmp_path / "1.csv", FIRST))
    dearer = [replace(each, billed_cost=each.billed_cost + 1) for each in AWS]
    take(store, written(tmp_path / "2.csv", dearer))
    assert stands(store) == (WHOLE[0], WHOLE[1] + len(AWS))


def test_a_version_with_few_of_the_lines_replaces_them_where_somebody_says_so(store: BillStore, tmp_path: Path) -> None:
    take(store, written(tmp_path / "1.csv", FIRST))
    take(store, written(tmp_path / "2.csv", SECOND), kind=DeliveryKind.VERSION)
    assert stands(store)[0] == len(SECOND)


def test_a_part_with_rows_that_stand_would_count_them_twice(store: BillStore, tmp_path: Path) -> None:
    take(store, written(tmp_path / "1.csv", FIRST))
    with pytest.raises(InvalidInputError, match="holds 2 rows of this delivery already, cell for cell"):
        take(store, written(tmp_path / "2.csv", AWS[13:]), kind=DeliveryKind.PART)
    assert stands(store)[0] == len(FIRST)


def test_an_earlier_part_in_other_bytes_does_not_take_the_place_of_the_whole(store: BillStore, tmp_path: Path) -> None:
    take(store, written(tmp_path / "1.csv", FIRST))
    take(store, written(tmp_path / "2.csv", SECOND), kind=DeliveryKind.PART)
    path = tmp_path / "1.csv.gz"
    path.write_bytes(gzip.compress((tmp_path / "1.csv").read_bytes()))
    with pytest.raises(UnclearDeliveryError, match="with 35 rows, of which the delivery has 15 and 0 others"):
        take(store, path)
    with pytest.raises(InvalidInputError, match="holds 15 rows of this delivery already"):
        take(store, path, kind=DeliveryKind.PART)
    assert stands(store) == WHOLE


def test_columns_of_one_part_alone_are_kept(store: BillStore, tmp_path: Path) -> None:
    first, second = written(tmp_path / "1.csv", FIRST), written(tmp_path / "2.csv", SECOND)
    second.write_text(second.read_text().replace("x_JobId", "x_Room", 1))
    take(store, first)
    take(store, second, kind=DeliveryKind.PART)
    assert stands(store) == WHOLE


def test_rows_1_to_60_and_the_other_161_of_the_example_bill(store: BillStore, tmp_path: Path) -> None:
    head, *rows = EXAMPLE.read_bytes().splitlines(keepends=True)
    for name, part in (("1.csv", rows[:60]), ("2.csv", rows[60:])):
        (tmp_path / name).write_bytes(b"".join([head, *part]))
    take(store, EXAMPLE)
    whole = stands(store)
    other = BillStore(tmp_path / "other")
    take(other, tmp_path / "1.csv")
    with pytest.raises(UnclearDeliveryError):
        take(other, tmp_path / "2.csv")
    take(other, tmp_path / "2.csv", kind=DeliveryKind.PART)
    assert stands(other) == whole


def aws_export(folder: Path, run: str, parts: Sequence[Sequence[Charge]]) -> Path:
    """An export of AWS that keeps earlier runs: a folder for each, below data and metadata."""
    period = Path("BILLING_PERIOD=2026-11") / run
    names = [f"focus-{number:05}.csv.gz" for number in range(1, len(parts) + 1)]
    for name, part in zip(names, parts, strict=True):
        path = written(folder / "data" / period / name, part)
        path.write_bytes(gzip.compress(path.read_bytes()))
    manifest = folder / "metadata" / period / "focus-Manifest.json"
    manifest.parent.mkdir(parents=True)
    files = [f"s3://bucket/finance/focus/data/{period.as_posix()}/{name}" for name in names]
    manifest.write_text(json.dumps({"exportName": "focus", "executionId": run, "dataFiles": files}))
    return manifest


def azure_run(folder: Path, run: str, day: int, parts: Sequence[Sequence[Charge]], more: int = 0) -> Path:
    blobs = []
    for number, part in enumerate(parts):
        path = written(folder / "20261101-20261130" / run / f"part_{number}_0001.csv", part)
        blobs.append({"blobName": f"exports/{path.relative_to(folder).as_posix()}", "dataRowCount": len(part) + more})
    manifest = folder / "20261101-20261130" / run / "manifest.json"
    period = {"startDate": "2026-11-01T00:00:00", "endDate": "2026-11-30T00:00:00"}
    run_info = {"submittedTime": f"2026-11-{day:02}T06:00:00Z", **period}
    manifest.write_text(json.dumps({"exportConfig": {"exportName": "focus"}, "runInfo": run_info, "blobs": blobs}))
    return manifest


def test_a_manifest_of_aws_names_what_replaces_what_stands(store: BillStore, tmp_path: Path) -> None:
    take(store, written(tmp_path / "other.csv", SECOND))
    take(store, aws_export(tmp_path / "export", "20261120T0600Z-a", [FIRST[:5], FIRST[5:]]))
    assert stands(store)[0] == len(FIRST)  # a manifest is whole: nobody is asked


def test_of_a_folder_with_several_runs_the_newest_of_each_counts(store: BillStore, tmp_path: Path) -> None:
    aws_export(tmp_path / "aws", "20261119T0600Z-z", [FIRST])
    aws_export(tmp_path / "aws", "20261120T0600Z-a", [FIRST, SECOND])
    done = take(store, tmp_path / "aws")
    assert stands(store) == WHOLE
    assert [path.parent.name for path in done.unread] == ["20261119T0600Z-z"]
    other = BillStore(tmp_path / "other")
    azure_run(tmp_path / "azure", "f1", 20, [FIRST, SECOND])
    azure_run(tmp_path / "azure", "f2", 19, [FIRST])
    take(other, tmp_path / "azure")
    assert stands(other) == WHOLE


def test_what_a_manifest_names_must_be_there_whole(store: BillStore, tmp_path: Path) -> None:
    manifest = azure_run(tmp_path / "short", "run", 20, [FIRST], more=1)
    with pytest.raises(InvalidInputError, match="has 15 rows where its manifest says 16"):
        take(store, manifest)
    manifest = aws_export(tmp_path / "gone", "run", [FIRST, SECOND])
    next((tmp_path / "gone").rglob("focus-00002.csv.gz")).unlink()
    with pytest.raises(InvalidInputError, match=r"names focus-00002\.csv\.gz, which is not there"):
        take(store, manifest)
    manifest.write_text("{}")
    with pytest.raises(InvalidInputError, match="is a manifest that names no bill"):
        take(store, manifest)
    manifest.write_text('{"dataFiles": [3]}')
    with pytest.raises(InvalidInputError, match="is no manifest that can be read"):
        take(store, tmp_path / "gone")
    assert store.bills() == ()


def test_a_folder_of_hive_partitions_fills_columns_that_its_files_lack(store: BillStore, tmp_path: Path) -> None:
    for number, part in enumerate((FIRST, SECOND)):
        folder = tmp_path / "lake" / f"day={number}" / "InvoiceIssuerName=Amazon%20Web%20Services"
        path = folder / "part-0.parquet"
        folder.mkdir(parents=True)
        write_parquet(path, part, "1.2")
        pq.write_table(pq.ParquetFile(path).read().drop_columns(["InvoiceIssuerName"]), path)
        (folder / "_SUCCESS").touch()
        (folder / ".part-0.parquet.crc").touch()
    done = take(store, tmp_path / "lake")
    assert stands(store) == WHOLE
    assert [bill.issuer for bill in done.delivery.bills] == ["Amazon Web Services"]
    assert {source.name for source in done.delivery.sources} == {
        f"day={number}/InvoiceIssuerName=Amazon%20Web%20Services/part-0.parquet" for number in (0, 1)
    }


def test_an_archive_of_several_parts_is_read_without_unpacking_it(store: BillStore, tmp_path: Path) -> None:
    first, second = written(tmp_path / "1.csv", FIRST), tmp_path / "2.parquet"
    write_parquet(second, SECOND, "1.2")
    archive = tmp_path / "november.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.write(first, "bills/1.csv")
        packed.write(second, "../2.parquet")
        packed.writestr("README.txt", "none")
    done = take(store, archive)
    assert stands(store) == WHOLE
    assert [source.name for source in done.delivery.sources] == [
        "november.zip/bills/1.csv",
        "november.zip/../2.parquet",
    ]
    assert {path.name for path in tmp_path.iterdir()} == {"1.csv", "2.parquet", "november.zip", "home"}
    assert not take(store, first).new


def test_archives_that_are_damaged_empty_or_bombs_are_refused(store: BillStore, tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as packed:
        packed.write(written(tmp_path / "1.csv", FIRST), "1.csv")
    content = bytearray(archive.read_bytes())
    content[400] ^= 1
    archive.write_bytes(bytes(content))
    with pytest.raises(InvalidInputError, match=r"a\.zip/1\.csv: cannot be unpacked: Bad CRC-32"):
        take(store, archive)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("1.csv", b"x" * 70_000_000)
    with pytest.raises(InvalidInputError, match="unpacks to 70,000,000 bytes: no bill does"):
        take(store, archive)
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("README.txt", "none")
    with pytest.raises(InvalidInputError, match="is a zip archive without bills"):
        take(store, archive)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInputError, match="is a folder without bills"):
        take(store, tmp_path / "empty")
